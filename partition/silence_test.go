package partition

import (
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestSilence: a leader from which nobody hears, although no connection breaks, is replaced before the
// time-outs act; one that a majority hears is left alone, whoever else does not.
func TestSilence(t *testing.T) {
	t.Parallel() // it waits most of the time
	const timeout = 20 * time.Second
	log, logged := newLog(t)
	roads := newRoads(t)
	all := newClusterWith(t, 1, timeout, func(cfg *Config) {
		cfg.Logger = log.With("at", cfg.NodeID)
		cfg.Hints = roads.from(cfg.NodeID, cfg.PeerAddr)
	})
	lead := leaderOf(t, all, 0)
	var rest []*member
	for _, m := range all {
		if m != lead {
			rest = append(rest, m)
		}
	}
	before := termsOf(rest[0])
	// undisturbed waits until a node has found the leader silent, and has thought about it.
	undisturbed := func(what string, m *member) {
		t.Helper()
		waitFor(t, m.cfg.NodeID+" finds it silent", func() bool {
			return logged.has("at=" + m.cfg.NodeID + " event=leader_silent")
		}, func() string { return "it does not" })
		waitFor(t, m.cfg.NodeID+" has looked after its groups", func() bool {
			m.failover.mu.Lock()
			defer m.failover.mu.Unlock()
			return len(m.failover.busy) == 0
		}, func() string { return "it still does" })
		if logged.has("event=standing") {
			t.Errorf("%s: somebody stood for election", what)
		}
	}

	roads.block(lead, rest[0])
	undisturbed("one of two followers does not hear the leader", rest[0])
	roads.open()

	for _, m := range all {
		if m != rest[1] {
			roads.block(m, rest[1])
		}
	}
	undisturbed("a follower is alone", rest[1])
	roads.open()
	for g, term := range termsOf(lead) {
		if term != before[g] {
			t.Errorf("group %v went from term %d to %d", groupName(g), before[g], term)
		}
	}
	waitFor(t, "all hear the leader again", func() bool {
		for _, m := range rest {
			if led := m.failover.led()[lead.identity.ServerID]; time.Since(led.heard) > timeout/silenceShare/2 {
				return false
			}
		}
		return true
	}, func() string { return "they do not" })

	led := lead.Leads()
	roads.block(lead, rest[0])
	roads.block(lead, rest[1])
	began := time.Now()
	for _, p := range led {
		waitFor(t, fmt.Sprintf("partition %d is led elsewhere", p), func() bool {
			return leads(rest[0], p) || leads(rest[1], p)
		}, func() string { return fmt.Sprint(rest[0].status(), rest[1].status()) })
	}
	t.Logf("led elsewhere after %v, %.2f of the heartbeat time-out", time.Since(began), time.Since(began).Seconds()/timeout.Seconds())
	if !logged.has("event=standing") {
		t.Error("it took the time-outs")
	}
	roads.open()
}

// TestSilenceRefused: something on the way to the leader drops what is connected and refuses what connects, as
// firewalls do. That is no proof that the leader is gone while a majority hears it.
func TestSilenceRefused(t *testing.T) {
	t.Parallel() // it waits most of the time
	log, logged := newLog(t)
	roads := newRoads(t)
	all := newClusterWith(t, 1, 20*time.Second, func(cfg *Config) {
		cfg.Logger = log.With("at", cfg.NodeID)
		cfg.Hints = roads.from(cfg.NodeID, cfg.PeerAddr)
	})
	lead := leaderOf(t, all, 0)
	away := all[0]
	if away == lead {
		away = all[1]
	}
	before := termsOf(lead)
	roads.refuse(lead, away)
	waitFor(t, "it is found silent", func() bool {
		return logged.has("at=" + away.cfg.NodeID + " event=leader_silent")
	}, func() string { return "it is not" })
	waitFor(t, "its groups have been looked after", func() bool {
		away.failover.mu.Lock()
		defer away.failover.mu.Unlock()
		return len(away.failover.busy) == 0
	}, func() string { return "they still are" })
	if logged.has("event=standing") {
		t.Error("somebody stood for election")
	}
	for g, term := range termsOf(lead) {
		if term != before[g] {
			t.Errorf("group %v went from term %d to %d", groupName(g), before[g], term)
		}
	}
}

// TestSilenceEnds: a leader that was held up and is heard again keeps its place, also when others have
// agreed already that it should be replaced.
func TestSilenceEnds(t *testing.T) {
	t.Parallel() // it waits most of the time
	log, logged := newLog(t)
	all := newClusterWith(t, 1, 20*time.Second, func(cfg *Config) { cfg.Logger = log })
	lead := leaderOf(t, all, 0)
	for _, m := range all {
		if m == lead {
			continue
		}
		g, ok := m.group(0)
		if !ok {
			t.Fatal("no member of the group")
		}
		back := turnedUp(g, lead.identity.ServerID)
		waitFor(t, "it is heard again", back, func() string { return g.raft.LastContact().String() })
		term := g.raft.CurrentTerm()
		m.failover.succeed(bg(t), g, lead.identity.ServerID, false, back)
		if logged.has("event=standing") || g.raft.CurrentTerm() != term || g.leader() != lead.identity.ServerID {
			t.Fatalf("%s: term %d became %d, led by %s; it was led by %s", m.cfg.NodeID, term, g.raft.CurrentTerm(), g.leader(), lead.identity.ServerID)
		}
	}
}

// roads are the connections between the nodes of a test, by who makes them. What goes into a blocked one
// is lost, and neither end is told.
type roads struct {
	t   *testing.T
	at  map[string]string // written before any node starts
	mu  sync.Mutex
	all map[[2]string]*road
}

func newRoads(t *testing.T) *roads {
	return &roads{t: t, at: map[string]string{}, all: map[[2]string]*road{}}
}

// from says how a node reaches the others that are known by then, and that it is at addr itself.
func (r *roads) from(node, addr string) func() []Hint {
	r.at[node] = addr
	return func() []Hint {
		r.mu.Lock()
		defer r.mu.Unlock()
		var hints []Hint
		for other, addr := range r.at {
			if other == node {
				continue
			}
			key := [2]string{node, other}
			if r.all[key] == nil {
				r.all[key] = newRoad(r.t, addr)
			}
			hints = append(hints, Hint{NodeID: other, ServerID: other + "-0001", PeerAddr: r.all[key].at})
		}
		return hints
	}
}

func newRoad(t *testing.T, to string) *road {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Error(err)
		return &road{}
	}
	way := &road{at: l.Addr().String(), to: to, in: l, on: map[net.Conn]bool{}}
	go way.run(l)
	t.Cleanup(func() {
		_ = l.Close() // the test is over
		way.cut()
	})
	return way
}

