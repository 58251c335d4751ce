package recovery

import "testing"

func TestHalt(t *testing.T) {
	w := newWorld(t)
	w.make("x", false, 1000)
	w.make("pending", true, 1000)
	w.hold("acquired", 1000)
	w.sleep("suspended", 1000, "x")
	for id, want := range map[string]string{
		"pending":   "task pending#7 halted v0 target=w resumes=r",
		"acquired":  "task acquired#7 halted v1 target=w resumes=r",
		"suspended": "task suspended#7 halted v1 target=w",
	} {
		if id != "suspended" {
			Resume(w.s, 1, id, "r", retry)
		}
		got, err := Halt(w.s, 2, Ref{id, 7})
		w.ok(2, err)
		w.is(showTask(got), want)
		w.is(showTask(w.task(id)), want)
		before := dump(w.s)
		got, err = Halt(w.s, 3, Ref{ID: id})
		w.ok(3, err)
		w.is(showTask(got), want)
		w.is(dump(w.s), before)
		w.refused(Conflict, RuleState, func() error {
			_, err := Acquire(w.s, 3, TaskRef{id, 7, got.Version}, "q", ttl)
			return err
		})
	}
	halt := func(now int64, ref Ref) func() error {
		return func() error {
			_, err := Halt(w.s, now, ref)
			return err
		}
	}
	w.refused(Conflict, RuleState, halt(1000, Ref{ID: "pending"}))
	w.refused(Conflict, RuleIncarnation, halt(3, Ref{"pending", 8}))
	w.refused(NotFound, RuleTask, halt(3, Ref{ID: "x"}))
	w.refused(Invalid, RuleID, halt(3, Ref{}))
}
