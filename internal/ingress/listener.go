package ingress

import (
	"container/list"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// ListenerOptions are the bounds of a Listener.
type ListenerOptions struct {
	// Max bounds the connections, MaxPerAddress those from one address (a host, without the port).
	Max, MaxPerAddress int
	// First is how many bytes a caller must send before the server gets the connection, FirstTimeout the timeout
	// for them.
	First        int
	FirstTimeout time.Duration
	// Refused is called for each connection that was closed because there were too many, or because it was
	// silent. It must not block.
	Refused func(why string)
}

// Why a Listener closed a connection.
const (
	RefusedFull    = "full"    // every connection has calls under way
	RefusedEvicted = "evicted" // the longest idle one was closed for a new one
	RefusedSilent  = "silent"  // it sent too little for too long
)

// Listener bounds the connections of a server by number. At the bound, a new connection replaces the longest
// idle one of the address that has the most, so idle and silent connections do not keep callers out. A
// connection that has not sent First bytes yet costs a goroutine and no resource of the server.
type Listener struct {
	raw  net.Listener
	opts ListenerOptions

	ready   chan *Peer
	closing chan struct{}
	wg      sync.WaitGroup

	mu        sync.Mutex
	failed    error
	peers     map[*Peer]struct{}
	addresses map[string]*address
	draining  bool
	closed    bool
}

// address is who connects.
type address struct {
	peers int
	idle  *list.List // of *Peer, the longest idle first
}

// Listen opens a port.
func Listen(addr string, opts ListenerOptions) (*Listener, error) {
	raw, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	l := &Listener{raw: raw, opts: opts, ready: make(chan *Peer), closing: make(chan struct{}), peers: map[*Peer]struct{}{}, addresses: map[string]*address{}}
	l.wg.Add(1)
	go l.accepting()
	return l, nil
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return l.raw.Addr() }

// Connections is how many there are.
func (l *Listener) Connections() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.peers)
}

// Accept implements net.Listener: the next connection that has spoken.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case p := <-l.ready:
		return p, nil
	case <-l.closing:
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.failed != nil {
			return nil, l.failed
		}
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. It closes the connections that no server has got, too, and waits for the
// listener's goroutines.
func (l *Listener) Close() error {
	err := l.raw.Close()
	l.close(nil)
	l.CloseUnserved()
	l.wg.Wait()
	return err
}

func (l *Listener) close(failed error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed, l.failed = true, failed
		close(l.closing)
	}
}

// CloseUnserved closes the connections that the server has not got yet, now and from now on. An orderly stop need
// not wait for them.
func (l *Listener) CloseUnserved() {
	l.each(func(p *Peer) bool { return !p.served }, true)
}

// Evict closes every connection.
func (l *Listener) Evict() {
	l.each(func(*Peer) bool { return true }, false)
}

func (l *Listener) each(which func(*Peer) bool, draining bool) {
	l.mu.Lock()
	l.draining = l.draining || draining
	var out []*Peer
	for p := range l.peers {
		if which(p) {
			out = append(out, p)
		}
	}
	l.mu.Unlock()
	for _, p := range out {
		_ = p.Close() // nothing was written to it, or its time is over
	}
}

func (l *Listener) accepting() {
	defer l.wg.Done()
	pause := time.Duration(0)
	for {
		raw, err := l.raw.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				l.close(nil)
				return
			}
			// Out of file descriptors, as a rule: others may close some.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			l.evictOne("")
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-l.closing:
			}
			timer.Stop()
			continue
		}
		pause = 0
		if p := l.admit(raw); p != nil {
			l.wg.Add(1)
			go l.greet(p)
		}
	}
}

// admit returns a slot for a connection; nil if there is none.
func (l *Listener) admit(raw net.Conn) *Peer {
	p := &Peer{Conn: raw, in: l, host: raw.RemoteAddr().String()}
	if host, _, err := net.SplitHostPort(p.host); err == nil {
		p.host = host
	}
	l.mu.Lock()
	draining, of := l.draining, 0
	if a := l.addresses[p.host]; a != nil {
		of = a.peers
	}
	crowded, full := of >= l.opts.MaxPerAddress, len(l.peers) >= l.opts.Max
	l.mu.Unlock()
	switch {
	case draining:
		_ = raw.Close()
		return nil
	case crowded && !l.evictOne(p.host), !crowded && full && !l.evictOne(""):
		_ = raw.Close()
		l.refused(RefusedFull)
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.addresses[p.host]
	if a == nil {
		a = &address{idle: list.New()}
		l.addresses[p.host] = a
	}
	a.peers++
	p.idle = a.idle.PushBack(p)
	l.peers[p] = struct{}{}
	return p
}

func (l *Listener) refused(why string) {
	if l.opts.Refused != nil {
		l.opts.Refused(why)
	}
}

// evictOne closes the longest idle connection of a host, or of the one that has the most if host is empty; false if
// none is idle.
func (l *Listener) evictOne(host string) bool {
	l.mu.Lock()
	var most *address
	if host != "" {
		most = l.addresses[host]
	} else {
		for _, a := range l.addresses {
			if a.idle.Len() > 0 && (most == nil || a.peers > most.peers) {
				most = a
			}
		}
	}
	var p *Peer
	if most != nil && most.idle.Len() > 0 {
		p = most.idle.Front().Value.(*Peer)
	}
	l.mu.Unlock()
	if p == nil {
		return false
	}
	_ = p.Close() // it has been silent for longest
	l.refused(RefusedEvicted)
	return true
}

// greet waits until a caller has spoken.
func (l *Listener) greet(p *Peer) {
	defer l.wg.Done()
	first := make([]byte, l.opts.First)
	_ = p.Conn.SetReadDeadline(time.Now().Add(l.opts.FirstTimeout))
	n, err := io.ReadFull(p.Conn, first)
	if err != nil {
		if p.Close() == nil {
			l.refused(RefusedSilent)
		}
		return
	}
	_ = p.Conn.SetReadDeadline(time.Time{})
	p.first = first[:n]
	l.mu.Lock()
	p.served = !l.draining
	served := p.served
	l.mu.Unlock()
	if served {
		select {
		case l.ready <- p:
			return
		case <-l.closing:
		}
	}
	_ = p.Close()
}

// Peer is a connection of a Listener.
type Peer struct {
	net.Conn
	in    *Listener
	host  string
	first []byte // what was read of it and not passed on

	// Guarded by the listener's lock.
	idle   *list.Element // nil while busy or closed
	served bool
	closed bool
}

// Read implements net.Conn.
func (p *Peer) Read(b []byte) (int, error) {
	if len(p.first) > 0 {
		n := copy(b, p.first)
		p.first = p.first[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}

// SetBusy reports whether calls are under way on the connection: only idle ones are closed for others.
func (p *Peer) SetBusy(busy bool) {
	l := p.in
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.addresses[p.host]
	switch {
	case p.closed:
	case busy && p.idle != nil:
		a.idle.Remove(p.idle)
		p.idle = nil
	case !busy && p.idle == nil:
		p.idle = a.idle.PushBack(p)
	}
}

// Close implements net.Conn; closing again returns net.ErrClosed.
func (p *Peer) Close() error {
	l := p.in
	l.mu.Lock()
	if p.closed {
		l.mu.Unlock()
		return net.ErrClosed
	}
	p.closed = true
	delete(l.peers, p)
	a := l.addresses[p.host]
	if p.idle != nil {
		a.idle.Remove(p.idle)
		p.idle = nil
	}
	if a.peers--; a.peers == 0 {
		delete(l.addresses, p.host)
	}
	l.mu.Unlock()
	return p.Conn.Close()
}