// block loses everything between two nodes.
func (r *roads) block(a, b *member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all[[2]string{a.cfg.NodeID, b.cfg.NodeID}].blocked.Store(true)
	r.all[[2]string{b.cfg.NodeID, a.cfg.NodeID}].blocked.Store(true)
}

// refuse blocks what is connected between two nodes, and has what connects refused, to the end of the test.
func (r *roads) refuse(a, b *member) {
	r.block(a, b)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, way := range []*road{r.all[[2]string{a.cfg.NodeID, b.cfg.NodeID}], r.all[[2]string{b.cfg.NodeID, a.cfg.NodeID}]} {
		if err := way.in.Close(); err != nil {
			r.t.Error(err)
		}
	}
}

// open ends all blocks. What was connected meanwhile has lost data, so it is cut.
func (r *roads) open() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, way := range r.all {
		if way.blocked.Swap(false) {
			way.cut()
		}
	}
}

type road struct {
	at, to  string
	in      net.Listener
	blocked atomic.Bool
	mu      sync.Mutex
	on      map[net.Conn]bool
}

func (r *road) run(l net.Listener) {
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		r.on[in] = true
		r.mu.Unlock()
		if r.blocked.Load() {
			continue // nobody answers
		}
		out, err := net.Dial("tcp", r.to)
		if err != nil {
			_ = in.Close()
			continue
		}
		r.mu.Lock()
		r.on[out] = true
		r.mu.Unlock()
		go r.carry(in, out)
		go r.carry(out, in)
	}
}

// carry ends both when one ends.
func (r *road) carry(from, to net.Conn) {
	defer func() { _ = from.Close(); _ = to.Close() }()
	_, _ = io.Copy(writerFunc(func(b []byte) (int, error) {
		if r.blocked.Load() {
			return len(b), nil
		}
		return to.Write(b)
	}), from)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func (r *road) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.on {
		_ = c.Close()
	}
	clear(r.on)
}

// TestWitness: a node says no more of a silence than it can testify, having been there to hear.
func TestWitness(t *testing.T) {
	f := &failover{n: &Node{cfg: Config{HeartbeatTimeout: 1000 * time.Hour}}} // time stands still, as it were
	is := func(what string, l *looked, want time.Duration) {
		t.Helper()
		f.looked.Store(l)
		if have := f.unheard(250 * time.Hour).Round(time.Hour); have != want {
			t.Errorf("%s: nothing was heard for %v, want %v", what, have, want)
		}
	}
	ago := func(hours int) time.Time { return time.Now().Add(-time.Duration(hours) * time.Hour) }
	is("nobody looks", nil, 0)
	is("it has looked all the time", &looked{ago(40), ago(900)}, 250*time.Hour)
	is("it was held up before", &looked{ago(40), ago(200)}, 200*time.Hour)
	is("it is held up", &looked{ago(110), ago(900)}, 0)
}
