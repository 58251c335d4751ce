// Package peers owns the calls between nodes: one connection to each other node, and this node's Peers
// service, over the peer port.
//
// Only members' calls reach the service, except for the calls by which a server becomes a member or learns
// that it was removed. The bytes that members hold and those of others have separate bounds. Every connection
// ends with Close. A crash loses calls under way and nothing else.
package peers

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

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/callstream"
	"perdure/internal/ingress"
	"perdure/partition/transport"
)

// ServiceName is the name under which the peer port carries the Peers service.
const ServiceName = "peers"

// Bounds of the calls between nodes.
const (
	MaxMessage  = 64 << 20
	peerStreams = 100_000
	// peerBytes bounds the requests of all other nodes that are being received or handled, onePeerBytes those of
	// one; peerReserve comes on top for requests of 64 KiB at most. peerCalls bounds the calls under way.
	peerBytes    = 128 << 20
	onePeerBytes = 96 << 20
	peerReserve  = 32 << 20
	peerCalls    = 100_000
	// The same for servers that are no members: they may ask for a membership and for the directory.
	strangerBytes   = 1 << 20
	strangerReserve = 4 << 20
	strangerCalls   = 64
	strangerStreams = 16
	strangerMessage = 16 << 10
	// The connection of a server that is no member ends after strangerAge; calls under way have strangerGrace to end. A
	// server that was admitted since connects again as a member.
	strangerAge   = 10 * time.Second
	strangerGrace = 10 * time.Second
	// helloTimeout bounds the wait for the first bytes of a connection.
	helloTimeout     = 10 * time.Second
	peerKeepalive    = 5 * time.Second
	keepaliveTimeout = 3 * time.Second
	peerDialTimeout  = 2 * time.Second
	// busyPause is when a call that was refused for the number of those under way may come again.
	busyPause = 250 * time.Millisecond
)

// Peers are the connections to the other nodes, one for each address, and this node's own service. The peer
// port secures them and identifies the caller. Only members may call, except for the calls by which a server
// becomes a member or learns that it was removed.
type Peers struct {
	mux     *transport.Mux
	mayCall func(server string) error
	// servers are two, since the requests of members and those of other servers have separate bounds.
	servers []*grpc.Server
	gates   []*ingress.Gate // the members' first
	// refused is called for each call whose request was not read.
	refused                   func()
	strangerAge, helloTimeout time.Duration

	mu     sync.Mutex
	closed bool
	conns  map[string]conn
	// stopping is closed by Close.
	stopping chan struct{}
}

// conn is a connection to another node. calls carries the frequent calls over it in batches.
type conn struct {
	grpc  *grpc.ClientConn
	calls *callstream.Conn
}

// carried are the calls that streams carry.
var carried = map[string]bool{
	commandv1.Peers_Propose_FullMethodName: true,
	commandv1.Peers_Query_FullMethodName:   true,
	commandv1.Peers_Await_FullMethodName:   true,
}

// New makes the connections over a peer port. mayCall returns why a server may not call, or nil; refused is
// called for each call whose request was not read.
func New(mux *transport.Mux, mayCall func(server string) error, refused func()) *Peers {
	return &Peers{mux: mux, mayCall: mayCall, refused: refused, strangerAge: strangerAge, helloTimeout: helloTimeout, conns: map[string]conn{},
		stopping: make(chan struct{})}
}

// forStrangers are the calls that servers may make that are no members.
var forStrangers = map[string]bool{
	commandv1.Peers_Join_FullMethodName:          true,
	commandv1.Peers_ShowDirectory_FullMethodName: true,
}

// admit refuses a call of a server that is not a member. It checks each call: a server that was a member when
// it connected may have been replaced since.
func (p *Peers) admit(ctx context.Context, method string) error {
	if forStrangers[method] {
		return nil
	}
	return p.mayCall(callerOf(ctx))
}

// callerOf is the server that calls; "" if it is not known.
func callerOf(ctx context.Context) string {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	info := from.AuthInfo
	if gated, is := info.(ingress.AuthInfo); is {
		info = gated.AuthInfo
	}
	who, _ := info.(caller)
	return who.server
}

// portCredentials give the Peers service the caller's identity. The peer port has done the handshake and
// secured the connection before.
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

// Serve answers the other nodes. It returns at once.
func (p *Peers) Serve(service commandv1.PeersServer) {
	from := p.mux.Service(ServiceName)
	members, strangers := newPart(from), newPart(from)
	p.serveTo(members, service, ingress.Limits{Message: MaxMessage, Node: peerBytes, Connection: onePeerBytes, Class: onePeerBytes,
		Reserve: peerReserve, Calls: peerCalls},
		grpc.MaxConcurrentStreams(peerStreams),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: peerKeepalive, Timeout: keepaliveTimeout}))
	p.serveTo(strangers, service, ingress.Limits{Message: MaxMessage, Node: strangerBytes, Connection: strangerBytes, Class: strangerBytes,
		Reserve: strangerReserve, Calls: 2 * strangerCalls, Strangers: strangerCalls, StrangerMessage: strangerMessage},
		grpc.MaxConcurrentStreams(strangerStreams),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: peerKeepalive, Timeout: keepaliveTimeout, MaxConnectionAge: p.strangerAge, MaxConnectionAgeGrace: strangerGrace}))
	go func() {
		defer members.end()
		defer strangers.end()
		for {
			conn, err := from.Accept()
			if err != nil {
				return // the port closes
			}
			to := members
			if who, _ := transport.PeerOf(conn); who.Stranger {
				to = strangers
			}
			if !to.take(conn) {
				_ = conn.Close()
			}
		}
	}()
}

