package partition

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/credit"
	"perdure/partition/group"
	"perdure/partition/grouptest"
	"perdure/partition/stable"
	"perdure/partition/workers"
)

// The ledgers of all nodes here panic once an inequality of theirs is broken.
func init() { credit.Assert = true }

// deliver takes a worker's next delivery; it must be a task.
func deliver(t testing.TB, w *workers.Worker) *perdurev1.TaskToken {
	t.Helper()
	d, ok := w.Next(bg(t))
	if !ok || d.Cancelling {
		t.Fatalf("%s received %+v, %v", w.ID, d, ok)
	}
	return d.Token
}

// nothing checks that a worker has received nothing, and will not for what has happened so far. A command
// proposed now proves it once it is answered: effects are performed in the order of the log.
func nothing(t testing.TB, n *Node, w *workers.Worker) {
	t.Helper()
	for p := range n.Router().Partitions() {
		must(t, n.Router(), promiseCmd(idIn(n.Router(), p, "probe"), 1<<40))
	}
	if k := w.Queued(); k > 0 {
		t.Errorf("%s received %d deliveries", w.ID, k)
	}
}

func spec(id string, capacity int, functions ...string) workers.Spec {
	return workers.Spec{ID: id, Namespace: ns, Functions: functions, LeaseMS: 600_000, Capacity: capacity}
}

// finish ends a task.
func finish(t testing.TB, r *Router, token *perdurev1.TaskToken) {
	t.Helper()
	must(t, r, commitCmd("end of "+token.Id, &perdurev1.Commit{Task: token, KnownSeq: 1, Events: []*perdurev1.Event{returnEvent("done")}}))
}

func held(t testing.TB, r *group.Replica, worker string) []*perdurev1.TaskToken {
	t.Helper()
	reply, _, err := r.Query(bg(t), group.Linearizable, &commandv1.Query{Kind: &commandv1.Query_Held{Held: &commandv1.HeldQuery{Worker: worker}}})
	if err != nil {
		t.Fatal(err)
	}
	return reply.GetHeld().Tasks
}

// A worker never receives more tasks than its capacity, whatever partitions, streams and entries in flight.
func TestCapacityIsNeverExceeded(t *testing.T) {
	t.Parallel() // it waits most of the time
	n := newMemNode(t, 4)
	r, d := n.Router(), n.Dispatcher()
	const capacity, total = 3, 300
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var producers, consumers sync.WaitGroup
	for lane := range 4 {
		producers.Add(1)
		go func() {
			defer producers.Done()
			for k := range total / 4 {
				id := fmt.Sprintf("x%d-%d", lane, k)
				if _, err := r.Propose(ctx, startCmd("start "+id, id, "f", "")); err != nil {
					t.Errorf("start: %v", err)
				}
			}
		}()
	}
	var mu sync.Mutex
	finished := map[string]bool{}
	all := make(chan struct{})
	for k := range 3 {
		consumers.Add(1)
		go func() {
			defer consumers.Done()
			rng := rand.New(rand.NewPCG(uint64(k), 1))
			w := d.Attach(spec(fmt.Sprint("w", k), capacity, "f"))
			defer w.Detach()
			var holding []*perdurev1.TaskToken
			var sent atomic.Int64 // and not finished
			next := make(chan workers.Delivery, capacity)
			go func() {
				defer close(next)
				for {
					d, ok := w.Next(ctx)
					if !ok {
						return
					}
					if now := sent.Add(1); now > capacity {
						t.Errorf("%s received %d tasks, its capacity is %d", w.ID, now, capacity)
					}
					next <- d
				}
			}()
			for {
				if len(holding) == 0 || len(holding) < capacity && rng.IntN(2) == 0 {
					select {
					case got, ok := <-next:
						if !ok {
							return
						}
						holding = append(holding, got.Token)
						continue
					case <-time.After(time.Duration(rng.IntN(2)) * time.Millisecond):
						if len(holding) == 0 {
							if ctx.Err() != nil {
								return
							}
							continue
						}
					}
				}
				token := holding[0]
				if _, err := r.Propose(ctx, commitCmd("end of "+token.Id, &perdurev1.Commit{Task: token, KnownSeq: 1, Events: []*perdurev1.Event{returnEvent("done")}})); err != nil {
					if ctx.Err() == nil {
						t.Errorf("commit: %v", err)
					}
					return
				}
				holding = holding[1:]
				mu.Lock()
				if finished[token.Id] {
					t.Errorf("%s was given out twice", token.Id)
				}
				finished[token.Id] = true
				if len(finished) == total {
					close(all)
				}
				mu.Unlock()
				sent.Add(-1)
				w.AddCapacity(1)
			}
		}()
	}
	producers.Wait()
	select {
	case <-all:
	case <-time.After(waitLimit):
		mu.Lock()
		t.Errorf("%d of %d are finished", len(finished), total)
		mu.Unlock()
	}
	cancel()
	consumers.Wait()
}

