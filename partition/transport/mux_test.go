package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"perdure/internal/testkit"
)

// testTimeout bounds a test's wait for an event that must come. It is long because only a failure uses it up.
var testTimeout = testkit.Scaled(time.Minute)

// eventually waits for a state and prints the last one seen.
func eventually(t testing.TB, what string, state func() (string, bool)) {
	t.Helper()
	testkit.EventuallySeen(t, testTimeout, what, state)
}

func listen(t testing.TB, opts Options) *Mux {
	t.Helper()
	if opts.ClusterID == "" {
		opts.ClusterID = "cluster"
	}
	if opts.ServerID == "" {
		opts.ServerID = "server"
	}
	if opts.HandshakeTimeout == 0 {
		opts.HandshakeTimeout = testTimeout // a busy machine may need long
	}
	m, err := Listen("127.0.0.1:0", opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// echo answers every line with the name of the listener it came in by.
func echo(l net.Listener, name string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			buf := make([]byte, 1)
			for {
				if _, err := c.Read(buf); err != nil {
					return
				}
				if _, err := fmt.Fprintf(c, "%s%c\n", name, buf[0]); err != nil {
					return
				}
			}
		}()
	}
}

func ask(t testing.TB, c net.Conn, want string) {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(testTimeout))
	if _, err := c.Write([]byte("?")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, len(want))
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != want {
		t.Fatalf("%q, %v; want %q", buf, err, want)
	}
	_ = c.SetDeadline(time.Time{})
}

func wantRefused(t testing.TB, err error, code Code) {
	t.Helper()
	var no *RefusedError
	if !errors.As(err, &no) || no.Code != code {
		t.Fatalf("%v, want refusal %q", err, code)
	}
}

func TestDemultiplexing(t *testing.T) {
	a := listen(t, Options{ServerID: "a"})
	b := listen(t, Options{ServerID: "b"})
	addr := b.Addr().String()
	layers := map[uint32]raft.StreamLayer{}
	for _, g := range []uint32{0, 1, 1<<32 - 1} {
		layers[g] = a.Raft(g)
		go echo(b.Raft(g), fmt.Sprintf("group %d", g))
	}
	go echo(b.Service("ship"), "ship")
	go echo(b.Service("forward"), "forward")
	var wg sync.WaitGroup
	for range 10 {
		for g, l := range layers {
			wg.Go(func() {
				c, err := l.Dial(raft.ServerAddress(addr), testTimeout)
				if err != nil {
					t.Error(err)
					return
				}
				ask(t, c, fmt.Sprintf("group %d?\n", g))
				ask(t, c, fmt.Sprintf("group %d?\n", g))
				if p, ok := PeerOf(c); !ok || p != (Peer{ServerID: "b", Addr: addr, Group: g, Kind: KindGroup, Dialled: true}) {
					t.Errorf("peer %+v", p)
				}
			})
		}
		for _, s := range []string{"ship", "forward"} {
			wg.Go(func() {
				c, err := a.Dial(context.Background(), addr, s)
				if err != nil {
					t.Error(err)
					return
				}
				ask(t, c, s+"?\n")
				_ = c.Close()
				_ = c.Close()
			})
		}
	}
	wg.Wait()
	if s := b.Stats(); s.Accepted != 50 || s.Refused != 0 {
		t.Errorf("%+v", s)
	}
	id, err := a.Probe(context.Background(), addr)
	if err != nil || id != "b" {
		t.Errorf("probe: %q, %v", id, err)
	}
}

func TestAcceptedPeer(t *testing.T) {
	a := listen(t, Options{ServerID: "a", Advertise: "a.example:7402"})
	b := listen(t, Options{ServerID: "b"})
	l := b.Raft(4)
	c, err := a.Raft(4).Dial(raft.ServerAddress(b.Addr().String()), testTimeout)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if p, ok := PeerOf(in); !ok || p != (Peer{ServerID: "a", Addr: "a.example:7402", Group: 4, Kind: KindGroup}) {
		t.Errorf("peer %+v", p)
	}
	if _, ok := PeerOf(&net.TCPConn{}); ok {
		t.Error("a foreign connection has a peer")
	}
	if l.Addr().String() != b.ListenAddr().String() || l.Addr().Network() != "tcp" {
		t.Errorf("layer address %v", l.Addr())
	}
}

