package recovery

import "testing"

func TestRelease(t *testing.T) {
	w := newWorld(t)
	ref := w.hold("a", 1000)
	Resume(w.s, 1, "a", "x", retry)
	task, fx, err := Release(w.s, 5, ref, 0, retry)
	w.ok(5, err)
	w.is(showTask(task), "task a#7 pending v1 target=w retry=105 resumes=x")
	w.is(showTask(w.task("a")), showTask(task))
	w.effects(fx, "execute a#7 v1 to w")

	h, err := Acquire(w.s, 6, ref, "p", ttl)
	w.ok(6, err)
	task, fx, err = Release(w.s, 7, h.Task.ref(), 33, retry)
	w.ok(7, err)
	w.is(showTask(task), "task a#7 pending v2 target=w retry=40")
	w.effects(fx)
	if done, _ := ExpireRetry(w.s, 39, Ref{ID: "a"}, retry); done {
		t.Error("sent before the delay is over")
	}
	done, fx := ExpireRetry(w.s, 40, Ref{ID: "a"}, retry)
	if !done {
		t.Error("not sent when the delay is over")
	}
	w.effects(fx, "execute a#7 v2 to w")
}

func TestReleaseRefuses(t *testing.T) {
	w := newWorld(t)
	ref := w.hold("a", 1000)
	w.make("waits", true, 1000)
	for _, tc := range []struct {
		now   int64
		ref   TaskRef
		delay int64
		code  Code
		rule  string
	}{
		{5, ref, -1, Invalid, RuleTimes},
		{5, TaskRef{ID: "m"}, 0, NotFound, RuleTask},
		{5, TaskRef{"a", 7, 2}, 0, Conflict, RuleVersion},
		{5, TaskRef{"a", 8, 1}, 0, Conflict, RuleIncarnation},
		{5, TaskRef{"waits", 7, 0}, 0, Conflict, RuleState},
		{ttl, ref, 0, Conflict, RuleState},
		{1000, ref, 0, Conflict, RuleState},
	} {
		w.refused(tc.code, tc.rule, func() error {
			_, _, err := Release(w.s, tc.now, tc.ref, tc.delay, retry)
			return err
		})
	}
}