// When a stream ends, its unsent tasks go to others at once; the worker holds the sent ones until the lease
// ends.
func TestDetach(t *testing.T) {
	const lease = 10_007 * time.Millisecond // no other timer waits that long
	clock := grouptest.NewHandClock()
	cfg := memConfig(t, vfs.NewMem(), stable.NewMemory(), 1)
	cfg.Clock = clock
	n := startNode(t, cfg)
	r, d := n.Router(), n.Dispatcher()
	leaving := d.Attach(workers.Spec{ID: "leaving", Namespace: ns, Functions: []string{"f"}, LeaseMS: lease.Milliseconds(), Capacity: 5})
	for k := range 5 {
		must(t, r, startCmd(fmt.Sprint("s", k), fmt.Sprint("x", k), "f", ""))
	}
	waitFor(t, "five tasks to be its own", func() bool { return len(held(t, n.router.Replicas()[0], "leaving")) == 5 }, func() string { return "" })
	sent := deliver(t, leaving)
	leaving.Detach()
	leaving.Detach() // again does nothing
	staying := d.Attach(spec("staying", 10, "f"))
	defer staying.Detach()
	for range 4 {
		if token := deliver(t, staying); token.Id == sent.Id {
			t.Errorf("%s was sent to another before its lease ended", token.Id)
		}
	}
	nothing(t, n, staying)
	if mine := held(t, n.router.Replicas()[0], "leaving"); len(mine) != 1 || mine[0].Id != sent.Id {
		t.Errorf("it holds %v", mine)
	}
	next := make(chan workers.Delivery, 1)
	go func() {
		d, _ := staying.Next(bg(t))
		next <- d
	}()
	waitFor(t, "the lease to end", func() bool {
		if clock.Armed(lease) { // again, if the timer read the time before and was armed after an advance
			clock.Advance(lease)
		}
		return len(next) == 1
	}, func() string { return "" })
	if d := <-next; d.Token.GetId() != sent.Id {
		t.Errorf("it receives %v", d)
	}
	if _, err := r.Propose(bg(t), commitCmd("late", &perdurev1.Commit{Task: sent, Events: []*perdurev1.Event{returnEvent("late")}})); reasonOf(err) != perdurev1.Reason_REASON_STALE_TASK {
		t.Errorf("the former holder's commit: %v", err)
	}
}

// A worker that comes back under its name receives again the tasks that it does not know it holds. They use
// its capacity, once.
func TestSentAgain(t *testing.T) {
	n := newMemNode(t, 1)
	r, d := n.Router(), n.Dispatcher()
	w := d.Attach(spec("w", 3, "f"))
	for k := range 3 {
		must(t, r, startCmd(fmt.Sprint("s", k), fmt.Sprint("x", k), "f", ""))
	}
	known := deliver(t, w)
	deliver(t, w)
	deliver(t, w)
	// Its stream breaks; it comes back and knows of one.
	knowing := spec("w", 2, "f")
	knowing.Held = []*perdurev1.TaskToken{known}
	again := d.Attach(knowing)
	defer again.Detach()
	seen := map[string]int{}
	for range 2 {
		seen[deliver(t, again).Id]++
	}
	if seen["x1"] != 1 || seen["x2"] != 1 {
		t.Errorf("sent again: %v", seen)
	}
	must(t, r, startCmd("s3", "x3", "f", ""))
	nothing(t, n, again)
	again.AddCapacity(1)
	if got := deliver(t, again); got.Id != "x3" {
		t.Errorf("then: %v", got)
	}
	nothing(t, n, again)
	// A worker that knows of none, and has no capacity, receives all.
	third := d.Attach(spec("w", 0, "f"))
	defer third.Detach()
	for range 4 {
		deliver(t, third)
	}
	nothing(t, n, third)
	third.AddCapacity(1)
	must(t, r, startCmd("s4", "x4", "f", ""))
	if got := deliver(t, third); got.Id != "x4" {
		t.Errorf("at last: %v", got)
	}
}

// Two workers with capacity share the load.
func TestWorkersShare(t *testing.T) {
	t.Parallel() // it waits most of the time
	n := newMemNode(t, 2)
	r, d := n.Router(), n.Dispatcher()
	a, b := d.Attach(spec("a", 100, "f")), d.Attach(spec("b", 100, "f"))
	defer a.Detach()
	defer b.Detach()
	const many = 60
	for k := range many {
		must(t, r, startCmd(fmt.Sprint("s", k), fmt.Sprint("x", k), "f", ""))
	}
	given := func(id string) int {
		return len(held(t, n.router.Replicas()[0], id)) + len(held(t, n.router.Replicas()[1], id))
	}
	waitFor(t, "all to be given out", func() bool { return given("a")+given("b") == many }, func() string { return fmt.Sprint(given("a"), given("b")) })
	if given("a") < many/4 || given("b") < many/4 {
		t.Errorf("a has %d, b has %d", given("a"), given("b"))
	}
	if d.Workers() != 2 {
		t.Errorf("%d workers", d.Workers())
	}
}

