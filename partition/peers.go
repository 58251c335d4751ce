package partition

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

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
// peer port secures them; what arrives here is from a member of the cluster.
type peers struct {
	mux    *transport.Mux
	server *grpc.Server

	mu     sync.Mutex
	closed bool
	conns  map[string]*grpc.ClientConn
}

func newPeers(mux *transport.Mux) *peers {
	return &peers{mux: mux, conns: map[string]*grpc.ClientConn{}}
}

// serve answers the other nodes. It returns at once.
func (p *peers) serve(service commandv1.PeersServer) {
	p.server = grpc.NewServer(
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
