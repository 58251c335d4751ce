package recovery

import (
	"math"
	"testing"
)

func TestAcquire(t *testing.T) {
	w := newWorld(t)
	w.make("a", true, 1000)
	Resume(w.s, 1, "a", "x", retry)
	h, err := Acquire(w.s, 5, TaskRef{"a", 7, 0}, "p", ttl)
	w.ok(5, err)
	w.is(showTask(h.Task), "task a#7 acquired v1 target=w pid=p ttl=50 lease=55")
	w.is(showTask(w.task("a")), showTask(h.Task))
	w.is(showPromise(h.Promise), showPromise(w.promise("a")))

	acquire := func(now int64, ref TaskRef) func() error {
		return func() error {
			_, err := Acquire(w.s, now, ref, "q", ttl)
			return err
		}
	}
	w.refused(Conflict, RuleState, acquire(6, TaskRef{"a", 0, 0}))
	w.refused(Conflict, RuleState, acquire(54, TaskRef{"a", 0, 1}))
	e := w.refused(Conflict, RuleVersion, acquire(55, TaskRef{"a", 0, 0}))
	if e.Have != 1 || e.Want != 0 {
		t.Errorf("have %d, want %d", e.Have, e.Want)
	}
	w.refused(Conflict, RuleIncarnation, acquire(55, TaskRef{"a", 8, 1}))
	w.refused(Conflict, RuleState, acquire(1000, TaskRef{"a", 0, 1}))
	w.refused(NotFound, RuleTask, acquire(6, TaskRef{"m", 0, 0}))
	w.refused(Invalid, RuleID, acquire(6, TaskRef{}))

	// An expired lease counts as ended before ExpireLease has run.
	if err := acquire(55, TaskRef{"a", 7, 1})(); err != nil {
		t.Fatal(err)
	}
	w.sound(55)
	w.is(showTask(w.task("a")), "task a#7 acquired v2 target=w pid=q ttl=50 lease=105")
}

func TestAcquireRefusesALeaseNobodyCouldHold(t *testing.T) {
	w := newWorld(t)
	w.make("a", true, 1000)
	for _, lease := range []struct {
		pid string
		ttl int64
	}{{"", 5}, {"p", 0}, {"p", math.MinInt64}} {
		w.refused(Invalid, RuleLease, func() error {
			_, err := Acquire(w.s, 1, TaskRef{ID: "a"}, lease.pid, lease.ttl)
			return err
		})
	}
}

// A lease longer than time is one that ends with time, not one that is over at once.
func TestAcquireForEver(t *testing.T) {
	w := newWorld(t)
	w.make("a", true, math.MaxInt64)
	h, err := Acquire(w.s, 5, TaskRef{ID: "a"}, "p", math.MaxInt64)
	w.ok(5, err)
	if h.Task.LeaseAt != math.MaxInt64 {
		t.Errorf("the lease ends at %d", h.Task.LeaseAt)
	}
	if _, err := Fence(w.s, math.MaxInt64-1, h.Task.ref()); err != nil {
		t.Error(err)
	}
}
