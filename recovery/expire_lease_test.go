package recovery

import "testing"

func TestExpireLease(t *testing.T) {
	w := newWorld(t)
	w.hold("a", 1000)
	w.hold("short", 60)
	w.make("pending", true, 1000)
	Resume(w.s, 1, "a", "x", retry)
	before := dump(w.s)
	for _, tc := range []struct {
		now int64
		ref Ref
	}{
		{ttl - 1, Ref{ID: "a"}},
		{60, Ref{ID: "short"}}, // its deadline takes precedence
		{ttl, Ref{"a", 8}},
		{500, Ref{ID: "pending"}},
		{500, Ref{ID: "missing"}},
		{500, Ref{}},
	} {
		if done, fx := ExpireLease(w.s, tc.now, tc.ref, retry); done || !fx.Empty() {
			t.Errorf("%v at %d: done %v, effects %v", tc.ref, tc.now, done, fx)
		}
	}
	w.is(dump(w.s), before)

	done, fx := ExpireLease(w.s, ttl, Ref{"a", 7}, retry)
	w.sound(ttl)
	if !done {
		t.Error("not done")
	}
	w.effects(fx, "execute a#7 v1 to w")
	w.is(showTask(w.task("a")), "task a#7 pending v1 target=w retry=150 resumes=x")
	if again, _ := ExpireLease(w.s, ttl, Ref{ID: "a"}, retry); again {
		t.Error("done twice")
	}
}
