package recovery

import (
	"slices"
	"testing"
)

func TestSuspend(t *testing.T) {
	w := newWorld(t)
	w.make("x", false, 1000)
	w.make("y", true, 1000)
	_, _, err := Create(w.s, 0, CreateRequest{ID: "z", Incarnation: 7, TimeoutAt: 1000, Timer: true}, retry)
	w.ok(0, err)
	ref := w.hold("a", 1000)
	Resume(w.s, 1, "a", "earlier", retry)
	got, err := Suspend(w.s, 2, ref, []Ref{{"y", 7}, {"x", 0}, {"z", 0}, {"y", 0}}, false)
	w.ok(2, err)
	w.is(showTask(got.Task), "task a#7 suspended v1 target=w")
	w.is(showTask(w.task("a")), showTask(got.Task))
	if got.Ready != nil {
		t.Errorf("ready %v", got.Ready)
	}
	if on := w.s.AwaitedBy("a"); !slices.Equal(on, []string{"x", "y", "z"}) {
		t.Errorf("awaits %q", on)
	}
}

// One settled promise lets the worker continue; nothing is registered on the others.
func TestSuspendOnSettled(t *testing.T) {
	w := newWorld(t)
	for _, id := range []string{"x", "y"} {
		w.make(id, false, 1000)
	}
	w.make("due", false, 20)
	ref := w.hold("a", 1000)
	Resume(w.s, 1, "a", "x", retry)
	_, err := Settle(w.s, 2, Ref{ID: "x"}, PromiseResolved, []byte("v"))
	w.ok(2, err)
	got, err := Suspend(w.s, 20, ref, []Ref{{ID: "y"}, {ID: "x"}, {ID: "due"}, {ID: "x"}}, false)
	w.ok(20, err)
	w.is(showTask(got.Task), "task a#7 acquired v1 target=w pid=p ttl=50 lease=50")
	w.is(showTask(w.task("a")), showTask(got.Task))
	if len(got.Ready) != 2 {
		t.Fatalf("ready %v", got.Ready)
	}
	w.is(showPromise(got.Ready[0]), "promise due#7 rejected_timedout timeout=20 created=0 settled=20 external")
	w.is(showPromise(got.Ready[1]), showPromise(w.promise("x")))
	if on := w.s.AwaitedBy("a"); len(on) != 0 {
		t.Errorf("awaits %q", on)
	}
	// It holds the lease still.
	if _, err := Fence(w.s, 21, ref); err != nil {
		t.Error(err)
	}
}

func TestSuspendRefuses(t *testing.T) {
	w := newWorld(t)
	ref := w.hold("a", 1000)
	w.make("x", false, 1000)
	_, _, err := Create(w.s, 0, CreateRequest{ID: "plain", Incarnation: 7, TimeoutAt: 1000}, retry)
	w.ok(0, err)
	suspend := func(now int64, ref TaskRef, awaited ...Ref) func() error {
		return func() error {
			_, err := Suspend(w.s, now, ref, awaited, false)
			return err
		}
	}
	x := Ref{ID: "x"}
	w.refused(Invalid, RuleAwaitsSome, suspend(5, ref))
	w.refused(Invalid, RuleID, suspend(5, ref, x, Ref{}))
	w.refused(Invalid, RuleSelfAwait, suspend(5, ref, x, Ref{ID: "a"}))
	w.refused(Invalid, RuleID, suspend(5, TaskRef{}, x))
	w.refused(NotFound, RuleTask, suspend(5, TaskRef{ID: "m"}, x))
	w.refused(Conflict, RuleVersion, suspend(5, TaskRef{"a", 7, 2}, x))
	w.refused(Conflict, RuleState, suspend(ttl, ref, x))
	w.refused(Conflict, RuleState, suspend(1000, ref, x))
	w.refused(Precondition, RuleAwaited, suspend(5, ref, x, Ref{ID: "m"}))
	w.refused(Precondition, RuleExternal, suspend(5, ref, x, Ref{ID: "plain"}))
	e := w.refused(Conflict, RuleIncarnation, suspend(5, ref, Ref{"x", 9}))
	if e.ID != "x" || e.Have != 7 || e.Want != 9 {
		t.Errorf("got %+v", e)
	}
	// The state of the task comes before what it awaits.
	w.refused(Conflict, RuleState, suspend(ttl, ref, Ref{ID: "m"}))

	got, err := Suspend(w.s, 5, ref, []Ref{{ID: "plain"}}, true)
	w.ok(5, err)
	w.is(showTask(got.Task), "task a#7 suspended v1 target=w")
}
