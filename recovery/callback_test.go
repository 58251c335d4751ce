package recovery

import (
	"slices"
	"testing"
)

func TestRegisterCallback(t *testing.T) {
	w := newWorld(t)
	w.make("x", false, 1000)
	w.make("a", true, 500)
	_, _, err := Create(w.s, 0, CreateRequest{ID: "plain", Incarnation: 7, TimeoutAt: 1000}, retry)
	w.ok(0, err)

	register := func(now int64, awaited, awaiter Ref, anyAwaited bool) Registered {
		t.Helper()
		got, err := RegisterCallback(w.s, now, awaited, awaiter, anyAwaited)
		w.ok(now, err)
		return got
	}
	for range 2 {
		got := register(1, Ref{"x", 7}, Ref{"a", 7}, false)
		if !got.Waiting || got.Promise.ID != "x" {
			t.Errorf("got %+v", got)
		}
		if cb := w.s.Callbacks("x"); !slices.Equal(cb, []string{"a"}) {
			t.Errorf("callbacks %q", cb)
		}
	}
	w.is(showTask(w.task("a")), "task a#7 pending v0 target=w retry=100")

	// An awaited promise has a timer, even if it is not awaitable by itself.
	if _, armed := w.promise("plain").Deadline(false); armed {
		t.Error("no task waits for it yet")
	}
	if !register(1, Ref{ID: "plain"}, Ref{ID: "a"}, true).Waiting {
		t.Error("not registered")
	}
	if ps, _ := w.s.Expired(1000); !slices.Contains(ps, "plain") {
		t.Errorf("due %q", ps)
	}

	before := dump(w.s)
	if got := register(1000, Ref{ID: "x"}, Ref{ID: "a"}, false); got.Waiting || got.Promise.State != PromiseRejectedTimedout {
		t.Errorf("awaited is past its deadline: %+v", got)
	}
	if got := register(500, Ref{ID: "x"}, Ref{ID: "a"}, false); got.Waiting || got.Promise.State != PromisePending {
		t.Errorf("awaiter is past its deadline: %+v", got)
	}
	w.is(dump(w.s), before)
}

// A settled promise is the answer and resumes no task.
func TestRegisterCallbackOnSettled(t *testing.T) {
	w := newWorld(t)
	w.make("x", false, 1000)
	w.make("y", false, 1000)
	w.sleep("a", 1000, "y")
	_, err := Settle(w.s, 2, Ref{ID: "x"}, PromiseResolved, []byte("v"))
	w.ok(2, err)
	before := dump(w.s)
	got, err := RegisterCallback(w.s, 3, Ref{ID: "x"}, Ref{ID: "a"}, false)
	w.ok(3, err)
	if got.Waiting || string(got.Promise.Value) != "v" {
		t.Errorf("got %+v", got)
	}
	w.is(dump(w.s), before)
}

func TestRegisterCallbackRefuses(t *testing.T) {
	w := newWorld(t)
	w.make("x", false, 1000)
	w.make("a", true, 1000)
	_, _, err := Create(w.s, 0, CreateRequest{ID: "plain", Incarnation: 7, TimeoutAt: 1000}, retry)
	w.ok(0, err)
	for name, tc := range map[string]struct {
		awaited, awaiter Ref
		code             Code
		rule             string
	}{
		"no awaited":          {Ref{}, Ref{ID: "a"}, Invalid, RuleID},
		"no awaiter":          {Ref{ID: "x"}, Ref{}, Invalid, RuleID},
		"itself":              {Ref{ID: "a"}, Ref{ID: "a"}, Invalid, RuleSelfAwait},
		"awaited missing":     {Ref{ID: "m"}, Ref{ID: "n"}, NotFound, RulePromise},
		"awaited reborn":      {Ref{"x", 8}, Ref{ID: "a"}, Conflict, RuleIncarnation},
		"awaiter missing":     {Ref{ID: "x"}, Ref{ID: "n"}, Precondition, RuleAwaiter},
		"awaiter reborn":      {Ref{ID: "x"}, Ref{"a", 8}, Conflict, RuleIncarnation},
		"awaiter, no target":  {Ref{ID: "a"}, Ref{ID: "x"}, Precondition, RuleAwaiter},
		"awaiter, bare":       {Ref{ID: "x"}, Ref{ID: "plain"}, Precondition, RuleAwaiter},
		"awaited not offered": {Ref{ID: "plain"}, Ref{ID: "a"}, Precondition, RuleExternal},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{T: t, s: w.s}
			w.refused(tc.code, tc.rule, func() error {
				_, err := RegisterCallback(w.s, 3, tc.awaited, tc.awaiter, false)
				return err
			})
		})
	}
}
