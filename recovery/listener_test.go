package recovery

import (
	"slices"
	"testing"
)

func TestRegisterListener(t *testing.T) {
	w := newWorld(t)
	w.make("x", false, 1000)
	for _, address := range []string{"l2", "l1", "l2"} {
		got, err := RegisterListener(w.s, 1, Ref{"x", 7}, address, false)
		w.ok(1, err)
		if !got.Waiting || got.Promise.State != PromisePending {
			t.Errorf("got %+v", got)
		}
	}
	if got := w.s.Listeners("x"); !slices.Equal(got, []string{"l1", "l2"}) {
		t.Errorf("listeners %q", got)
	}

	before := dump(w.s)
	got, err := RegisterListener(w.s, 1000, Ref{ID: "x"}, "l3", false)
	w.ok(1000, err)
	if got.Waiting || got.Promise.State != PromiseRejectedTimedout {
		t.Errorf("past the deadline: %+v", got)
	}
	w.is(dump(w.s), before)

	_, _, err = Create(w.s, 2, CreateRequest{ID: "plain", Incarnation: 7, TimeoutAt: 900}, retry)
	w.ok(2, err)
	if ps, _ := w.s.Expired(900); len(ps) != 0 {
		t.Errorf("due %q", ps)
	}
	_, err = RegisterListener(w.s, 2, Ref{ID: "plain"}, "l", true)
	w.ok(2, err)
	if ps, _ := w.s.Expired(900); !slices.Equal(ps, []string{"plain"}) {
		t.Errorf("due %q", ps)
	}
}

func TestRegisterListenerRefuses(t *testing.T) {
	w := newWorld(t)
	_, _, err := Create(w.s, 0, CreateRequest{ID: "plain", Incarnation: 7, TimeoutAt: 1000}, retry)
	w.ok(0, err)
	listen := func(ref Ref, address string) func() error {
		return func() error {
			_, err := RegisterListener(w.s, 3, ref, address, false)
			return err
		}
	}
	w.refused(Invalid, RuleAddress, listen(Ref{ID: "plain"}, ""))
	w.refused(Invalid, RuleID, listen(Ref{}, "l"))
	w.refused(NotFound, RulePromise, listen(Ref{ID: "m"}, "l"))
	w.refused(Conflict, RuleIncarnation, listen(Ref{"plain", 8}, "l"))
	w.refused(Precondition, RuleExternal, listen(Ref{ID: "plain"}, "l"))
}
