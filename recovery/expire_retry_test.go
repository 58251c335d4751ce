package recovery

import "testing"

func TestExpireRetry(t *testing.T) {
	w := newWorld(t)
	w.make("a", true, 1000)
	w.hold("held", 1000)
	w.make("short", true, 150)
	before := dump(w.s)
	for _, tc := range []struct {
		now int64
		ref Ref
	}{
		{retry - 1, Ref{ID: "a"}},
		{150, Ref{ID: "short"}}, // no worker is notified of a task past its deadline
		{retry, Ref{"a", 8}},
		{500, Ref{ID: "held"}},
		{500, Ref{ID: "missing"}},
	} {
		if done, fx := ExpireRetry(w.s, tc.now, tc.ref, retry); done || !fx.Empty() {
			t.Errorf("%v at %d: done %v, effects %v", tc.ref, tc.now, done, fx)
		}
	}
	w.is(dump(w.s), before)

	done, fx := ExpireRetry(w.s, retry+5, Ref{"a", 7}, retry)
	w.sound(retry + 5)
	if !done {
		t.Error("not done")
	}
	w.effects(fx, "execute a#7 v0 to w")
	w.is(showTask(w.task("a")), "task a#7 pending v0 target=w retry=205")

	// An interval that is none must not make the timer due for ever.
	for _, bad := range []int64{0, -5} {
		at := w.task("a").RetryAt
		if done, _ := ExpireRetry(w.s, at, Ref{ID: "a"}, bad); !done {
			t.Error("not done")
		}
		if got := w.task("a").RetryAt; got != at+1 {
			t.Errorf("interval %d: next at %d", bad, got)
		}
	}
}
