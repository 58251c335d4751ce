package recovery

import (
	"slices"
	"testing"
)

func TestTimeoutPromise(t *testing.T) {
	for name, tc := range map[string]struct {
		timer bool
		want  string
	}{
		"rejects":          {false, "promise x#7 rejected_timedout timeout=100 created=0 settled=100 target=w"},
		"resolves a timer": {true, "promise x#7 resolved timeout=100 created=0 settled=100 target=w timer"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			_, _, err := Create(w.s, 0, CreateRequest{ID: "x", Incarnation: 7, TimeoutAt: 100, Target: "w", Timer: tc.timer}, retry)
			w.ok(0, err)
			w.sleep("a", 1000, "x")
			_, err = RegisterListener(w.s, 2, Ref{ID: "x"}, "l", false)
			w.ok(2, err)
			before := dump(w.s)
			for _, early := range []struct {
				now int64
				ref Ref
			}{{99, Ref{ID: "x"}}, {100, Ref{"x", 6}}, {100, Ref{"x", 8}}, {500, Ref{ID: "missing"}}} {
				if st := TimeoutPromise(w.s, early.now, early.ref); st.Changed {
					t.Errorf("%v at %d: %+v", early.ref, early.now, st)
				}
			}
			w.is(dump(w.s), before)

			st := TimeoutPromise(w.s, 130, Ref{"x", 7})
			if !st.Changed || !slices.Equal(st.Awaiters, []string{"a"}) {
				t.Errorf("got %+v", st)
			}
			w.is(showPromise(w.promise("x")), tc.want)
			w.is(showTask(w.task("x")), "task x#7 fulfilled v0 target=w")
			w.effects(Propagate(w.s, 130, st, retry), "execute a#7 v1 to w", "unblock l: "+tc.want)
			w.sound(130)
			if again := TimeoutPromise(w.s, 130, Ref{ID: "x"}); again.Changed || again.Promise.State == PromisePending {
				t.Errorf("twice: %+v", again)
			}
		})
	}
}

// Deadlines at the same time may run in any order: no task past its own deadline is resumed.
func TestTimeoutOrderDoesNotMatter(t *testing.T) {
	var states []string
	for _, order := range [][]string{{"x", "a"}, {"a", "x"}} {
		w := newWorld(t)
		w.make("x", false, 100)
		w.sleep("a", 100, "x")
		for _, id := range order {
			w.effects(Propagate(w.s, 100, TimeoutPromise(w.s, 100, Ref{ID: id}), retry))
			w.sound(100)
		}
		states = append(states, dump(w.s))
	}
	if states[0] != states[1] {
		t.Errorf("one order gives\n%s\nthe other\n%s", states[0], states[1])
	}
}