func TestRefusals(t *testing.T) {
	ctx := context.Background()
	a := listen(t, Options{ServerID: "a"})
	stranger := listen(t, Options{ClusterID: "other"})
	b := listen(t, Options{ServerID: "b"})
	addr := b.Addr().String()
	go echo(b.Raft(1), "one")
	go echo(b.Service("ship"), "ship")
	steady, err := a.Raft(1).Dial(raft.ServerAddress(addr), testTimeout)
	if err != nil {
		t.Fatal(err)
	}
	ask(t, steady, "one?\n")

	_, err = a.Raft(2).Dial(raft.ServerAddress(addr), testTimeout)
	wantRefused(t, err, CodeUnknownGroup)
	if !strings.Contains(err.Error(), "group 2") {
		t.Errorf("the refusal does not name the group: %v", err)
	}
	_, err = a.Dial(ctx, addr, "nothing")
	wantRefused(t, err, CodeUnknownService)
	_, err = stranger.Raft(1).Dial(raft.ServerAddress(addr), testTimeout)
	wantRefused(t, err, CodeForeignCluster)
	_, err = stranger.Probe(ctx, addr)
	wantRefused(t, err, CodeForeignCluster)
	if _, err = a.Dial(ctx, addr, ""); err == nil {
		t.Error("no service, accepted")
	}
	if _, err = a.Dial(ctx, addr, strings.Repeat("s", 256)); err == nil {
		t.Error("a name of 256 bytes, accepted")
	}

	for name, send := range map[string]string{
		"http":    "GET / HTTP/1.1\r\nHost: x\r\n\r\n" + strings.Repeat("more ", 1000),
		"nulls":   strings.Repeat("\x00", 5000),
		"version": "PRDU\x09\x00\x00",
		"body":    "PRDU\x01\x00\x05\x01\x00\x00\x00\x00",
	} {
		raw, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.SetDeadline(time.Now().Add(testTimeout))
		if _, err := io.WriteString(raw, send); err != nil {
			t.Logf("%s: write: %v", name, err)
		}
		code, text, err := readAnswer(raw)
		if err != nil || (code != CodeBadHandshake && code != CodeUnknownVersion) {
			t.Errorf("%s: %v %q %v", name, code, text, err)
		}
		_ = raw.Close()
	}
	eventually(t, "refusals are counted", func() (string, bool) {
		s := b.Stats()
		return fmt.Sprintf("%+v", s), s.Refused == 8 && s.Pending == 0
	})
	// Nothing of it disturbed the others.
	ask(t, steady, "one?\n")
	c, err := a.Dial(ctx, addr, "ship")
	if err != nil {
		t.Fatal(err)
	}
	ask(t, c, "ship?\n")
	eventually(t, "pending ends", func() (string, bool) { n := b.Stats().Pending; return fmt.Sprint(n), n == 0 })
}

