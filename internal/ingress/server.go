package ingress

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

const (
	// streamWindow is how many bytes of a message a caller may send before a handler asks for it; connWindow
	// is how many may be in flight on one connection.
	streamWindow = 64 << 10
	connWindow   = 1 << 20
	// maxHeaderBytes bounds a call's headers: a token has 16 KiB at most.
	maxHeaderBytes = 32 << 10
)

// ServerOptions are what a server needs for its calls to go through the gate. creds secure the connections.
// The options for credentials, windows, buffers, headers, unknown services and the tap must not be given in
// addition.
func (g *Gate) ServerOptions(creds credentials.TransportCredentials) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(gateCredentials{creds, g}),
		grpc.InTapHandle(func(ctx context.Context, _ *tap.Info) (context.Context, error) {
			if conn := connOf(ctx); conn != nil {
				ctx = g.open(ctx, conn)
			}
			return ctx, nil // a call refused here would leave its deadline's timer behind
		}),
		grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			if c := callOf(stream.Context()); c != nil {
				defer g.end(c)
			}
			method, _ := grpc.MethodFromServerStream(stream)
			return status.Errorf(codes.Unimplemented, "unknown method %s", method)
		}),
		grpc.StaticStreamWindowSize(streamWindow), grpc.StaticConnWindowSize(connWindow),
		grpc.ReadBufferSize(0), // Conn has one, and must see each frame before gRPC reads the next
		grpc.MaxHeaderListSize(maxHeaderBytes),
	}
}

// ForKnown has a stream interceptor pass over calls of methods that are not registered: the gate answers those,
// and their names must not become labels of metrics.
func ForKnown(intercept grpc.StreamServerInterceptor) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		if srv == nil {
			return handle(srv, stream)
		}
		return intercept(srv, stream, info, handle)
	}
}

// gateCredentials put a Conn between the secured connection and gRPC.
type gateCredentials struct {
	credentials.TransportCredentials
	gate *Gate
}

// ServerHandshake implements credentials.TransportCredentials.
func (c gateCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	p, _ := raw.(*Peer)
	conn := newConn(secured, c.gate, p)
	return conn, AuthInfo{AuthInfo: info, conn: conn}, nil
}

// Clone implements credentials.TransportCredentials.
func (c gateCredentials) Clone() credentials.TransportCredentials {
	return gateCredentials{c.TransportCredentials.Clone(), c.gate}
}

// AuthInfo is what a server's calls see of their connection. The embedded one is that of the credentials, and may
// be nil.
type AuthInfo struct {
	credentials.AuthInfo
	conn *Conn
}

// AuthType implements credentials.AuthInfo.
func (i AuthInfo) AuthType() string {
	if i.AuthInfo == nil {
		return ""
	}
	return i.AuthInfo.AuthType()
}

func connOf(ctx context.Context) *Conn {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, _ := p.AuthInfo.(AuthInfo)
	return info.conn
}

// Registrar registers services whose requests go through the gate.
func (g *Gate) Registrar(s *grpc.Server) *Registrar { return &Registrar{Server: s, gate: g} }

// Registrar is a grpc.ServiceRegistrar.
type Registrar struct {
	*grpc.Server
	gate *Gate
}

// RegisterService implements grpc.ServiceRegistrar.
func (r *Registrar) RegisterService(desc *grpc.ServiceDesc, impl any) {
	own := *desc
	own.Methods = append([]grpc.MethodDesc(nil), desc.Methods...)
	for i := range own.Methods {
		m := &own.Methods[i]
		m.Handler = r.gate.unary("/"+desc.ServiceName+"/"+m.MethodName, m.Handler)
	}
	own.Streams = append([]grpc.StreamDesc(nil), desc.Streams...)
	for i := range own.Streams {
		st := &own.Streams[i]
		st.Handler = r.gate.stream("/"+desc.ServiceName+"/"+st.StreamName, st.Handler)
	}
	r.Server.RegisterService(&own, impl)
}

func (g *Gate) unary(method string, handle grpc.MethodHandler) grpc.MethodHandler {
	return func(srv any, ctx context.Context, read func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		c := callOf(ctx)
		if c == nil {
			return handle(srv, ctx, read, interceptor)
		}
		defer g.end(c)
		if err := g.begin(c, method); err != nil {
			return nil, err
		}
		return handle(srv, ctx, func(m any) error {
			return g.receive(c, method, func() error { return read(m) })
		}, interceptor)
	}
}

// stream is for streams. Interceptors of streams have run before.
func (g *Gate) stream(method string, handle grpc.StreamHandler) grpc.StreamHandler {
	return func(srv any, stream grpc.ServerStream) error {
		c := callOf(stream.Context())
		if c == nil {
			return handle(srv, stream)
		}
		defer g.end(c)
		if err := g.begin(c, method); err != nil {
			return err
		}
		return handle(srv, &gatedStream{stream, g, c, method})
	}
}

// gatedStream receives through the gate.
type gatedStream struct {
	grpc.ServerStream
	gate   *Gate
	call   *call
	method string
}

// RecvMsg implements grpc.ServerStream.
func (s *gatedStream) RecvMsg(m any) error {
	return s.gate.receive(s.call, s.method, func() error { return s.ServerStream.RecvMsg(m) })
}
