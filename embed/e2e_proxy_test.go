package embed_test

import (
	"io"
	"net"
	"sync"
	"testing"
)

// proxy forwards between a worker and its node, on an address of its own, and simulates network faults: it
// breaks connections, refuses them, holds all bytes back, or drops one direction.
type proxy struct {
	t      *testing.T
	target string
	l      net.Listener
	wg     sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond
	conns   map[net.Conn]bool
	// refuse closes new connections. frozen holds back the bytes of both directions. deaf drops the node's
	// answers.
	refuse, frozen, deaf, closed bool
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, target: target, l: l, conns: map[net.Conn]bool{}}
	p.changed = sync.NewCond(&p.mu)
	p.wg.Add(1)
	go p.accept()
	t.Cleanup(func() {
		p.l.Close()
		p.set(func() { p.closed = true })
		p.cut()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.l.Addr().String() }

// set changes what the proxy does.
func (p *proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.changed.Broadcast()
}

// freeze lets nothing through any more, and keeps every connection open.
func (p *proxy) freeze() { p.set(func() { p.frozen = true }) }

// thaw lets everything through again, what was held back first.
func (p *proxy) thaw() { p.set(func() { p.frozen = false }) }

// deafen loses what the node answers.
func (p *proxy) deafen() { p.set(func() { p.deaf = true }) }

// heal makes the proxy transparent again for new connections.
func (p *proxy) heal() { p.set(func() { p.refuse, p.frozen, p.deaf = false, false, false }) }

// cut breaks every connection.
func (p *proxy) cut() {
	p.mu.Lock()
	conns := p.conns
	p.conns = map[net.Conn]bool{}
	p.changed.Broadcast()
	p.mu.Unlock()
	for c := range conns {
		c.Close()
	}
}

func (p *proxy) accept() {
	defer p.wg.Done()
	for {
		in, err := p.l.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		refuse := p.refuse || p.closed
		p.mu.Unlock()
		if refuse {
			in.Close()
			continue
		}
		out, err := net.Dial("tcp", p.target)
		if err != nil {
			in.Close()
			continue
		}
		p.mu.Lock()
		p.conns[in], p.conns[out] = true, true
		p.mu.Unlock()
		p.wg.Add(2)
		go p.pump(out, in, false)
		go p.pump(in, out, true)
	}
}

// pump carries one direction of a connection.
func (p *proxy) pump(to, from net.Conn, answers bool) {
	defer p.wg.Done()
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && p.mayPass(to, answers) {
			if _, werr := to.Write(buf[:n]); werr != nil {
				err = werr
			}
		}
		if err != nil {
			if err != io.EOF {
				return
			}
			p.mayPass(to, answers) // a frozen network does not carry an end either
			return
		}
	}
}

// mayPass waits while the proxy is frozen and says whether what is to be carried is not lost.
func (p *proxy) mayPass(to net.Conn, answers bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.frozen && !p.closed && p.conns[to] {
		p.changed.Wait()
	}
	return !(p.deaf && answers)
}