// TestSilentStrangers: connections that send nothing, or too slowly, are closed in time and do not keep peers
// out.
func TestSilentStrangers(t *testing.T) {
	t.Parallel() // it waits most of the time
	a := listen(t, Options{ServerID: "a"})
	b := listen(t, Options{ServerID: "b", HandshakeTimeout: 3 * time.Second, MaxPending: 8})
	addr := b.Addr().String()
	go echo(b.Service("ship"), "ship")
	var silent []net.Conn
	for range 40 {
		raw, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer raw.Close()
		silent = append(silent, raw)
		if len(silent)%10 == 0 {
			c, err := a.Dial(context.Background(), addr, "ship")
			if err != nil {
				t.Fatalf("kept out by %d silent connections: %v", len(silent), err)
			}
			ask(t, c, "ship?\n")
		}
		if n := b.Stats().Pending; n > 8 {
			t.Fatalf("%d pending", n)
		}
	}
	// One that drips bytes gets no more time than the others.
	drip := silent[39]
	start := time.Now()
	for i := 0; ; i++ {
		_ = drip.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if _, err := drip.Read(make([]byte, 1)); err != nil && !isTimeout(err) {
			break
		}
		_, _ = drip.Write([]byte(helloMagic)[i%4 : i%4+1])
		if time.Since(start) > testTimeout {
			t.Fatal("still open")
		}
	}
	for n, c := range silent {
		_ = c.SetReadDeadline(time.Now().Add(testTimeout))
		if _, err := c.Read(make([]byte, 1)); err == nil || isTimeout(err) {
			t.Fatalf("silent connection %d is still open: %v", n, err)
		}
	}
	eventually(t, "pending ends", func() (string, bool) { n := b.Stats().Pending; return fmt.Sprint(n), n == 0 })
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

func TestMaxConns(t *testing.T) {
	a := listen(t, Options{ServerID: "a"})
	b := listen(t, Options{ServerID: "b", MaxConns: 3})
	go echo(b.Service("ship"), "ship")
	var conns []net.Conn
	for range 3 {
		c, err := a.Dial(context.Background(), b.Addr().String(), "ship")
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	_, err := a.Dial(context.Background(), b.Addr().String(), "ship")
	wantRefused(t, err, CodeBusy)
	for _, c := range conns {
		ask(t, c, "ship?\n")
	}
	_ = conns[0].Close()
	eventually(t, "room again", func() (string, bool) {
		c, err := a.Dial(context.Background(), b.Addr().String(), "ship")
		if err != nil {
			return err.Error(), false
		}
		ask(t, c, "ship?\n")
		return "", true
	})
}

// TestNoAccept: an endpoint that does not accept holds a bounded number of connections for a bounded time,
// and others still work.
func TestNoAccept(t *testing.T) {
	t.Parallel() // it waits most of the time
	a := listen(t, Options{ServerID: "a"})
	b := listen(t, Options{ServerID: "b", HandshakeTimeout: 2 * time.Second})
	_ = b.Raft(1)
	go echo(b.Service("ship"), "ship")
	l := a.Raft(1)
	var conns []net.Conn
	for range 2 * acceptBacklog {
		c, err := l.Dial(raft.ServerAddress(b.Addr().String()), testTimeout)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	c, err := a.Dial(context.Background(), b.Addr().String(), "ship")
	if err != nil {
		t.Fatal(err)
	}
	ask(t, c, "ship?\n")
	var closed atomic.Int64
	var wg sync.WaitGroup
	for _, c := range conns {
		wg.Go(func() {
			_, _ = c.Read(make([]byte, 1)) // nothing is ever sent
			closed.Add(1)
		})
	}
	// Connections above the bound are closed, those that wait are held, and the one of the service is open.
	eventually(t, "those that are too many are closed", func() (string, bool) {
		n, open := closed.Load(), b.Stats().Open
		return fmt.Sprintf("%d closed, %d open", n, open), n == acceptBacklog && open == acceptBacklog+1
	})
	ask(t, c, "ship?\n")
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

func TestCloseGroup(t *testing.T) {
	a := listen(t, Options{ServerID: "a"})
	b := listen(t, Options{ServerID: "b"})
	addr := raft.ServerAddress(b.Addr().String())
	la, lb := a.Raft(1), b.Raft(1)
	other := b.Raft(2)
	go echo(lb, "one")
	go echo(other, "two")
	one, err := la.Dial(addr, testTimeout)
	if err != nil {
		t.Fatal(err)
	}
	two, err := a.Raft(2).Dial(addr, testTimeout)
	if err != nil {
		t.Fatal(err)
	}
	ask(t, one, "one?\n")
	if err := lb.Close(); err != nil {
		t.Fatal(err)
	}
	if err := lb.Close(); err != nil {
		t.Fatal(err)
	}
	_ = one.SetReadDeadline(time.Now().Add(testTimeout))
	if _, err := one.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Fatalf("the group's connection is open: %v", err)
	}
	if _, err := lb.Accept(); !errors.Is(err, ErrClosed) {
		t.Fatalf("Accept: %v", err)
	}
	if _, err := lb.Dial(addr, testTimeout); !errors.Is(err, ErrClosed) {
		t.Fatalf("Dial: %v", err)
	}
	_, err = la.Dial(addr, testTimeout)
	wantRefused(t, err, CodeUnknownGroup)
	ask(t, two, "two?\n")

	// Opened again, as when a group is rebuilt in place.
	go echo(b.Raft(1), "new")
	c, err := la.Dial(addr, testTimeout)
	if err != nil {
		t.Fatal(err)
	}
	ask(t, c, "new?\n")
	// The dialling side's close ends what it dialled.
	_ = la.Close()
	if _, err := c.Write([]byte("?")); err == nil {
		t.Fatal("a dialled connection outlived its layer")
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("group 1 was opened twice")
			}
		}()
		b.Raft(1)
	}()
}

func TestClose(t *testing.T) {
	a := listen(t, Options{ServerID: "a"})
	b := listen(t, Options{ServerID: "b"})
	l := b.Raft(1)
	go echo(l, "one")
	go echo(b.Service("ship"), "ship")
	one, err := a.Raft(1).Dial(raft.ServerAddress(b.Addr().String()), testTimeout)
	if err != nil {
		t.Fatal(err)
	}
	ship, err := a.Dial(context.Background(), b.Addr().String(), "ship")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := net.Dial("tcp", b.Addr().String()) // in its handshake
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	eventually(t, "pending", func() (string, bool) { n := b.Stats().Pending; return fmt.Sprint(n), n == 1 })
	ask(t, one, "one?\n")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	_ = b.Close()
	for name, c := range map[string]net.Conn{"group": one, "service": ship, "pending": raw} {
		_ = c.SetReadDeadline(time.Now().Add(testTimeout))
		if _, err := c.Read(make([]byte, 1)); err == nil || isTimeout(err) {
			t.Errorf("%s connection is open: %v", name, err)
		}
	}
	if s := b.Stats(); s.Open != 0 || s.Pending != 0 {
		t.Errorf("%+v", s)
	}
	// Everything on a closed Mux says so.
	if _, err := b.Raft(9).Accept(); !errors.Is(err, ErrClosed) {
		t.Errorf("Raft: %v", err)
	}
	if _, err := b.Service("x").Accept(); !errors.Is(err, ErrClosed) {
		t.Errorf("Service: %v", err)
	}
	if _, err := b.Dial(context.Background(), a.Addr().String(), "x"); !errors.Is(err, ErrClosed) {
		t.Errorf("Dial: %v", err)
	}
	if _, err := a.Probe(context.Background(), b.Addr().String()); err == nil {
		t.Error("a closed node answers a probe")
	}
	_ = a.Close() // closes what it dialled
	if _, err := ship.Write([]byte("?")); err == nil {
		t.Error("a dialled connection outlived its Mux")
	}
}

// TestDialGivesUp: a node that accepts and says nothing costs a bounded time.
func TestDialGivesUp(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	a := listen(t, Options{HandshakeTimeout: 150 * time.Millisecond})
	addr := ln.Addr().String()
	start := time.Now()
	if _, err := a.Dial(context.Background(), addr, "x"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("silent node: %v", err)
	}
	if _, err := a.Raft(1).Dial(raft.ServerAddress(addr), 50*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("silent node: %v", err)
	}
	if d := time.Since(start); d > testTimeout {
		t.Errorf("it took %v", d)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := a.Dial(ctx, addr, "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	// Close ends a dial that is under way.
	b := listen(t, Options{HandshakeTimeout: time.Hour})
	done := make(chan error, 1)
	go func() {
		_, err := b.Dial(context.Background(), addr, "x")
		done <- err
	}()
	if _, err := ln.Accept(); err != nil {
		t.Fatal(err)
	}
	_ = b.Close()
	select {
	case err := <-done:
		if err == nil {
			t.Error("the dial succeeded")
		}
	case <-time.After(testTimeout):
		t.Error("the dial continues")
	}
}

type closedEvent struct {
	group  uint32
	server raft.ServerAddress
}

// TestOnPeerConnClosed: it is called for connections that the other side ended, not for those that this side
// ended.
func TestOnPeerConnClosed(t *testing.T) {
	events := make(chan closedEvent, 100)
	a := listen(t, Options{ServerID: "a", OnPeerConnClosed: func(p Peer) { events <- closedEvent{p.Group, raft.ServerAddress(p.Addr)} }})
	go echo(a.Raft(1), "one")
	go echo(a.Service("ship"), "ship")
	b := listen(t, Options{ServerID: "b"})
	addr := raft.ServerAddress(a.Addr().String())
	lb := b.Raft(1)
	c, err := lb.Dial(addr, testTimeout)
	if err != nil {
		t.Fatal(err)
	}
	ask(t, c, "one?\n")
	ship, err := b.Dial(context.Background(), string(addr), "ship")
	if err != nil {
		t.Fatal(err)
	}
	ask(t, ship, "ship?\n")
	select {
	case e := <-events:
		t.Fatalf("event %v on live connections", e)
	default:
	}
	_ = b.Close()
	select {
	case e := <-events:
		if want := (closedEvent{1, raft.ServerAddress(b.Addr().String())}); e != want {
			t.Fatalf("%v, want %v", e, want)
		}
	case <-time.After(testTimeout):
		t.Fatal("no event")
	}
	// Own closes are no news.
	d := listen(t, Options{ServerID: "d"})
	go echo(d.Raft(1), "one")
	out, err := a.endpoints[endpointKey{kind: KindGroup, group: 1}].dialRaft(t, d.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = out.Read(make([]byte, 1)) }()
	_ = a.Close()
	select {
	case e := <-events:
		t.Fatalf("event %v on an own close", e)
	default:
	}
}

func (e *endpoint) dialRaft(t testing.TB, addr string) (net.Conn, error) {
	t.Helper()
	return (&raftLayer{e}).Dial(raft.ServerAddress(addr), testTimeout)
}

func TestOptions(t *testing.T) {
	long := strings.Repeat("x", 256)
	for _, o := range []Options{{}, {ClusterID: "c"}, {ServerID: "s"}, {ClusterID: long, ServerID: "s"},
		{ClusterID: "c", ServerID: "s", Advertise: long}} {
		if m, err := Listen("127.0.0.1:0", o); err == nil {
			_ = m.Close()
			t.Errorf("%.40v accepted", o)
		}
	}
	if _, err := Listen("192.0.2.1:0", Options{ClusterID: "c", ServerID: "s"}); err == nil {
		t.Error("an address of no host, accepted")
	}
}
