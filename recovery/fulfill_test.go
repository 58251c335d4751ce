package recovery

import (
	"slices"
	"testing"
)

func TestFulfill(t *testing.T) {
	w := newWorld(t)
	ref := w.hold("a", 1000)
	w.sleep("b", 1000, "a")
	_, err := RegisterCallback(w.s, 2, Ref{ID: "b"}, Ref{ID: "a"}, false)
	w.ok(2, err)
	st, err := Fulfill(w.s, 3, ref, PromiseRejected, []byte("e"))
	if err != nil {
		t.Fatal(err)
	}
	w.is(showPromise(w.promise("a")), "promise a#7 rejected timeout=1000 created=0 settled=3 target=w value=e")
	w.is(showPromise(st.Promise), showPromise(w.promise("a")))
	w.is(showTask(w.task("a")), "task a#7 fulfilled v1 target=w")
	if !st.Changed || !slices.Equal(st.Awaiters, []string{"b"}) {
		t.Errorf("got %+v", st)
	}
	if got := w.s.AwaitedBy("a"); len(got) != 0 {
		t.Errorf("it still awaits %q", got)
	}
	Propagate(w.s, 3, st, retry)
	w.sound(3)
	w.refused(Conflict, RuleState, func() error {
		_, err := Fulfill(w.s, 4, ref, PromiseRejected, []byte("e"))
		return err
	})
}

func TestFulfillRefuses(t *testing.T) {
	w := newWorld(t)
	ref := w.hold("a", 1000)
	for _, tc := range []struct {
		now   int64
		ref   TaskRef
		state PromiseState
		code  Code
		rule  string
	}{
		{5, ref, PromisePending, Invalid, RuleSettleTo},
		{5, ref, PromiseRejectedTimedout, Invalid, RuleSettleTo},
		{5, TaskRef{}, PromiseResolved, Invalid, RuleID},
		{5, TaskRef{ID: "m"}, PromiseResolved, NotFound, RuleTask},
		{5, TaskRef{"a", 7, 0}, PromiseResolved, Conflict, RuleVersion},
		{5, TaskRef{"a", 8, 1}, PromiseResolved, Conflict, RuleIncarnation},
		{ttl, ref, PromiseResolved, Conflict, RuleState},
		{1000, ref, PromiseResolved, Conflict, RuleState},
	} {
		w.refused(tc.code, tc.rule, func() error {
			_, err := Fulfill(w.s, tc.now, tc.ref, tc.state, nil)
			return err
		})
	}
}
