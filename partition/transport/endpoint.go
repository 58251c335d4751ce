package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// endpoint is what a connection can be for: a group or a service. It is the net.Listener of its accepted
// connections and owns the dialled ones too.
type endpoint struct {
	mux   *Mux
	key   endpointKey
	queue chan *Conn
	done  chan struct{} // closed by Close

	mu     sync.Mutex
	closed bool
	conns  map[*Conn]struct{}
}

var _ net.Listener = (*endpoint)(nil)

// Accept returns the next connection that named this endpoint.
func (e *endpoint) Accept() (net.Conn, error) {
	select {
	case c := <-e.queue:
		return c, nil
	case <-e.done:
		return nil, ErrClosed
	}
}

// Addr is the advertised address of the node.
func (e *endpoint) Addr() net.Addr { return e.mux.addr }

// Close refuses further connections and closes those there are.
func (e *endpoint) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	close(e.done)
	conns := make([]*Conn, 0, len(e.conns))
	for c := range e.conns {
		conns = append(conns, c)
	}
	e.mu.Unlock()
	e.mux.mu.Lock()
	if e.mux.endpoints[e.key] == e {
		delete(e.mux.endpoints, e.key)
	}
	e.mux.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
	return nil
}

func (e *endpoint) err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return ErrClosed
	}
	return nil
}

// track makes Close close c.
func (e *endpoint) track(c *Conn) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return ErrClosed
	}
	e.conns[c] = struct{}{}
	return nil
}

func (e *endpoint) untrack(c *Conn) {
	e.mu.Lock()
	delete(e.conns, c)
	e.mu.Unlock()
}

// deliver passes c to Accept. It blocks for timeout at most, and returns false if Accept did not take c.
func (e *endpoint) deliver(c *Conn, timeout time.Duration) bool {
	late, stop := e.mux.clock.After(timeout)
	defer stop()
	select {
	case e.queue <- c:
		return true
	case <-e.done:
	case <-late:
	}
	return false
}

// Peer describes the other end of a connection, from its handshake.
type Peer struct {
	ServerID string
	Addr     string // the address dialled, or the one the dialler advertises
	Group    uint32 // meaningful when Kind is KindGroup
	Kind     Kind
	Dialled  bool // by this node
	// Stranger reports that the server of an accepted connection was no member at the handshake.
	Stranger bool
}

// Conn is a connection past its handshake.
type Conn struct {
	net.Conn
	owner   *endpoint
	peer    Peer
	counted bool
	meter   *meter // of an accepted connection of a group

	closed   atomic.Bool
	notified atomic.Bool
}

// PeerOf returns the other end of a connection that a Mux dialled or accepted; false for any other.
func PeerOf(c net.Conn) (Peer, bool) {
	if c, ok := c.(*Conn); ok {
		return c.peer, true
	}
	return Peer{}, false
}

// Close closes the connection; closing it again does nothing.
func (c *Conn) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	c.owner.untrack(c)
	if c.counted {
		c.owner.mux.released(c)
	}
	if c.meter != nil {
		c.meter.close()
	}
	return c.Conn.Close()
}

// Read implements net.Conn. On an accepted connection of a group it waits, for permitTimeout at most, while too many
// large requests are being received.
func (c *Conn) Read(b []byte) (int, error) {
	if c.meter != nil {
		if err := c.meter.before(); err != nil {
			c.owner.mux.refused(c.RemoteAddr(), fmt.Errorf("server %s, group %d: %w", c.peer.ServerID, c.peer.Group, err))
			return 0, err
		}
	}
	n, err := c.Conn.Read(b)
	if c.meter != nil {
		c.meter.took(b[:n])
	}
	if err != nil {
		c.broke(err)
	}
	return n, err
}

// Write implements net.Conn.
func (c *Conn) Write(b []byte) (int, error) {
	if c.meter != nil {
		c.meter.answered()
	}
	n, err := c.Conn.Write(b)
	if err != nil {
		c.broke(err)
	}
	return n, err
}

// broke reports the end of a group's connection that this node did not bring about. A time-out is not
// one: nothing distinguishes a host that vanished from a slow one. The end of this node's own group is not either: it ends one
// side of a connection to itself before the other.
func (c *Conn) broke(err error) {
	hook := c.owner.mux.opts.OnPeerConnClosed
	if hook == nil || c.peer.Kind != KindGroup || c.closed.Load() || c.owner.err() != nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return
	}
	if !c.notified.Swap(true) {
		hook(c.peer)
	}
}

// raftLayer adds Raft's way of dialling.
type raftLayer struct{ *endpoint }

var _ raft.StreamLayer = (*raftLayer)(nil)

// Dial connects to the same group on another node, or on this one.
func (l *raftLayer) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	if string(address) == l.mux.addr.String() {
		return l.dialSelf(timeout)
	}
	ctx := l.mux.ctx
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	addr, target, _ := strings.Cut(string(address), targetMark)
	c, err := l.mux.dial(ctx, addr, hello{kind: KindGroup, group: l.key.group, target: target}, l.endpoint)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// dialSelf connects the group to itself without the network: the advertised address need not be one at
// which a node reaches itself.
func (l *raftLayer) dialSelf(timeout time.Duration) (net.Conn, error) {
	if timeout <= 0 {
		timeout = l.mux.opts.HandshakeTimeout
	}
	near, far := net.Pipe()
	peer := Peer{ServerID: l.mux.opts.ServerID, Addr: l.mux.addr.String(), Group: l.key.group, Kind: KindGroup}
	out, in := &Conn{Conn: near, owner: l.endpoint, peer: peer}, &Conn{Conn: far, owner: l.endpoint, peer: peer}
	out.peer.Dialled = true
	if err := l.track(out); err != nil {
		return nil, errors.Join(err, near.Close(), far.Close())
	}
	if err := l.track(in); err != nil {
		return nil, errors.Join(err, out.Close(), far.Close())
	}
	if !l.deliver(in, timeout) {
		return nil, errors.Join(ErrClosed, out.Close(), in.Close())
	}
	return out, nil
}
