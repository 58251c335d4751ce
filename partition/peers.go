package partition

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"

	commandv1 "perdure/api/command/v1"
	"perdure/partition/transport"
)

// peersService is the name under which the peer port carries the Peers service.
const peersService = "peers"

// Bounds of the calls between nodes.
const (
	maxPeerMessage  = 64 << 20
	peerStreams     = 100_000
	peerKeepalive   = 5 * time.Second
	peerSilence     = 3 * time.Second
	peerDialTimeout = 2 * time.Second
)

// peers are the connections to the other nodes, one for each address, and this node's own service. The
// peer port secures them and says who calls. Only members may, but for what a server needs to become one, or
// to learn that it is none any more.
type peers struct {
	mux     *transport.Mux
	server  *grpc.Server
	mayCall func(server string) error

	mu     sync.Mutex
	closed bool
	conns  map[string]*grpc.ClientConn
}

func newPeers(mux *transport.Mux, mayCall func(server string) error) *peers {
	return &peers{mux: mux, mayCall: mayCall, conns: map[string]*grpc.ClientConn{}}
}

// forStrangers are the calls that servers may make that are no members.
var forStrangers = map[string]bool{
	commandv1.Peers_Join_FullMethodName:          true,
	commandv1.Peers_ShowDirectory_FullMethodName: true,
}

// admit refuses a call of a server that is not a member. Each call is looked at: who was a member when it
// connected may have been replaced since.
func (p *peers) admit(ctx context.Context, method string) error {
	if forStrangers[method] {
		return nil
	}
	from, ok := peer.FromContext(ctx)
	if !ok {
		return p.mayCall("")
	}
	who, _ := from.AuthInfo.(caller)
	return p.mayCall(who.server)
}

// portCredentials tell the Peers service who calls. The peer port has shaken hands, and secured the
// connection, before it gets here.
type portCredentials struct {
	credentials.TransportCredentials
}

// caller is who calls, by the handshake of the peer port.
type caller struct {
	credentials.CommonAuthInfo
	server string
}

// AuthType implements credentials.AuthInfo.
func (caller) AuthType() string { return "peer port" }

// ServerHandshake implements credentials.TransportCredentials.
func (portCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	from, ok := transport.PeerOf(conn)
	if !ok {
		return nil, nil, errors.New("the connection did not come over the peer port")
	}
	return conn, caller{server: from.ServerID}, nil
}

// serve answers the other nodes. It returns at once.
func (p *peers) serve(service commandv1.PeersServer) {
	p.server = grpc.NewServer(
		grpc.Creds(portCredentials{insecure.NewCredentials()}),
		grpc.UnaryInterceptor(func(ctx context.Context, in any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			if err := p.admit(ctx, info.FullMethod); err != nil {
				return nil, err
			}
			return handle(ctx, in)
		}),
		grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			if err := p.admit(stream.Context(), info.FullMethod); err != nil {
				return err
			}
			return handle(srv, stream)
		}),
		grpc.MaxConcurrentStreams(peerStreams), grpc.MaxRecvMsgSize(maxPeerMessage), grpc.MaxSendMsgSize(maxPeerMessage),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: peerKeepalive, Timeout: peerSilence}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	)
	commandv1.RegisterPeersServer(p.server, service)
	listener := p.mux.Service(peersService)
	go func() { _ = p.server.Serve(listener) }() // it ends when the port closes
}

// client is the service of the node at an address. It does no I/O; calls fail at once when nobody is there.
func (p *peers) client(addr string) (commandv1.PeersClient, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, transport.ErrClosed
	}
	conn := p.conns[addr]
	if conn == nil {
		var err error
		if conn, err = dialPeer(p.mux, addr); err != nil {
			return nil, err
		}
		p.conns[addr] = conn
	}
	return commandv1.NewPeersClient(conn), nil
}

func dialPeer(mux *transport.Mux, addr string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return mux.Dial(ctx, addr, peersService)
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxPeerMessage), grpc.MaxCallSendMsgSize(maxPeerMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: peerDialTimeout,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: peerKeepalive, Timeout: peerSilence}),
		grpc.WithDisableRetry(),
	)
}

// close ends the calls of and to the other nodes.
func (p *peers) close() error {
	p.mu.Lock()
	p.closed = true
	var errs []error
	for _, c := range p.conns {
		errs = append(errs, c.Close())
	}
	p.mu.Unlock()
	if p.server != nil {
		p.server.Stop()
	}
	return errors.Join(errs...)
}
