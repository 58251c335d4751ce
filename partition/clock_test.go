package partition

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"perdure/internal/testkit"
	"perdure/partition/grouptest"
	"perdure/partition/stable"
	"perdure/recovery"
)

// steppedClock is a machine's clock: the test advances its timers and its monotonic part, and sets its time
// of day.
type steppedClock struct {
	*grouptest.HandClock
	t     *testing.T
	since time.Time // of the hand clock
	from  time.Time // has both parts
	ahead atomic.Int64
}

func newSteppedClock(t *testing.T) *steppedClock {
	hand := grouptest.NewHandClock()
	return &steppedClock{HandClock: hand, t: t, since: hand.Now(), from: time.Now()}
}

// Now implements Clock.
func (c *steppedClock) Now() time.Time {
	passed := c.HandClock.Now().Sub(c.since)
	return testkit.Reading(c.t, c.from, passed+time.Duration(c.ahead.Load()), passed)
}

// TestClockStepsWithinATerm: a leader's clock is set while it leads. Until the next comparison of clocks its
// stamps continue with the monotonic clock. When a comparison changes them, forwards or backwards, its timers
// wait for the time that is left.
func TestClockStepsWithinATerm(t *testing.T) {
	clock := newSteppedClock(t)
	var ahead atomic.Int64 // what the others say
	cfg := memConfig(t, vfs.NewMem(), stable.NewMemory(), 1)
	cfg.Clock, cfg.Ahead = clock, func() time.Duration { return time.Duration(ahead.Load()) }
	n := startNode(t, cfg) // alone, so it compares when it is asked to
	n.cluster.CompareClock()
	r := n.Router()
	replica := n.router.Replicas()[0]
	term := replica.Raft().CurrentTerm()
	stored := func(id string) recovery.Promise { return grouptest.Stored(t, n.router.Of(ns, id).Store(), id) }
	// stampedAt says how long after the start the leader stamps an entry.
	stampedAt := func(id string) time.Duration {
		t.Helper()
		must(t, r, promiseCmd(id, 3_600_000))
		return time.UnixMilli(stored(id).TimeoutAt).Sub(clock.from.Truncate(time.Millisecond)) - time.Hour
	}
	armed := func(d time.Duration) {
		t.Helper()
		waitFor(t, fmt.Sprintf("the timer to wait for %v", d), func() bool { return clock.Armed(d) }, func() string {
			var out []time.Duration
			for _, timer := range clock.Timers() {
				out = append(out, timer.Sub(clock.HandClock.Now()))
			}
			return fmt.Sprint(out)
		})
	}
	must(t, r, promiseCmd("ten", 10_000))
	armed(10 * time.Second)

	clock.ahead.Store(int64(20 * time.Second))
	if got := stampedAt("after the step"); got != 0 {
		t.Errorf("the clock was set 20 s forward, and an entry was stamped %v later", got)
	}
	clock.Advance(time.Second)
	if got := stampedAt("a second later"); got != time.Second {
		t.Errorf("a second later an entry was stamped %v after the start", got)
	}
	// The others say what has happened: nothing changes, but that it is known.
	ahead.Store(int64(20 * time.Second))
	n.cluster.CompareClock()
	if got := stampedAt("known"); got != time.Second {
		t.Errorf("the clock is known to be 20 s ahead, and an entry was stamped %v after the start", got)
	}
	armed(9 * time.Second)
	// It is found that the stamps were wrong: 5 s ahead of the others, then as much behind.
	ahead.Store(int64(25 * time.Second))
	n.cluster.CompareClock()
	armed(14 * time.Second)
	if p := stored("ten"); p.State != recovery.PromisePending {
		t.Errorf("9 s before its deadline, by the first stamps, it is %v", p.State)
	}
	ahead.Store(int64(10 * time.Second))
	n.cluster.CompareClock()
	waitFor(t, "it to expire", func() bool { return stored("ten").State == recovery.PromiseRejectedTimedout }, func() string { return stored("ten").State.String() })
	if now := replica.Raft().CurrentTerm(); now != term {
		t.Errorf("the term went from %d to %d", term, now)
	}
}
