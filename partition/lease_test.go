package partition

import (
	"testing"

	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/partition/group"
)

// firstExpiration is the earliest deadline in a replica's state.
func firstExpiration(t *testing.T, r *group.Replica) (at int64) {
	t.Helper()
	if err := r.Store().View(func(state state.Reader) (err error) {
		at, _, err = query.NextExpiration(state)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return at
}

// A new leader gives the leases that it inherits their full time from when it begins to serve.
func TestLeasesAreInherited(t *testing.T) {
	t.Parallel() // it waits most of the time
	all := newClusterWith(t, 3, neverActs)
	at := all[0]
	w := at.Dispatcher().Attach(spec("w", 1, "f"))
	defer w.Detach()
	const p = 1
	id := startIn(t, at.router, p, "x")
	if got := deliver(t, w); got.Id != id {
		t.Fatalf("received %v", got)
	}
	granted := firstExpiration(t, leaderOf(t, all, p).router.slots[p].Load())
	waitFor(t, "a millisecond to pass", func() bool { return at.clock.Now().UnixMilli() > granted-w.LeaseMS }, func() string { return "" })
	moved := at.clock.Now().UnixMilli()
	move(t, all, p)
	if ends := firstExpiration(t, leaderOf(t, all, p).router.slots[p].Load()); ends < moved+w.LeaseMS {
		t.Errorf("%d ms after a new leader was asked for, a lease of %d ms ends %d ms after it", ends-moved, w.LeaseMS, ends-moved)
	}
}
