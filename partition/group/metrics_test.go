package group

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/clock"
	"perdure/partition/admission"
	"perdure/partition/groupmetrics"
	"perdure/partition/grouptest"
	"perdure/partition/stable"
	"perdure/partition/workers"
)

// shows waits until a figure is as it must be.
func shows(t testing.TB, reg prometheus.Gatherer, name string, want float64) {
	t.Helper()
	waitFor(t, fmt.Sprintf("%s to be %v", name, want), func() bool {
		v, there := scrape(t, reg)[name]
		return there && v == want
	}, func() string { return fmt.Sprint(scrape(t, reg)) })
}

// The queue's depth is what waits now, and a deadline that cannot be carried out is late for as long.
func TestQueueAndDeadlineMetrics(t *testing.T) {
	clock, reg := grouptest.NewHandClock(), prometheus.NewRegistry()
	n, disk := newGatedNode(t, 1, func(cfg *config) { cfg.Clock, cfg.Registry = clock, reg })
	must(t, n.Router(), promiseCmd("due", 4_000))
	must(t, n.Router(), promiseCmd("later", 100_000))
	waitFor(t, "the timer to wait", func() bool { return clock.Armed(4 * time.Second) }, func() string { return "" })
	clock.Advance(3 * time.Second)
	if have := scrape(t, reg); have["deadline_lag_seconds{0}"] != 0 || have["queue_depth{0}"] != 0 {
		t.Errorf("nothing is late yet: %v", have)
	}
	stuck(t, n, disk, 0)
	for k := range 5 {
		go func() { _, _ = n.Router().Propose(bg(t), promiseCmd(fmt.Sprintf("waits-%d", k), 1000_000)) }()
	}
	shows(t, reg, "queue_depth{0}", 5)
	clock.Advance(3 * time.Second)
	shows(t, reg, "deadline_lag_seconds{0}", 2)
	clock.Advance(5 * time.Second)
	shows(t, reg, "deadline_lag_seconds{0}", 7)
	disk.Release()
	waitFor(t, "the queue to be proposed", func() bool {
		clock.Advance(maxGather)
		return scrape(t, reg)["queue_depth{0}"] == 0
	}, func() string { return fmt.Sprint(scrape(t, reg)) })
	shows(t, reg, "deadline_lag_seconds{0}", 0)
	if have := scrape(t, reg); have["ticks_total{0}"] < 1 {
		t.Errorf("%v ticks", have["ticks_total{0}"])
	}
}

// Messages for a partition that does not take them show, and those that are delivered do not.
func TestShipMetrics(t *testing.T) {
	clock, reg := grouptest.NewHandClock(), prometheus.NewRegistry()
	cfg := memConfig(vfs.NewMem(), stable.NewMemory(), 2)
	cfg.Clock, cfg.Registry = clock, reg
	n := startNode(t, cfg)
	planted := errors.New("planted")
	defer func() {
		if err := n.close(bg(t)); !errors.Is(err, planted) {
			t.Errorf("close: %v", err)
		}
	}()
	r := n.Router()
	w := n.Dispatcher().Attach(spec("w", 10, "parent"))
	defer w.Detach()
	// Sixteen children apart: some are the other partition's.
	spread := func(name string) {
		t.Helper()
		id := idIn(r, 0, name)
		must(t, r, startCmd("start "+id, id, "parent", ""))
		c := &perdurev1.Commit{Task: deliver(t, w), KnownSeq: 1}
		for k := range uint32(16) {
			c.Events = append(c.Events, childEvent(childID(id, k), "child", ""))
			c.Children = append(c.Children, &perdurev1.ChildOptions{PromiseId: childID(id, k), Spread: true})
		}
		c.Events = append(c.Events, awaitEvent(perdurev1.AwaitKind_AWAIT_KIND_SINGLE, "", childID(id, 0)))
		must(t, r, commitCmd("step of "+id, c))
	}
	spread("delivered")
	waitFor(t, "messages to be shipped", func() bool { return scrape(t, reg)["messages_shipped_total{0}"] > 0 }, func() string { return fmt.Sprint(scrape(t, reg)) })
	waitFor(t, "all to be delivered", func() bool {
		s := n.router.Replicas()[0].serving().ship
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.since) == 0
	}, func() string { return fmt.Sprint(scrape(t, reg)) })
	clock.Advance(time.Hour)
	if have := scrape(t, reg)["ship_stalled_seconds{0}"]; have != 0 {
		t.Errorf("nothing waits, and has for %v s", have)
	}

	n.router.Replicas()[1].Halt(planted)
	shows(t, reg, "halted{1}", 1)
	shows(t, reg, "leader{1}", 0)
	w.Heard(1) // an hour has passed
	spread("stalled")
	clock.Advance(7 * time.Second)
	shows(t, reg, "ship_stalled_seconds{0}", 7)
	clock.Advance(7 * time.Second)
	shows(t, reg, "ship_stalled_seconds{0}", 14)
	if have := scrape(t, reg); have["leader{0}"] != 1 || have["halted{0}"] != 0 {
		t.Errorf("partition 0: %v", have)
	}
}

