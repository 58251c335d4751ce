package rpc

import (
	"maps"
	"net"
	"slices"
	"sync"
)

// lobby is a listener that knows its connections, and which of them have not said a word yet. A server
// that stops in order waits for every connection to finish; from the silent ones (a probe of the port, a
// client that connects ahead of need) nothing is to be expected, and they are sent away.
type lobby struct {
	net.Listener

	mu     sync.Mutex
	guests map[*guest]bool // the value says that it has spoken
	closed bool
}

func listen(addr string) (*lobby, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &lobby{Listener: l, guests: map[*guest]bool{}}, nil
}

// Accept implements net.Listener.
func (l *lobby) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	g := &guest{Conn: c, in: l}
	l.mu.Lock()
	l.guests[g] = false
	closed := l.closed
	l.mu.Unlock()
	if closed {
		_ = g.Close() // the server finds out at its first read
	}
	return g, nil
}

// dismiss closes the connections that have not said anything, now and from now on.
func (l *lobby) dismiss() {
	l.mu.Lock()
	l.closed = true
	silent := maps.Clone(l.guests)
	l.mu.Unlock()
	for g, spoke := range silent {
		if !spoke {
			_ = g.Close() // nothing was written to it
		}
	}
}

// evict closes every connection.
func (l *lobby) evict() {
	l.mu.Lock()
	all := slices.Collect(maps.Keys(l.guests))
	l.mu.Unlock()
	for _, g := range all {
		_ = g.Close() // whoever is at the other end has had the time to finish
	}
}

// guest is one connection of a lobby.
type guest struct {
	net.Conn
	in    *lobby
	spoke sync.Once
}

// Read implements net.Conn.
func (g *guest) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	if n > 0 {
		g.spoke.Do(func() {
			g.in.mu.Lock()
			defer g.in.mu.Unlock()
			if _, here := g.in.guests[g]; here {
				g.in.guests[g] = true
			}
		})
	}
	return n, err
}

// Close implements net.Conn.
func (g *guest) Close() error {
	g.in.mu.Lock()
	delete(g.in.guests, g)
	g.in.mu.Unlock()
	return g.Conn.Close()
}