// serveTo answers the connections of a listener within limits. It checks the caller before it reads the
// request.
func (p *Peers) serveTo(listener *part, service commandv1.PeersServer, limits ingress.Limits, options ...grpc.ServerOption) {
	gate := ingress.New(ingress.Options{
		Limits: limits,
		Check: func(ctx context.Context, method string) (class string, stranger bool, err error) {
			return callerOf(ctx), limits.Strangers > 0, p.admit(ctx, method)
		},
		Overloaded: func(message string, retryAfter time.Duration) error { return errBusy(message, retryAfter) },
		Refused:    func(string, error, string) { p.refused() },
	})
	server := grpc.NewServer(append(append(options, gate.ServerOptions(portCredentials{insecure.NewCredentials()})...),
		grpc.MaxRecvMsgSize(MaxMessage), grpc.MaxSendMsgSize(MaxMessage), grpc.ConnectionTimeout(p.helloTimeout),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	)...)
	services := gate.Registrar(server)
	commandv1.RegisterPeersServer(services, service)
	calls := callstream.NewServer(callstream.ServerOptions{
		Name: callstream.ForNodes, Keep: gate.KeepParts, WithPart: ingress.WithPart, Stopping: p.stopping, MaxCalls: peerCalls, MaxAnswer: MaxMessage - 1024,
		Intercept: []grpc.UnaryServerInterceptor{func(ctx context.Context, in any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			if err := p.admit(ctx, info.FullMethod); err != nil {
				return nil, err
			}
			return handle(ctx, in)
		}},
		Overloaded: func(message string) error { return errBusy(message, busyPause) },
	})
	commandv1.RegisterPeersServer(calls, service)
	services.RegisterService(calls.Service(), calls)
	p.servers, p.gates = append(p.servers, server), append(p.gates, gate)
	go func() { _ = server.Serve(listener) }() // it ends when the port closes
}

// Stats are what the calls of other nodes hold.
func (p *Peers) Stats() (out ingress.Stats) {
	for _, g := range p.gates {
		st := g.Stats()
		out.Bytes, out.Calls, out.Waiting = out.Bytes+st.Bytes, out.Calls+st.Calls, out.Waiting+st.Waiting
	}
	return out
}

// Port returns the figures of the peer port.
func (p *Peers) Port() transport.Stats { return p.mux.Stats() }

// part is a listener of some of the connections of another one.
type part struct {
	net.Listener
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPart(of net.Listener) *part {
	return &part{Listener: of, conns: make(chan net.Conn), done: make(chan struct{})}
}

// take hands a connection over; false when the part is closed. It blocks until the connection is accepted.
func (l *part) take(c net.Conn) bool {
	select {
	case l.conns <- c:
		return true
	case <-l.done:
		return false
	}
}

// Accept implements net.Listener.
func (l *part) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *part) end() { l.once.Do(func() { close(l.done) }) }

// Close implements net.Listener. It closes the whole listener.
func (l *part) Close() error {
	l.end()
	return l.Listener.Close()
}

// Client is the service of the node at an address. It does no I/O; calls fail at once when no node listens
// there.
func (p *Peers) Client(addr string) (commandv1.PeersClient, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, transport.ErrClosed
	}
	to, ok := p.conns[addr]
	if !ok {
		dialed, err := Dial(p.mux, addr)
		if err != nil {
			return nil, err
		}
		to = conn{dialed, callstream.NewConn(dialed, callstream.Options{Name: callstream.ForNodes, Carries: func(method string) bool { return carried[method] }})}
		p.conns[addr] = to
	}
	return commandv1.NewPeersClient(to.calls), nil
}

// Dial connects to the Peers service at an address. It does no I/O: calls do.
func Dial(mux *transport.Mux, addr string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return mux.Dial(ctx, addr, ServiceName)
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessage), grpc.MaxCallSendMsgSize(MaxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: peerDialTimeout,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: peerKeepalive, Timeout: keepaliveTimeout}),
		grpc.WithDisableRetry(),
		callstream.WithStatus(),
	)
}

// Close ends the calls of and to the other nodes. It blocks while a connection ends; Client refuses meanwhile.
func (p *Peers) Close() error {
	p.mu.Lock()
	if !p.closed {
		close(p.stopping)
	}
	p.closed = true
	conns := p.conns
	p.conns = nil
	p.mu.Unlock()
	var errs []error
	for _, c := range conns {
		errs = append(errs, c.calls.Close(), c.grpc.Close())
	}
	for _, server := range p.servers {
		server.Stop()
	}
	return errors.Join(errs...)
}

// errBusy refuses a call of another node whose request was not read.
func errBusy(message string, retryAfter time.Duration) *api.Error {
	return api.Errorf(perdurev1.Reason_REASON_OVERLOADED, "calls between nodes: %s", message).With("bound", "peer").
		WithRetryAfterMS(retryAfter.Milliseconds())
}
