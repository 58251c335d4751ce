package membership

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestThreeNodesMeet(t *testing.T) {
	noLeaks(t)
	a := start(t, "a", calm)
	b := start(t, "b", both(calm, join(a)))
	c := start(t, "c", both(calm, join(a, b)))
	for _, n := range []*node{a, b, c} {
		n.sees(t, "a-1", "b-1", "c-1")
		for _, server := range []string{"a-1", "b-1", "c-1"} {
			if !n.Alive(server) {
				t.Errorf("%s says that %s is not alive", n.Self().NodeID, server)
			}
		}
		if n.Alive("d-1") {
			t.Errorf("%s says that an unknown server is alive", n.Self().NodeID)
		}
		for _, other := range []*node{a, b, c} {
			want := other.Self()
			if got, _ := n.member(want.ServerID); !reflect.DeepEqual(got, want) {
				t.Errorf("%s knows %+v, want %+v", n.Self().NodeID, got, want)
			}
		}
	}
	// The log follows the view.
	eventually(t, "a to log once that b joined", func() (string, bool) {
		n := a.log.count("member_joined", "server", "b-1")
		return fmt.Sprint(n), n == 1
	})
}

func TestUpdatesSpread(t *testing.T) {
	a := start(t, "a", calm)
	b := start(t, "b", both(calm, join(a)))
	a.sees(t, "a-1", "b-1")
	b.sees(t, "a-1", "b-1")
	drain(a.Changed())
	for i := range uint64(50) {
		if err := b.Update(func(m *Member) {
			m.Epoch, m.Leads, m.Founding, m.GossipAddr = i+1, []uint32{9, 2, 2, 255}, "f", "ignored"
		}); err != nil {
			t.Fatal(err)
		}
	}
	want := b.Self()
	if want.Epoch != 50 || !slices.Equal(want.Leads, []uint32{2, 9, 255}) || want.GossipAddr != b.Addr() {
		t.Fatalf("b says of itself %+v", want)
	}
	eventually(t, "a to hear b's last update", func() (string, bool) {
		select {
		case <-a.Changed():
		default:
			return "nothing has changed", false
		}
		got, _ := a.member("b-1")
		return got.NodeID, reflect.DeepEqual(got, want)
	})
	// The caller owns the returned values.
	got, _ := a.member("b-1")
	got.Leads[0] = 77
	if again, _ := a.member("b-1"); again.Leads[0] != 2 {
		t.Error("a caller changed the view")
	}
}

func drain(c <-chan struct{}) {
	select {
	case <-c:
	default:
	}
}

func TestUpdateRefusals(t *testing.T) {
	a := start(t, "a", nil)
	before := a.Self()
	for field, change := range map[string]func(*Member){
		"NodeID":    func(m *Member) { m.NodeID = "x" },
		"ServerID":  func(m *Member) { m.ServerID = "x" },
		"ClusterID": func(m *Member) { m.ClusterID = "" },
		"texts":     func(m *Member) { m.HTTPAddr, m.GRPCAddr = strings.Repeat("s", 255), strings.Repeat("s", 255) },
		"Leads":     func(m *Member) { m.Epoch, m.Leads = 9, []uint32{MaxPartitions} },
	} {
		var bad *MemberError
		if err := a.Update(change); !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
	if after := a.Self(); !reflect.DeepEqual(before, after) {
		t.Errorf("refused updates changed %+v to %+v", before, after)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.Update(func(m *Member) { m.Epoch = 1 }); !errors.Is(err, ErrLeft) {
		t.Errorf("after close: got %v", err)
	}
}

func TestUpdatesAndReadsAtOnce(t *testing.T) {
	a := start(t, "a", nil)
	b := start(t, "b", join(a))
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 25 {
				if err := b.Update(func(m *Member) { m.Epoch++ }); err != nil {
					t.Error(err)
				}
				a.Members()
				a.Alive("b-1")
				a.Offset()
				_ = i
			}
		}()
	}
	wg.Wait()
	eventually(t, "a to hear all updates", func() (string, bool) {
		m, _ := a.member("b-1")
		return "", m.Epoch == 100
	})
}

