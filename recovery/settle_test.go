package recovery

import (
	"slices"
	"testing"
)

func TestSettle(t *testing.T) {
	for _, state := range []PromiseState{PromiseResolved, PromiseRejected, PromiseRejectedCanceled} {
		t.Run(state.String(), func(t *testing.T) {
			w := newWorld(t)
			w.make("x", false, 1000)
			w.make("other", false, 1000)
			w.sleep("b", 1000, "x")
			w.sleep("a", 1000, "x", "other")
			for _, address := range []string{"l2", "l1"} {
				_, err := RegisterListener(w.s, 2, Ref{ID: "x"}, address, false)
				w.ok(2, err)
			}
			st, err := Settle(w.s, 3, Ref{ID: "x", Incarnation: 7}, state, []byte("v"))
			if err != nil {
				t.Fatal(err)
			}
			w.is(showPromise(st.Promise), "promise x#7 "+state.String()+" timeout=1000 created=0 settled=3 value=v external")
			w.is(showPromise(w.promise("x")), showPromise(st.Promise))
			if !st.Changed || !slices.Equal(st.Awaiters, []string{"a", "b"}) || !slices.Equal(st.Listeners, []string{"l1", "l2"}) {
				t.Errorf("got %+v", st)
			}
			if got := w.s.Callbacks("x"); len(got) != 0 {
				t.Errorf("callbacks %q are left", got)
			}
			if got := w.s.Listeners("x"); len(got) != 0 {
				t.Errorf("listeners %q are left", got)
			}
			// The first half leaves the awaiters as they were.
			w.is(showTask(w.task("a")), "task a#7 suspended v1 target=w")
			if got := w.s.AwaitedBy("a"); !slices.Equal(got, []string{"other"}) {
				t.Errorf("a awaits %q", got)
			}

			before := dump(w.s)
			again, err := Settle(w.s, 9, Ref{ID: "x"}, PromiseRejected, []byte("w"))
			if err != nil || again.Changed || again.Awaiters != nil || again.Listeners != nil {
				t.Errorf("got %+v, %v", again, err)
			}
			w.is(showPromise(again.Promise), showPromise(st.Promise))
			w.is(dump(w.s), before)
		})
	}
}

// Settling a promise fulfils its task in any state and removes the task's callbacks.
func TestSettleFulfillsTheTask(t *testing.T) {
	w := newWorld(t)
	w.make("x", false, 1000)
	w.sleep("a", 1000, "x")
	st, err := Settle(w.s, 3, Ref{ID: "a"}, PromiseResolved, nil)
	w.ok(3, err)
	w.is(showTask(w.task("a")), "task a#7 fulfilled v1 target=w")
	if got := w.s.Callbacks("x"); len(got) != 0 {
		t.Errorf("x still wakes %q", got)
	}
	if len(st.Awaiters) != 0 {
		t.Errorf("awaiters %q", st.Awaiters)
	}
}

func TestSettleAtTheDeadline(t *testing.T) {
	w := newWorld(t)
	w.make("x", false, 1000)
	before := dump(w.s)
	st, err := Settle(w.s, 1000, Ref{ID: "x"}, PromiseResolved, []byte("late"))
	w.ok(1000, err)
	w.is(showPromise(st.Promise), "promise x#7 rejected_timedout timeout=1000 created=0 settled=1000 external")
	if st.Changed {
		t.Error("the timeout must win")
	}
	w.is(dump(w.s), before)
	st, err = Settle(w.s, 999, Ref{ID: "x"}, PromiseResolved, []byte("in time"))
	w.ok(999, err)
	if !st.Changed {
		t.Error("it was in time")
	}
}

func TestSettleRefuses(t *testing.T) {
	w := newWorld(t)
	w.make("x", false, 1000)
	settle := func(ref Ref, state PromiseState) func() error {
		return func() error {
			_, err := Settle(w.s, 3, ref, state, nil)
			return err
		}
	}
	for _, state := range []PromiseState{0, PromisePending, PromiseRejectedTimedout, 6} {
		w.refused(Invalid, RuleSettleTo, settle(Ref{ID: "missing"}, state))
	}
	w.refused(Invalid, RuleID, settle(Ref{}, PromiseResolved))
	w.refused(NotFound, RulePromise, settle(Ref{ID: "missing"}, PromiseResolved))
	e := w.refused(Conflict, RuleIncarnation, settle(Ref{ID: "x", Incarnation: 6}, PromiseResolved))
	if e.Have != 7 || e.Want != 6 {
		t.Errorf("got have %d, want %d", e.Have, e.Want)
	}
}
