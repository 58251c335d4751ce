package machine

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/query"
)

// endedBefore is a query.Before that has one time for everything.
type endedBefore int64

func (b endedBefore) Of(string, string) (int64, bool) { return int64(b), true }
func (b endedBefore) Most(string) (int64, bool)       { return int64(b), true }

// endedPromises lists the promises that a retention finds, in pieces of a few keys.
func (w *world) endedPromises(before int64) (found []string) {
	w.t.Helper()
	for from := []byte(nil); ; {
		piece, next, err := query.EndedPromises(w.parts[0].state, from, 1, 2, endedBefore(before))
		if err != nil {
			w.t.Fatalf("search: %v", err)
		}
		for _, e := range piece {
			found = append(found, e.ID)
		}
		if from = next; from == nil {
			return found
		}
	}
}

// purgeEnded has a retention purge what it finds, which must be want.
func (w *world) purgeEnded(want ...string) {
	w.t.Helper()
	found := w.endedPromises(w.now - time.Minute.Milliseconds())
	if !slices.Equal(found, want) {
		w.t.Fatalf("found %q, must find %q", found, want)
	}
	for _, objectID := range found {
		if got := w.do(purgeCmd(objectID, func(r *perdurev1.PurgeRequest) { r.Force = false })).GetPurge().State; got != deleted {
			w.t.Fatalf("purge of %s: %v", objectID, got)
		}
		w.sound(w.parts[0])
	}
}

// A client's promises are purged from below, each once all above it are settled: an execution that may run again keeps its
// steps, and a new one of the same id finds none.
func TestPurgeClientPromises(t *testing.T) {
	w := newWorld(t, 1)
	later := func() { w.now += time.Hour.Milliseconds() }
	day := w.now + 24*time.Hour.Milliseconds()
	settle := func(objectID string) *perdurev1.SettleClientPromiseRequest {
		return &perdurev1.SettleClientPromiseRequest{Id: objectID, State: resolve}
	}
	w.step(&perdurev1.CreateClientTaskRequest{Promise: clientPromise("r", day, "resonate:target", worker), Pid: "p", TtlMs: day})
	w.step(clientPromise("r:0", day, "resonate:scope", "global"))
	w.step(clientPromise("r:1", w.now+1)) // a local step of a worker that crashed: nothing settles it
	w.step(clientPromise("r:d1", day, "resonate:target", worker), "execute r:d1 v0 at "+worker)
	w.step(clientPromise("r:d1.0", day))
	w.step(clientPromise("r-", day))
	w.step(clientPromise("open", day, "resonate:target", worker), "execute open v0 at "+worker)
	w.step(clientPromise("endless:0", math.MaxInt32<<20))
	w.step(clientPromise("orphan:0.1", day))
	for _, objectID := range []string{"r:0", "r:d1.0", "r-", "orphan:0.1"} {
		w.step(settle(objectID))
	}
	if found := w.endedPromises(w.now); len(found) > 0 {
		t.Fatalf("found %q, which were settled after the time", found)
	}
	later()
	w.purgeEnded("orphan:0.1", "r-")
	w.step(&perdurev1.FulfillClientTaskRequest{Id: "r", Version: 1, State: resolve})
	later()
	w.purgeEnded("r:0", "r:1")
	w.purgeEnded()
	w.step(settle("r:d1"))
	later()
	w.purgeEnded("r:d1.0")
	w.purgeEnded("r:d1")
	w.purgeEnded("r")
	w.purgeEnded()
	if left := w.left("r", 0); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	w.step(&perdurev1.CreateClientTaskRequest{Promise: clientPromise("r", day, "resonate:target", worker), Pid: "p", TtlMs: 1000})
	w.taskIs("r", fmt.Sprintf("r acquired v1 p/1000 until %d", w.now+1000))
}