func TestLeaveAndDeathDiffer(t *testing.T) {
	t.Parallel() // it waits most of the time
	a := start(t, "a", calm)
	b := start(t, "b", both(calm, join(a)))
	c := start(t, "c", both(calm, join(a)))
	a.sees(t, "a-1", "b-1", "c-1")
	b.sees(t, "a-1", "b-1", "c-1")
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	if err := b.Leave(ctx); err != nil {
		t.Errorf("leave: %v", err)
	}
	if b.Alive("b-1") {
		t.Error("b has left and sees itself alive")
	}
	if err := b.Leave(ctx); err != nil {
		t.Errorf("second leave: %v", err)
	}
	a.sees(t, "a-1", "c-1")
	if err := errors.Join(b.Close(), b.Close(), b.Leave(ctx)); err != nil {
		t.Errorf("after leaving: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	a.sees(t, "a-1")
	for _, want := range []struct {
		event, server string
		n             int
	}{{"member_left", "b-1", 1}, {"member_failed", "b-1", 0}, {"member_left", "c-1", 0}, {"member_failed", "c-1", 1}} {
		eventually(t, "the log of deaths", func() (string, bool) {
			n := a.log.count(want.event, "server", want.server)
			return a.log.String(), n == want.n
		})
	}
}

func TestLeaveKeepsTheDeadline(t *testing.T) {
	a := start(t, "a", nil)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Leave(over); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if !a.Alive("a-1") {
		t.Error("a refused to leave and is gone all the same")
	}
	if err := a.Leave(t.Context()); err != nil {
		t.Errorf("alone: %v", err)
	}
}

// A killed server that starts again elsewhere is heard before the others have noticed its death.
func TestRestartAtAnotherPort(t *testing.T) {
	t.Parallel() // it waits most of the time
	slow := quick
	slow.ProbeInterval, slow.ProbeTimeout = 20*time.Second, 10*time.Second // no member is found dead in this test
	with := func(more func(*Config)) func(*Config) {
		return func(c *Config) {
			c.Timing = slow
			if more != nil {
				more(c)
			}
		}
	}
	elsewhere := freeAddr(t)
	a := start(t, "a", with(nil))
	b := start(t, "b", with(join(a)))
	c := start(t, "c", with(join(a)))
	for _, n := range []*node{a, b, c} {
		n.sees(t, "a-1", "b-1", "c-1")
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	again := start(t, "b", with(func(cfg *Config) { join(a)(cfg); cfg.BindAddr, cfg.Self.Epoch = elsewhere, 2 }))
	for _, n := range []*node{a, c} {
		eventually(t, "the restarted server to be heard", func() (string, bool) {
			m, _ := n.member("b-1")
			return m.GossipAddr, m.GossipAddr == again.Addr() && m.Epoch == 2 && len(n.Members()) == 3
		})
		if n.log.count("member_failed") != 0 {
			t.Errorf("a member was found dead:%s", n.log)
		}
	}
	again.sees(t, "a-1", "b-1", "c-1")
}

// The instance before a restart dies unnoticed, and no member is reported dead.
func TestRestartAtTheSamePort(t *testing.T) {
	t.Parallel() // it waits most of the time
	addr := freeAddr(t)
	a := start(t, "a", calm)
	b := start(t, "b", func(c *Config) { both(calm, join(a))(c); c.BindAddr = addr })
	a.sees(t, "a-1", "b-1")
	old := b.name
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	again := start(t, "b", func(c *Config) { both(calm, join(a))(c); c.BindAddr, c.Self.Epoch = addr, 2 })
	eventually(t, "the instance before to be forgotten", func() (string, bool) {
		a.mu.Lock()
		_, known := a.instances[old]
		a.mu.Unlock()
		m, there := a.member("b-1")
		if !there {
			t.Fatalf("the restarted server went missing:%s", a.log)
		}
		return "", !known && m.Epoch == 2
	})
	again.sees(t, "a-1", "b-1")
	if n := a.log.count("member_failed") + again.log.count("server_twice"); n != 0 {
		t.Errorf("a restart was taken for a death or a twin:%s%s", a.log, again.log)
	}
}

// Two living processes of one server: the one that started last counts, and both say so in their logs.
func TestTwins(t *testing.T) {
	t.Parallel() // it waits most of the time
	a := start(t, "a", calm)
	b := start(t, "b", both(calm, join(a)))
	a.sees(t, "a-1", "b-1")
	twin := start(t, "b", func(c *Config) { both(calm, join(a))(c); c.Self.Epoch = 2 })
	for _, n := range []*node{b, twin} {
		eventually(t, "a twin to be noticed", func() (string, bool) {
			return n.log.String(), n.log.count("server_twice", "server", "b-1") == 1
		})
		n.sees(t, "a-1", "b-1")
		if m, _ := n.member("b-1"); m.GossipAddr != n.Addr() {
			t.Errorf("a twin takes the other for itself: %+v", m)
		}
	}
	if m, _ := a.member("b-1"); m.Epoch != 2 || len(a.Members()) != 2 {
		t.Errorf("a sees %+v", a.Members())
	}
}

func TestJoinIsRetried(t *testing.T) {
	t.Parallel()        // it waits most of the time
	addr := freeAddr(t) // no node listens there yet
	a := start(t, "a", func(c *Config) { c.Join = []string{addr} })
	eventually(t, "a first failure", func() (string, bool) {
		return a.log.String(), a.log.count("join_failed", "address", addr) > 0
	})
	// Its own address is in the list too, as in a list that all nodes share; and a name instead of an address.
	_, port, _ := net.SplitHostPort(a.Addr())
	b := start(t, "b", func(c *Config) { c.BindAddr, c.Join = addr, []string{addr, "localhost:" + port} })
	a.sees(t, "a-1", "b-1")
	b.sees(t, "a-1", "b-1")
}

// cut is a network that loses what passes between two sides.
type cut struct {
	mu   sync.Mutex
	lost map[string]bool // "from to" by port owner; both are addresses
}

func (c *cut) drop(from func() string) func(string) bool {
	return func(to string) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.lost[from()+" "+to]
	}
}

func (c *cut) set(lost bool, as, bs []*node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range as {
		for _, b := range bs {
			c.lost[a.Addr()+" "+b.Addr()] = lost
			c.lost[b.Addr()+" "+a.Addr()] = lost
		}
	}
}

// Each side has declared the other dead and forgotten it. When the network heals, they find each other:
// through the join list, or where there is none, through the addresses of those who were lost.
func TestPartitionHeals(t *testing.T) {
	t.Parallel() // it waits most of the time
	network := &cut{lost: make(map[string]bool)}
	addrs := []string{freeAddr(t), freeAddr(t), freeAddr(t)}
	wired := func(addr string) func(*Config) {
		return func(c *Config) {
			c.BindAddr, c.Join = addr, addrs
			c.drop = network.drop(func() string { return addr })
			c.Timing.DeadInterval = time.Millisecond // memberlist forgets the dead, so that it has no member to ask
			c.Timing.RejoinMax = time.Hour           // and what was tried with success waits for long
		}
	}
	a := start(t, "a", wired(addrs[0]))
	b := start(t, "b", wired(addrs[1]))
	c := start(t, "c", wired(addrs[2]))
	all := []*node{a, b, c}
	for _, n := range all {
		n.sees(t, "a-1", "b-1", "c-1")
	}
	for _, tc := range []struct {
		listless bool
		alone    *node
		others   []*node
	}{{false, a, []*node{b, c}}, {false, c, []*node{a, b}}, {true, b, []*node{a, c}}} {
		for _, n := range all {
			if tc.listless {
				n.mu.Lock()
				n.join = nil
				n.mu.Unlock()
			}
		}
		alone := []*node{tc.alone}
		network.set(true, alone, tc.others)
		tc.alone.sees(t, tc.alone.Self().ServerID)
		for _, n := range tc.others {
			n.sees(t, tc.others[0].Self().ServerID, tc.others[1].Self().ServerID)
		}
		network.set(false, alone, tc.others)
		for _, n := range all {
			n.sees(t, "a-1", "b-1", "c-1")
		}
	}
}

func TestPortZeroIsOnePortForBoth(t *testing.T) {
	a := start(t, "a", nil)
	for _, network := range []string{"tcp", "udp"} {
		var err error
		if network == "tcp" {
			_, err = net.Listen(network, a.Addr())
		} else {
			_, err = net.ListenPacket(network, a.Addr())
		}
		if err == nil {
			t.Errorf("%s %s is free", network, a.Addr())
		}
	}
	var bad *ConfigError
	_, err := Start(Config{BindAddr: a.Addr(), Self: Member{NodeID: "x", ServerID: "x"}})
	if err == nil || errors.As(err, &bad) || !strings.Contains(err.Error(), a.Addr()) {
		t.Errorf("a taken port: got %v", err)
	}
}

func TestAdvertise(t *testing.T) {
	a := start(t, "a", func(c *Config) { c.BindAddr, c.Advertise = "0.0.0.0:0", "127.0.0.1" })
	host, port, err := net.SplitHostPort(a.Addr())
	if err != nil || host != "127.0.0.1" || port == "0" {
		t.Errorf("address %s, %v", a.Addr(), err)
	}
	b := start(t, "b", func(c *Config) { c.BindAddr = "localhost:0"; join(a)(c) })
	if !isLoopback(b.Addr()) {
		t.Errorf("localhost is %s", b.Addr())
	}
	a.sees(t, "a-1", "b-1")
}

func TestConfigErrorsComeTogether(t *testing.T) {
	_, err := Start(Config{
		BindAddr: "[::]:x", Advertise: "0.0.0.0:1", Join: []string{"host", ":1", "h:0", "h:1"},
		Keys:   [][]byte{make([]byte, 16), make([]byte, 5)},
		Timing: Timing{ProbeInterval: 1, ProbeTimeout: 2, RejoinMin: 2, RejoinMax: 1},
	})
	var bad *ConfigError
	if !errors.As(err, &bad) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{`BindAddr "[::]:x"`, `Advertise "0.0.0.0:1"`, `Join "host"`, `Join ":1"`, `Join "h:0"`,
		"Keys[1] has 5 bytes", "NodeID is empty", "ProbeTimeout", "RejoinMin"} {
		if !slices.ContainsFunc(bad.Problems, func(p string) bool { return strings.Contains(p, want) }) {
			t.Errorf("no problem about %s in %q", want, bad.Problems)
		}
	}
	if len(bad.Problems) != 9 {
		t.Errorf("%d problems: %q", len(bad.Problems), bad.Problems)
	}
	if _, err := Start(Config{BindAddr: "[::]:0", Self: Member{NodeID: "a", ServerID: "a"}}); !errors.As(err, &bad) {
		t.Errorf("all addresses without Advertise: got %v", err)
	}
}
