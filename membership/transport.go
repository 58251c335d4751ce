package membership

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"perdure/internal/clock"
)

// Bounds on streams, which any host that reaches the port can open.
const (
	maxStreams     = 64      // at once, inbound; one more replaces the oldest, of the host that has the most
	maxStreamBytes = 4 << 20 // read from one; a view of 1,000 members has less than 1 MiB
	// maxDial bounds a dial, so that a host that is down does not hold up the tries of others for long.
	maxDial = 2 * time.Second
)

var errStreamTooLong = fmt.Errorf("membership: a stream is longer than %d bytes", maxStreamBytes)

// gate is memberlist's transport with bounds on streams, and with an end: memberlist's own Shutdown leaves
// streams and dials to their time-outs.
type gate struct {
	*memberlist.NetTransport
	report *reporter
	drop   func(to string) bool
	in     chan net.Conn
	ctx    context.Context // of dials
	cancel context.CancelFunc
	quit   chan struct{} // closed when the listeners are
	wg     sync.WaitGroup
	once   sync.Once
	ended  error

	mu      sync.Mutex
	open    map[*stream]struct{}
	inbound int
	streams uint64 // so far
	closed  bool
}

// listen opens TCP and UDP on one port. Port 0 is tried again when UDP is taken on the port that TCP got.
func listen(bind netip.AddrPort, logger *log.Logger, report *reporter, drop func(string) bool) (*gate, error) {
	tries := 1
	if bind.Port() == 0 {
		tries = 10
	}
	var inner *memberlist.NetTransport
	var err error
	for range tries {
		inner, err = memberlist.NewNetTransport(&memberlist.NetTransportConfig{
			BindAddrs: []string{bind.Addr().String()},
			BindPort:  int(bind.Port()),
			Logger:    logger,
		})
		if err == nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("membership: gossip port %v: %w", bind, err)
	}
	g := &gate{
		NetTransport: inner,
		report:       report,
		drop:         drop,
		in:           make(chan net.Conn),
		quit:         make(chan struct{}),
		open:         make(map[*stream]struct{}),
	}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.wg.Add(1)
	go g.admit()
	return g, nil
}

// admit passes inbound streams on, as many as may be.
func (g *gate) admit() {
	defer g.wg.Done()
	for {
		select {
		case conn := <-g.NetTransport.StreamCh():
			s, evicted, err := g.track(conn, true)
			if err != nil { // the gate is closed
				_ = conn.Close()
				continue
			}
			if evicted != nil {
				g.report.refused(fmt.Sprintf("membership: %d streams are open already, the oldest gives way %s", maxStreams, memberlist.LogAddress(evicted.RemoteAddr())))
				_ = evicted.Close()
			}
			select {
			case g.in <- s:
			case <-g.ctx.Done():
				_ = s.Close()
			}
		case <-g.quit:
			return
		}
	}
}

// StreamCh implements memberlist.Transport.
func (g *gate) StreamCh() <-chan net.Conn { return g.in }

// DialTimeout implements memberlist.Transport.
func (g *gate) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return g.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// DialAddressTimeout implements memberlist.NodeAwareTransport. It ends early when the gate closes.
func (g *gate) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	if g.drop != nil && g.drop(a.Addr) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("dropped")}
	}
	conn, err := (&net.Dialer{Timeout: min(timeout, maxDial)}).DialContext(g.ctx, "tcp", a.Addr)
	if err != nil {
		return nil, err
	}
	s, _, err := g.track(conn, false)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return s, nil
}

// WriteToAddress implements memberlist.NodeAwareTransport.
func (g *gate) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	if g.drop != nil && g.drop(a.Addr) {
		return clock.System{}.Now(), nil // memberlist measures by the machine's
	}
	return g.NetTransport.WriteToAddress(b, a)
}

// Shutdown implements memberlist.Transport: nothing comes in any more, and streams are cut.
func (g *gate) Shutdown() error {
	g.once.Do(func() {
		g.cut()
		g.ended = g.NetTransport.Shutdown() // admit runs on: the listener may wait to hand over a stream
		close(g.quit)
		g.wg.Wait()
	})
	return g.ended
}

// discard is Shutdown for a gate that memberlist does not listen to: it takes the packets itself.
func (g *gate) discard() {
	g.wg.Add(1)
	go func() {
		defer g.wg.Done()
		for {
			select {
			case <-g.NetTransport.PacketCh():
			case <-g.quit:
				return
			}
		}
	}()
	_ = g.Shutdown()
}

// cut ends all streams and dials, and refuses new ones.
func (g *gate) cut() {
	g.cancel()
	g.mu.Lock()
	g.closed = true
	var open []*stream
	for s := range g.open {
		open = append(open, s)
	}
	g.mu.Unlock()
	for _, s := range open {
		_ = s.Close()
	}
}

// stream is one TCP connection of the gate.
type stream struct {
	net.Conn
	gate    *gate
	inbound bool
	number  uint64 // in the order in which they came
	left    int    // bytes that may still be read; one reader at a time
}

// track counts a stream in. If there are too many inbound ones, the caller closes the one that gives way.
func (g *gate) track(conn net.Conn, inbound bool) (s, evicted *stream, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, nil, net.ErrClosed
	}
	if inbound {
		if g.inbound >= maxStreams {
			evicted = g.crowding()
			delete(g.open, evicted)
			g.inbound--
		}
		g.inbound++
	}
	g.streams++
	s = &stream{Conn: conn, gate: g, inbound: inbound, number: g.streams, left: maxStreamBytes}
	g.open[s] = struct{}{}
	return s, evicted, nil
}

// crowding picks the oldest inbound stream of the host that has the most, so that one host's streams give way to each
// other first.
func (g *gate) crowding() (out *stream) {
	count := map[string]int{}
	for s := range g.open {
		if s.inbound {
			count[s.host()]++
		}
	}
	for s := range g.open {
		if !s.inbound {
			continue
		}
		n, most := count[s.host()], 0
		if out != nil {
			most = count[out.host()]
		}
		if n > most || n == most && s.number < out.number {
			out = s
		}
	}
	return out
}

// host is the address of the other end, without its port.
func (s *stream) host() string {
	addr := s.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return addr
}

// Read implements net.Conn.
func (s *stream) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, errStreamTooLong
	}
	n, err := s.Conn.Read(p[:min(len(p), s.left)])
	s.left -= n
	return n, err
}

// Close implements net.Conn.
func (s *stream) Close() error {
	s.gate.mu.Lock()
	if _, open := s.gate.open[s]; open {
		delete(s.gate.open, s)
		if s.inbound {
			s.gate.inbound--
		}
	}
	s.gate.mu.Unlock()
	return s.Conn.Close()
}
