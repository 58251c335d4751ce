package partition

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"perdure/partition/grouptest"
	"perdure/partition/stable"
	"perdure/partition/workers"
)

// nextTask takes a worker's next delivery, with all its fields.
func nextTask(t *testing.T, w *workers.Worker) workers.Delivery {
	t.Helper()
	d, ok := w.Next(bg(t))
	if !ok || d.Task == nil {
		t.Fatalf("%s received %+v, %v", w.ID, d, ok)
	}
	return d
}

// A task carries the highest timestamp that its leader had from the worker before it acquired the task,
// whichever node leads. A task that is sent again carries none.
func TestTasksCarryTimestamps(t *testing.T) {
	t.Parallel() // it waits most of the time
	all := newClusterWith(t, 3, neverActs)
	s := spec("w", 9, "f")
	s.Timestamp, s.LeaseMS = 3, 10_000 // other nodes are notified a sixteenth of a lease apart
	w := all[0].Dispatcher().Attach(s)
	defer w.Detach()
	tasks := 0
	one := func(p uint32) workers.Delivery {
		tasks++
		id := startIn(t, all[0].router, p, fmt.Sprint("x", tasks))
		d := nextTask(t, w)
		if d.Token.Id != id {
			t.Fatalf("partition %d: received %s, want %s", p, d.Token.Id, id)
		}
		return d
	}
	for _, timestamp := range []uint64{3, 8} {
		for p := range uint32(3) {
			waitFor(t, fmt.Sprintf("a task of partition %d after %d", p, timestamp), func() bool {
				w.Heard(timestamp)
				w.Heard(2) // an older message that was overtaken
				d := one(p)
				finish(t, all[0].router, d.Token)
				w.Finished(d.Token)
				w.AddCapacity(1)
				if after := d.Task.AcquiredAfter; after < 3 || after > timestamp {
					t.Fatalf("partition %d: %s is acquired after %d, the worker has sent %d", p, d.Token.Id, after, timestamp)
				}
				return d.Task.AcquiredAfter == timestamp
			}, func() string { return all[0].dispatch.String() })
		}
	}
	for p := range uint32(3) {
		one(p)
	}
	later(t, all[0])
	again := all[0].Dispatcher().Attach(s)
	defer again.Detach()
	for range 3 {
		if d := nextTask(t, again); d.Task.AcquiredAfter != 0 || !d.Reserved.IsZero() {
			t.Errorf("sent again of %s, as acquired after %d", d.Token.Id, d.Task.AcquiredAfter)
		}
	}
}

// A worker that sends nothing for half its lease gets no credit, whether it hangs, pauses or is cut off;
// after its next message it gets credit again.
func TestSilentWorkerGetsNothing(t *testing.T) {
	clock := grouptest.NewHandClock()
	cfg := memConfig(t, vfs.NewMem(), stable.NewMemory(), 2)
	cfg.Clock = clock
	n := startNode(t, cfg)
	hanging := spec("w", 5, "f")
	hanging.LeaseMS = 2000
	w := n.Dispatcher().Attach(hanging)
	defer w.Detach()
	clock.Advance(1001 * time.Millisecond)
	ids := map[string]bool{startIn(t, n.Router(), 0, "x"): true, startIn(t, n.Router(), 1, "y"): true}
	nothing(t, n, w)
	other := n.Dispatcher().Attach(spec("other", 1, "f"))
	defer other.Detach()
	first := deliver(t, other).Id
	if !ids[first] {
		t.Fatalf("the other receives %s", first)
	}
	delete(ids, first)
	nothing(t, n, w)
	w.Heard(1)
	if got := deliver(t, w).Id; !ids[got] {
		t.Errorf("received %s", got)
	}
}

// Tasks that a worker was not sent when its stream ends go to others at once, whichever node has assigned
// them.
func TestUnsentTasksAreReturned(t *testing.T) {
	t.Parallel() // it waits most of the time
	all := newClusterWith(t, 3, neverActs)
	w := all[0].Dispatcher().Attach(spec("w", 9, "f"))
	ids := map[string]bool{}
	for p := range uint32(3) {
		ids[startIn(t, all[0].router, p, "x")] = true
	}
	waitFor(t, "all to be queued", func() bool { return w.Queued() == 3 }, func() string { return all[0].dispatch.String() })
	w.Detach()
	other := all[1].Dispatcher().Attach(spec("other", 9, "f"))
	defer other.Detach()
	for range 3 {
		d, ok := other.Next(bg(t))
		if !ok {
			var seen []string
			for _, m := range all {
				seen = append(seen, m.dispatch.String())
			}
			for id := range ids {
				seen = append(seen, mustQuery(t, all[1].router, describeQuery(id)).String())
			}
			t.Fatalf("not every task came:\n%s", strings.Join(seen, "\n"))
		}
		if !ids[d.Token.Id] || d.Token.Version < 2 {
			t.Errorf("received %v", d.Token)
		}
	}
}
