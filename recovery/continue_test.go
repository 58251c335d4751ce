package recovery

import "testing"

func TestContinue(t *testing.T) {
	w := newWorld(t)
	w.hold("a", 1000)
	w.hold("b", 1000)
	_, err := Halt(w.s, 2, Ref{ID: "a"})
	w.ok(2, err)
	Resume(w.s, 3, "a", "x", retry)
	carryOn := func(now int64, ref Ref) func() error {
		return func() error {
			_, _, err := Continue(w.s, now, ref, retry)
			return err
		}
	}
	w.refused(Conflict, RuleState, carryOn(1000, Ref{ID: "a"}))
	w.refused(Conflict, RuleIncarnation, carryOn(4, Ref{"a", 8}))
	w.refused(Conflict, RuleState, carryOn(4, Ref{ID: "b"}))
	w.refused(NotFound, RuleTask, carryOn(4, Ref{ID: "m"}))

	got, fx, err := Continue(w.s, 4, Ref{"a", 7}, retry)
	w.ok(4, err)
	w.is(showTask(got), "task a#7 pending v1 target=w retry=104 resumes=x")
	w.is(showTask(w.task("a")), showTask(got))
	w.effects(fx, "execute a#7 v1 to w")
	w.refused(Conflict, RuleState, carryOn(5, Ref{ID: "a"}))
}