// A replica that halted before it could join its group has no figures of Raft's, and hides no others'.
func TestMetricsWithoutGroup(t *testing.T) {
	reg := prometheus.NewRegistry()
	set := groupmetrics.New(clock.System{}, prometheus.NewCounter(prometheus.CounterOpts{Name: "refusals"}), func(uint32) uint64 { return 0 })
	for _, c := range set.Collectors() {
		if err := reg.Register(c); err != nil {
			t.Fatal(err)
		}
	}
	unopened := func() *Replica {
		shared := NewShared(clock.System{}, admission.Limits{})
		shared.Dispatcher = workers.New(workers.Env{Clock: clock.System{}, Lifetime: context.Background()})
		return New(Options{ID: 3, Address: "here:1", Log: newLog(t), Clock: clock.System{}, Metrics: set, Shared: shared})
	}
	r := unopened()
	r.Halt(errors.New("planted"))
	set.Follow(figures{r}, nil)
	have := scrape(t, reg)
	for _, name := range []string{"term{3}", "last_index{3}", "state_index{3}", "leader_contact_seconds{3}"} {
		if v, there := have[name]; there {
			t.Errorf("%s is %v", name, v)
		}
	}
	if have["halted{3}"] != 1 || have["elections_won_total{3}"] != 0 {
		t.Errorf("%v", have)
	}
	// Rebuilt, it is another one.
	set.Follow(figures{unopened()}, nil)
	if have := scrape(t, reg); have["halted{3}"] != 0 {
		t.Errorf("%v", have)
	}
}

// Waiting messages count from their last progress on, and those that come while the outbox is read are not
// forgotten.
func TestStalled(t *testing.T) {
	clock := grouptest.NewHandClock()
	s := newShipper(&leadership{r: &leader{core: &core{clock: clock}}})
	is := func(what string, want time.Duration) {
		t.Helper()
		if have := s.stalled(); have != want {
			t.Errorf("%s: stalled for %v, want %v", what, have, want)
		}
	}
	is("nothing waits", 0)
	s.wake([]uint32{1, 2})
	clock.Advance(5 * time.Second)
	s.wake([]uint32{1})
	is("two wait", 5*time.Second)
	s.take()
	is("they are being delivered", 5*time.Second)
	s.progress(1, false)
	is("the other waits", 5*time.Second)
	s.progress(2, true)
	is("one is done", 0)
	clock.Advance(3 * time.Second)
	is("since the last progress", 3*time.Second)
	s.wake([]uint32{1})
	s.progress(1, true)
	is("something came while it was read", 0)
	clock.Advance(2 * time.Second)
	is("it waits", 2*time.Second)
	if s.rest(1) {
		t.Error("the work on a destination ended although something had come")
	}
	s.progress(1, true)
	clock.Advance(time.Second)
	is("all is done", 0)
	if !s.rest(1) {
		t.Error("the work on a destination continues with nothing there")
	}
}

// The earliest deadline counts, whether the state was seen to have it or an entry has brought it since.
func TestDeadlineLag(t *testing.T) {
	clock := grouptest.NewHandClock()
	now := clock.Now().UnixMilli()
	for _, c := range []struct {
		seen, next int64
		want       time.Duration
	}{
		{0, 0, 0},
		{now + 5000, 0, 0},
		{now + 5000, now + 3000, 0},
		{now - 2000, 0, 2 * time.Second},
		{0, now - 3000, 3 * time.Second},
		{now + 5000, now - 4000, 4 * time.Second},
		{now - 5000, now + 4000, 5 * time.Second},
		{now - 1000, now - 6000, 6 * time.Second},
	} {
		x := newTimer(&leadership{r: &leader{core: &core{clock: clock, env: Env{Now: clock.Now}}}})
		x.seen.Store(c.seen)
		x.next.Store(c.next)
		if have := x.lag(); have != c.want {
			t.Errorf("seen %d, next %d: %v, want %v", c.seen-now, c.next-now, have, c.want)
		}
	}
}