// Tasks of a function without a worker wait, and delay no others, until a worker serves it.
func TestUnservedFunctionWaits(t *testing.T) {
	n := newMemNode(t, 1)
	r, d := n.Router(), n.Dispatcher()
	w := d.Attach(spec("w", 10, "served"))
	defer w.Detach()
	must(t, r, startCmd("s1", "waits", "unserved", ""))
	must(t, r, startCmd("s2", "runs", "served", ""))
	if got := deliver(t, w); got.Id != "runs" {
		t.Errorf("received %v", got)
	}
	nothing(t, n, w)
	if e := mustQuery(t, r, describeQuery("waits")).GetDescribe().Execution; e.Task.State != "pending" {
		t.Errorf("it is %v", e)
	}
	late := d.Attach(spec("late", 1, "served", "unserved"))
	defer late.Detach()
	if got := deliver(t, late); got.Id != "waits" {
		t.Errorf("received %v", got)
	}
}

// Workers of one namespace receive nothing of another's.
func TestNamespacesAreApart(t *testing.T) {
	n := newMemNode(t, 1)
	r, d := n.Router(), n.Dispatcher()
	other := d.Attach(workers.Spec{ID: "other", Namespace: "elsewhere", Functions: []string{"f"}, LeaseMS: 600_000, Capacity: 10})
	defer other.Detach()
	must(t, r, startCmd("s", "x", "f", ""))
	nothing(t, n, other)
	elsewhere := startCmd("s2", "x", "f", "")
	elsewhere.Namespace = "elsewhere"
	must(t, r, elsewhere)
	if got := deliver(t, other); got.Namespace != "elsewhere" || got.Id != "x" {
		t.Errorf("received %v", got)
	}
	nothing(t, n, other)
	mine := d.Attach(spec("mine", 10, "f"))
	defer mine.Detach()
	if got := deliver(t, mine); got.Namespace != ns || got.Id != "x" {
		t.Errorf("received %v", got)
	}
}

// A worker does not end the session of another namespace's worker by having its id.
func TestNamespacesHaveWorkersOfTheirOwn(t *testing.T) {
	n := newMemNode(t, 1)
	r, d := n.Router(), n.Dispatcher()
	mine := d.Attach(spec("w", 1, "f"))
	defer mine.Detach()
	theirs := d.Attach(workers.Spec{ID: "w", Namespace: "elsewhere", Functions: []string{"f"}, LeaseMS: 600_000, Capacity: 1})
	defer theirs.Detach()
	if d.Workers() != 2 || !d.Attached(ns, "w") || !d.Attached("elsewhere", "w") || d.Attached("nowhere", "w") {
		t.Errorf("%d workers are attached, of two", d.Workers())
	}
	must(t, r, startCmd("s", "x", "f", ""))
	if got := deliver(t, mine); got.Namespace != ns {
		t.Errorf("received %v", got)
	}
	elsewhere := startCmd("s2", "x", "f", "")
	elsewhere.Namespace = "elsewhere"
	must(t, r, elsewhere)
	if got := deliver(t, theirs); got.Namespace != "elsewhere" {
		t.Errorf("received %v", got)
	}
}

// A worker receives a cancel for a task that it holds, and only then.
func TestCancelIsDelivered(t *testing.T) {
	n := newMemNode(t, 1)
	r, d := n.Router(), n.Dispatcher()
	w, idle := d.Attach(spec("w", 1, "f")), d.Attach(spec("idle", 0, "f"))
	defer w.Detach()
	defer idle.Detach()
	must(t, r, startCmd("s", "x", "f", ""))
	token := deliver(t, w)
	must(t, r, cancelCmd("x", 60_000))
	got, ok := w.Next(bg(t))
	if !ok || !got.Cancelling || got.Token.Id != "x" || got.Token.Version != token.Version {
		t.Errorf("received %+v, %v", got, ok)
	}
	nothing(t, n, idle)
}

// Capacity that comes later is filled at once with waiting tasks, oldest first.
func TestCapacityComesLater(t *testing.T) {
	n := newMemNode(t, 1)
	r, d := n.Router(), n.Dispatcher()
	for k := range 6 {
		must(t, r, startCmd(fmt.Sprint("s", k), fmt.Sprint("x", k), "f", ""))
	}
	w := d.Attach(spec("w", 0, "f"))
	defer w.Detach()
	nothing(t, n, w)
	w.AddCapacity(-3) // a negative capacity adds none
	w.AddCapacity(0)
	nothing(t, n, w)
	next := 0
	for _, capacity := range []int{1, 2, 3} {
		w.AddCapacity(capacity)
		for range capacity {
			if got := deliver(t, w).Id; got != fmt.Sprint("x", next) {
				t.Errorf("number %d is %s", next, got)
			}
			next++
		}
		nothing(t, n, w)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, ok := w.Next(ctx); ok {
		t.Error("received more")
	}
}
