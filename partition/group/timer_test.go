package group

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition/grouptest"
	"perdure/partition/stable"
	"perdure/partition/watch"
	"perdure/partition/workers"
	"perdure/recovery"
)

func clockedConfig(c *grouptest.HandClock, fs vfs.FS, st *stable.Memory) config {
	cfg := memConfig(fs, st, 1)
	cfg.Clock = c
	return cfg
}

func stored(t *testing.T, n *node, id string) recovery.Promise {
	t.Helper()
	return grouptest.Stored(t, n.router.Of(ns, id).store, id)
}

func settles(t *testing.T, n *node, id string, want recovery.PromiseState) {
	t.Helper()
	waitFor(t, fmt.Sprintf("promise %s to be %v", id, want), func() bool { return stored(t, n, id).State == want },
		func() string { return stored(t, n, id).State.String() })
}

// The leader carries a deadline out when its time has come, not before, and an earlier one that comes later
// goes first.
func TestDeadlines(t *testing.T) {
	clock := grouptest.NewHandClock()
	n := startNode(t, clockedConfig(clock, vfs.NewMem(), stable.NewMemory()))
	r := n.Router()
	must(t, r, promiseCmd("ten", 10_000))
	must(t, r, promiseCmd("four", 4_000))
	w := n.shared.Watches.Add(watch.Settled, ns, "four")
	defer w.Stop()
	waitFor(t, "the timer to wait for the earlier deadline", func() bool { return clock.Armed(4 * time.Second) }, func() string { return "" })
	clock.Advance(3999 * time.Millisecond)
	if got := counted(t, n.router.Replicas()[0].metrics.Ticks); got != 0 {
		t.Errorf("%d ticks before anything was due", got)
	}
	if p := stored(t, n, "four"); p.State != recovery.PromisePending {
		t.Errorf("a millisecond before its deadline it is %v", p.State)
	}
	clock.Advance(time.Millisecond)
	settles(t, n, "four", recovery.PromiseRejectedTimedout)
	select {
	case <-w.C:
	case <-time.After(waitLimit):
		t.Error("who waited for it was not woken")
	}
	if p := stored(t, n, "ten"); p.State != recovery.PromisePending {
		t.Errorf("the later one is %v", p.State)
	}
	waitFor(t, "the timer to wait for the later deadline", func() bool { return clock.Armed(6 * time.Second) }, func() string { return "" })
	clock.Advance(6 * time.Second)
	settles(t, n, "ten", recovery.PromiseRejectedTimedout)
	if p := stored(t, n, "ten"); p.SettledAt != p.TimeoutAt {
		t.Errorf("settled at %d, its deadline was %d", p.SettledAt, p.TimeoutAt)
	}
}

// A deadline that was met early costs no tick; many at one time are all carried out.
func TestManyDeadlines(t *testing.T) {
	clock := grouptest.NewHandClock()
	n := startNode(t, clockedConfig(clock, vfs.NewMem(), stable.NewMemory()))
	r := n.Router()
	must(t, r, promiseCmd("early", 1_000))
	must(t, r, settleCmd("early", "v"))
	waitFor(t, "the timer to wait", func() bool { return clock.Armed(time.Second) }, func() string { return "" })
	clock.Advance(time.Second)
	const many = 3*tickLimit + 7
	for k := range many {
		must(t, r, promiseCmd(fmt.Sprint("p", k), 5_000))
	}
	waitFor(t, "the timer to wait again", func() bool { return clock.Armed(5 * time.Second) }, func() string { return "" })
	if got := counted(t, n.router.Replicas()[0].metrics.Ticks); got != 0 {
		t.Errorf("%d ticks for a deadline that was met", got)
	}
	clock.Advance(time.Minute)
	for k := range many {
		settles(t, n, fmt.Sprint("p", k), recovery.PromiseRejectedTimedout)
	}
	waitFor(t, "four ticks", func() bool { return counted(t, n.router.Replicas()[0].metrics.Ticks) == 4 },
		func() string { return fmt.Sprint(counted(t, n.router.Replicas()[0].metrics.Ticks)) })
}

// The next leader runs the expirations of deadlines that passed while no node led.
func TestDeadlinesAfterRestart(t *testing.T) {
	clock := grouptest.NewHandClock()
	fs, st := vfs.NewMem(), stable.NewMemory()
	n := startNode(t, clockedConfig(clock, fs, st))
	must(t, n.Router(), promiseCmd("due", 10_000))
	must(t, n.Router(), promiseCmd("later", 60_000))
	closeNode(t, n)
	clock.Advance(20 * time.Second)
	n = startNode(t, clockedConfig(clock, fs, st.Clone()))
	settles(t, n, "due", recovery.PromiseRejectedTimedout)
	waitFor(t, "the timer to wait for the rest", func() bool { return clock.Armed(40 * time.Second) }, func() string { return "" })
	if p := stored(t, n, "later"); p.State != recovery.PromisePending {
		t.Errorf("it is %v", p.State)
	}
}

// A sleeping execution wakes, and its task goes to a worker, without anybody asking.
func TestSleepWakes(t *testing.T) {
	clock := grouptest.NewHandClock()
	n := startNode(t, clockedConfig(clock, vfs.NewMem(), stable.NewMemory()))
	r := n.Router()
	w := n.Dispatcher().Attach(workers.Spec{ID: "w", Namespace: ns, Functions: []string{"nap"}, LeaseMS: 600_000, Capacity: 1})
	defer w.Detach()
	must(t, r, startCmd("s", "sleeper", "nap", ""))
	token := deliver(t, w)
	reply := must(t, r, commitCmd("c", &perdurev1.Commit{Task: token, KnownSeq: 1, Events: []*perdurev1.Event{
		timerEvent("sleeper:0", 30_000), awaitEvent(perdurev1.AwaitKind_AWAIT_KIND_SINGLE, "", "sleeper:0")}})).GetCommit()
	if reply.State != perdurev1.TaskState_TASK_STATE_SUSPENDED {
		t.Fatalf("%v", reply)
	}
	w.AddCapacity(1)
	waitFor(t, "the timer to wait", func() bool { return clock.Armed(30 * time.Second) }, func() string { return "" })
	nothing(t, n, w)
	clock.Advance(30 * time.Second)
	if again := deliver(t, w); again.Id != "sleeper" || again.Version <= token.Version {
		t.Errorf("woken as %v, was %v", again, token)
	}
}
