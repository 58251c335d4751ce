package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"perdure/internal/certs"
	"perdure/internal/clock"
)

// Options of Listen.
type Options struct {
	// ClusterID and ServerID go into every handshake; 1 to 255 bytes each. A dialer with another
	// ClusterID is refused.
	ClusterID string
	ServerID  string
	// Advertise is the address other nodes dial, host:port; the listener's own if empty.
	Advertise string
	// Clock paces retries and bounds waits; nil for the machine's. Connections have deadlines by the machine's.
	Clock clock.Clock
	// Network makes the connections; nil for TCP.
	Network Network
	// Logger gets refusals and broken connections; nil for none.
	Logger hclog.Logger
	// TLS secures every connection when set. The one configuration serves both directions, so for
	// mutual TLS it needs Certificates, RootCAs, ClientCAs and ClientAuth. ServerName may stay empty: the
	// dialled host is used.
	TLS *tls.Config
	// HandshakeTimeout bounds the time from accept to answer, and of a dialler's wait for it; 5 s if 0.
	HandshakeTimeout time.Duration
	// MaxConns bounds the accepted connections past their handshake; further ones are refused as busy.
	// 4096 if 0.
	MaxConns int
	// MaxPending bounds the accepted connections still in their handshake. When it is reached, the Mux closes
	// the oldest of the address that has the most, so silent strangers cannot keep peers out. 256 if 0.
	MaxPending int
	// MaxStrangers bounds the accepted connections past their handshake of servers that are no members. When it is
	// reached the oldest of the address that has the most is closed. 256 if 0.
	MaxStrangers int
	// Member reports whether a server is a member of the cluster, as far as this node knows; nil takes every server
	// for one. It is asked in the handshake and must not block.
	Member func(serverID string) bool
	// OnPeerConnClosed is called when the other side ended a connection of a Raft group, or it broke. It is a
	// hint, not a proof of death (Raft also drops connections in normal operation): Probe checks. It is
	// called on the goroutine that was reading or writing and must not block.
	OnPeerConnClosed func(peer Peer)
	// Removed reports whether a server was removed and may not connect to groups; nil refuses none. The
	// handshake of each such connection calls it once. It must not block.
	Removed func(serverID string) bool
}

// Network makes the connections of a Mux. A simulator replaces TCP with one in memory.
type Network interface {
	Listen(addr string) (net.Listener, error)
	// Dial connects within ctx. Its error is syscall.ECONNREFUSED if the host is up and no process listens.
	Dial(ctx context.Context, addr string) (net.Conn, error)
}

type tcp struct{}

func (tcp) Listen(addr string) (net.Listener, error) { return net.Listen("tcp", addr) }

func (tcp) Dial(ctx context.Context, addr string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
}

const (
	defaultHandshakeTimeout = 5 * time.Second
	defaultMaxConns         = 4096
	defaultMaxPending       = 256
	defaultMaxStrangers     = 256
	acceptBacklog           = 16 // handed-over connections waiting for Accept, per group or service
)

// perServer bounds the accepted connections past their handshake of one server.
func (o *Options) perServer() int { return o.MaxConns - o.MaxConns/4 }

// ErrClosed is returned by operations on a closed Mux, group or service. It is net.ErrClosed.
var ErrClosed = net.ErrClosed

// Mux is a node's peer port. All methods are safe for concurrent use.
type Mux struct {
	opts  Options
	log   hclog.Logger
	clock clock.Clock
	ln    net.Listener
	addr  peerAddr

	// ctx ends when the Mux closes, and with it every dial under way.
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	endpoints map[endpointKey]*endpoint
	pending   map[net.Conn]uint64 // value: order of arrival
	arrivals  uint64
	// reported is the time of the last logged refusal, unreported the number of later ones that were not
	// logged.
	reported      time.Time
	unreported    int
	accepted      int            // tracked connections past their handshake
	servers       map[string]int // these by the other server; see perServer
	strangerConns strangerConns
	stats         Stats

	// members and strangers bound the bytes that Raft connections receive at a time.
	members, strangers *permits
}

// Stats counts since Listen, and what is open now.
type Stats struct {
	Accepted uint64 // handshakes answered with yes
	Refused  uint64 // handshakes answered with no, broken off or timed out
	Dialled  uint64 // own dials answered with yes
	Evicted  uint64 // connections closed for others: in their handshake, or of servers that are no members
	Open     int    // accepted connections open now
	Pending  int    // accepted connections in their handshake now
	// Strangers are the open connections of servers that are no members.
	Strangers int
	// Receiving are the bytes granted to large requests of groups that are being received.
	Receiving int64
}

