package testkit

import (
	"context"
	"net"
	"sync"
	"syscall"
	"time"
)

// Network connects the nodes of a test in memory: in a bubble of testing/synctest a goroutine that waits for a socket
// would stop virtual time. Its methods are safe for concurrent use.
type Network struct {
	mu        sync.Mutex
	listeners map[string]*memListener // by address
	conns     map[*memConn]struct{}
	lossy     map[link]bool
	refusing  map[link]bool
}

// latency is how long a write takes: without it a loop over the network would stop virtual time.
const latency = 100 * time.Microsecond

// link is a pair of hosts, the lesser first.
type link [2]string

func linkOf(a, b string) link { return link{min(a, b), max(a, b)} }

// NewNetwork is a network without hosts.
func NewNetwork() *Network {
	return &Network{listeners: map[string]*memListener{}, conns: map[*memConn]struct{}{}, lossy: map[link]bool{}, refusing: map[link]bool{}}
}

// Host is one node's end of a Network. Its addresses are host:port, with the host's name.
type Host struct {
	n    *Network
	name string
}

// Host returns the end of a host.
func (n *Network) Host(name string) *Host { return &Host{n, name} }

// Block loses everything sent between two hosts, without an error at either of them.
func (n *Network) Block(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lossy[linkOf(a, b)] = true
}

// Refuse blocks the connections between two hosts and refuses new ones, as a firewall does.
func (n *Network) Refuse(a, b string) {
	n.Block(a, b)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refusing[linkOf(a, b)] = true
}

// Open ends every Block and Refuse. It closes the connections that may have lost something.
func (n *Network) Open() {
	n.mu.Lock()
	lossy := n.lossy
	n.lossy, n.refusing = map[link]bool{}, map[link]bool{}
	n.mu.Unlock()
	n.cut(func(c *memConn) bool { return lossy[c.link] })
}

// Cut closes every connection between two hosts.
func (n *Network) Cut(a, b string) {
	n.cut(func(c *memConn) bool { return c.link == linkOf(a, b) })
}

// CutAll closes every connection.
func (n *Network) CutAll() { n.cut(func(*memConn) bool { return true }) }

// Conns is the number of open ends of connections.
func (n *Network) Conns() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.conns)
}

func (n *Network) cut(which func(*memConn) bool) {
	n.mu.Lock()
	var broken []*memConn
	for c := range n.conns {
		if which(c) {
			broken = append(broken, c)
		}
	}
	n.mu.Unlock()
	for _, c := range broken {
		_ = c.Close()
	}
}

func (n *Network) blocked(l link) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lossy[l]
}

// Listen listens at an address of the host.
func (h *Host) Listen(addr string) (net.Listener, error) {
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	if h.n.listeners[addr] != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Err: syscall.EADDRINUSE}
	}
	l := &memListener{n: h.n, host: h.name, addr: memAddr(addr), conns: make(chan net.Conn), done: make(chan struct{})}
	h.n.listeners[addr] = l
	return l, nil
}

// Dial connects to a listener. It blocks until the listener accepts or ctx ends.
func (h *Host) Dial(ctx context.Context, addr string) (net.Conn, error) {
	h.n.mu.Lock()
	l := h.n.listeners[addr]
	if l == nil || h.n.refusing[linkOf(h.name, l.host)] {
		h.n.mu.Unlock()
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	at := linkOf(h.name, l.host)
	h.n.mu.Unlock()
	if h.n.blocked(at) {
		<-ctx.Done() // no answer
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: ctx.Err()}
	}
	near, far := net.Pipe()
	out := &memConn{Conn: near, n: h.n, link: at, local: memAddr(h.name + ":0"), remote: l.addr}
	in := &memConn{Conn: far, n: h.n, link: at, local: l.addr, remote: out.local}
	h.n.mu.Lock()
	h.n.conns[out], h.n.conns[in] = struct{}{}, struct{}{}
	h.n.mu.Unlock()
	select {
	case l.conns <- in:
		return out, nil
	case <-l.done:
		_, _ = out.Close(), in.Close()
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	case <-ctx.Done():
		_, _ = out.Close(), in.Close()
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: ctx.Err()}
	}
}

type memAddr string

func (memAddr) Network() string  { return "tcp" }
func (a memAddr) String() string { return string(a) }

type memListener struct {
	n     *Network
	host  string
	addr  memAddr
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *memListener) Close() error {
	l.once.Do(func() {
		l.n.mu.Lock()
		delete(l.n.listeners, string(l.addr))
		l.n.mu.Unlock()
		close(l.done)
	})
	return nil
}

func (l *memListener) Addr() net.Addr { return l.addr }

// memConn is one end of a connection.
type memConn struct {
	net.Conn
	n             *Network
	link          link
	local, remote memAddr
}

func (c *memConn) LocalAddr() net.Addr  { return c.local }
func (c *memConn) RemoteAddr() net.Addr { return c.remote }

func (c *memConn) Write(b []byte) (int, error) {
	time.Sleep(latency)
	if c.n.blocked(c.link) {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *memConn) Close() error {
	c.n.mu.Lock()
	delete(c.n.conns, c)
	c.n.mu.Unlock()
	return c.Conn.Close()
}