type endpointKey struct {
	kind    Kind
	group   uint32
	service string
}

func (k endpointKey) String() string {
	if k.kind == KindGroup {
		return fmt.Sprintf("group %d", k.group)
	}
	return fmt.Sprintf("service %q", k.service)
}

// peerAddr is the advertised address as a net.Addr.
type peerAddr string

func (a peerAddr) Network() string { return "tcp" }
func (a peerAddr) String() string  { return string(a) }

// Listen opens the port. Connections are refused (CodeUnknownGroup, CodeUnknownService) until Raft and
// Service open what they name.
func Listen(addr string, opts Options) (*Mux, error) {
	for name, id := range map[string]string{"cluster id": opts.ClusterID, "server id": opts.ServerID} {
		if len(id) == 0 || len(id) > 255 {
			return nil, fmt.Errorf("transport: %s of %d bytes, 1 to 255 expected", name, len(id))
		}
	}
	if len(opts.Advertise) > 255 {
		return nil, fmt.Errorf("transport: advertised address of %d bytes, at most 255 fit", len(opts.Advertise))
	}
	if opts.Logger == nil {
		opts.Logger = hclog.NewNullLogger()
	}
	if opts.HandshakeTimeout <= 0 {
		opts.HandshakeTimeout = defaultHandshakeTimeout
	}
	if opts.MaxConns <= 0 {
		opts.MaxConns = defaultMaxConns
	}
	if opts.MaxPending <= 0 {
		opts.MaxPending = defaultMaxPending
	}
	if opts.MaxStrangers <= 0 {
		opts.MaxStrangers = defaultMaxStrangers
	}
	if opts.Clock == nil {
		opts.Clock = clock.System{}
	}
	if opts.Network == nil {
		opts.Network = tcp{}
	}
	ln, err := opts.Network.Listen(addr)
	if err != nil {
		return nil, err
	}
	m := &Mux{
		opts:      opts,
		log:       opts.Logger,
		clock:     opts.Clock,
		ln:        ln,
		addr:      peerAddr(opts.Advertise),
		endpoints: map[endpointKey]*endpoint{},
		pending:   map[net.Conn]uint64{},
		servers:   map[string]int{},
		members:   newPermits(opts.Clock, memberMedium, memberLarge),
		strangers: newPermits(opts.Clock, strangerMedium, strangerLarge),
	}
	if m.addr == "" {
		m.addr = peerAddr(ln.Addr().String())
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.wg.Add(1)
	go m.acceptLoop()
	return m, nil
}

// Addr is the advertised address.
func (m *Mux) Addr() net.Addr { return m.addr }

// ListenAddr is the address the port is bound to.
func (m *Mux) ListenAddr() net.Addr { return m.ln.Addr() }

// Stats returns the counters.
func (m *Mux) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.stats
	s.Open, s.Pending, s.Strangers = m.accepted, len(m.pending), len(m.strangerConns.conns)
	s.Receiving = m.members.held.Load() + m.strangers.held.Load()
	return s
}

// Raft opens a group for incoming connections and returns its stream layer. Closing the layer closes all
// connections of the group, dialled and accepted, and the group may then be opened again. Opening a group
// that is open is a mistake in the program and panics. On a closed Mux the layer is closed from the
// start.
func (m *Mux) Raft(g uint32) raft.StreamLayer {
	return &raftLayer{m.open(endpointKey{kind: KindGroup, group: g})}
}

// Service opens a named service (1 to 255 bytes) and returns its listener; as Raft otherwise.
func (m *Mux) Service(name string) net.Listener {
	if len(name) == 0 || len(name) > 255 {
		panic(fmt.Sprintf("transport: service name of %d bytes, 1 to 255 expected", len(name)))
	}
	return m.open(endpointKey{kind: KindService, service: name})
}

func (m *Mux) open(key endpointKey) *endpoint {
	e := &endpoint{mux: m, key: key, queue: make(chan *Conn, acceptBacklog), done: make(chan struct{}), conns: map[*Conn]struct{}{}}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		e.closed = true
		close(e.done)
		return e
	}
	if m.endpoints[key] != nil {
		panic(fmt.Sprintf("transport: %s is open already", key))
	}
	m.endpoints[key] = e
	return e
}

// Dial connects to a service of the node at addr. It blocks until that node answered, ctx ends or
// HandshakeTimeout passed. The error is a *RefusedError if the node refused. The connection is open until
// either side closes it or the Mux closes.
func (m *Mux) Dial(ctx context.Context, addr, service string) (net.Conn, error) {
	if len(service) == 0 {
		return nil, errors.New("transport: the service has no name")
	}
	c, err := m.dial(ctx, addr, hello{kind: KindService, service: service}, m.dialled())
	if err != nil {
		return nil, err // not a nil *Conn in a non-nil interface
	}
	return c, nil
}

// Probe asks whether a node of this cluster answers at addr, and returns its server id.
func (m *Mux) Probe(ctx context.Context, addr string) (serverID string, err error) {
	c, err := m.dial(ctx, addr, hello{kind: KindProbe}, m.dialled())
	if err != nil {
		return "", err
	}
	return c.peer.ServerID, c.Close()
}

// dialled is the owner of connections that were dialled for no group.
func (m *Mux) dialled() *endpoint {
	key := endpointKey{kind: KindProbe}
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.endpoints[key]
	if e == nil {
		e = &endpoint{mux: m, key: key, done: make(chan struct{}), conns: map[*Conn]struct{}{}, closed: m.closed}
		if m.closed {
			close(e.done)
			return e
		}
		m.endpoints[key] = e
	}
	return e
}

// dial connects, shakes hands and tracks the connection under e.
func (m *Mux) dial(ctx context.Context, addr string, h hello, e *endpoint) (*Conn, error) {
	if err := e.err(); err != nil {
		return nil, err
	}
	h.cluster, h.server, h.address = m.opts.ClusterID, m.opts.ServerID, m.addr.String()
	first, err := h.encode()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, m.opts.HandshakeTimeout)
	defer cancel()
	defer context.AfterFunc(m.ctx, cancel)()
	raw, err := m.opts.Network.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	// From here on the context acts by closing the connection.
	unhook := context.AfterFunc(ctx, func() { _ = raw.Close() })
	code, text, conn, err := m.shakeOut(ctx, raw, addr, first)
	if !unhook() && err == nil {
		err = ctx.Err()
	}
	if err == nil && code != CodeOK {
		err = &RefusedError{Addr: addr, Code: code, Text: text}
	}
	if err != nil {
		_ = raw.Close()
		if ctx.Err() != nil {
			return nil, fmt.Errorf("transport: dial %s: %w", addr, context.Cause(ctx))
		}
		var refused *RefusedError
		if errors.As(err, &refused) {
			return nil, err
		}
		return nil, fmt.Errorf("transport: dial %s: %w", addr, err)
	}
	c := &Conn{Conn: conn, owner: e, peer: Peer{ServerID: text, Addr: addr, Group: h.group, Kind: h.kind, Dialled: true}}
	if err := e.track(c); err != nil {
		_ = raw.Close()
		return nil, err
	}
	m.mu.Lock()
	m.stats.Dialled++
	m.mu.Unlock()
	return c, nil
}

// shakeOut is the dialling side of TLS and handshake. When ctx ends, raw is closed under it.
func (m *Mux) shakeOut(ctx context.Context, raw net.Conn, addr string, first []byte) (Code, string, net.Conn, error) {
	conn := raw
	if m.opts.TLS != nil {
		cfg := m.opts.TLS.Clone()
		if cfg.ServerName == "" {
			host, _, err := net.SplitHostPort(addr)
			if err != nil {
				return 0, "", nil, err
			}
			cfg.ServerName = host
		}
		tc := tls.Client(raw, cfg)
		if err := tc.HandshakeContext(ctx); err != nil {
			return 0, "", nil, err
		}
		// A configuration that verifies by itself gets names only, not IP addresses.
		if err := certs.VerifyPeerHost(tc.ConnectionState(), cfg.ServerName); err != nil {
			return 0, "", nil, err
		}
		conn = tc
	}
	if _, err := conn.Write(first); err != nil {
		return 0, "", nil, err
	}
	code, text, err := readAnswer(conn)
	return code, text, conn, err
}

// Close closes the port and every connection, and waits for the goroutines of the Mux.
func (m *Mux) Close() error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		m.wg.Wait()
		return nil
	}
	m.closed = true
	var es []*endpoint
	for _, e := range m.endpoints {
		es = append(es, e)
	}
	for c := range m.pending {
		_ = c.Close()
	}
	m.mu.Unlock()
	m.cancel()
	err := m.ln.Close()
	for _, e := range es {
		_ = e.Close()
	}
	m.wg.Wait()
	return err
}
