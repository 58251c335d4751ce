package recovery

import "testing"

func TestGet(t *testing.T) {
	w := newWorld(t)
	w.hold("a", 1000)
	w.make("x", false, 100)
	before := dump(w.s)
	for _, tc := range []struct {
		now           int64
		promise, task string
	}{
		{ttl - 1, "promise a#7 pending timeout=1000 created=0 target=w", "task a#7 acquired v1 target=w pid=p ttl=50 lease=50"},
		{ttl, "promise a#7 pending timeout=1000 created=0 target=w", "task a#7 pending v1 target=w retry=50"},
		{1000, "promise a#7 rejected_timedout timeout=1000 created=0 settled=1000 target=w", "task a#7 fulfilled v1 target=w"},
	} {
		p, err := GetPromise(w.s, tc.now, Ref{"a", 7})
		w.ok(tc.now, err)
		w.is(showPromise(p), tc.promise)
		task, p, err := GetTask(w.s, tc.now, Ref{ID: "a"})
		w.ok(tc.now, err)
		w.is(showPromise(p), tc.promise)
		w.is(showTask(task), tc.task)
	}
	w.is(dump(w.s), before)

	promise := func(ref Ref) func() error {
		return func() error { _, err := GetPromise(w.s, 1, ref); return err }
	}
	task := func(ref Ref) func() error {
		return func() error { _, _, err := GetTask(w.s, 1, ref); return err }
	}
	w.refused(NotFound, RulePromise, promise(Ref{ID: "m"}))
	for _, other := range []uint64{6, 8} {
		w.refused(Conflict, RuleIncarnation, promise(Ref{"a", other}))
		w.refused(Conflict, RuleIncarnation, task(Ref{"a", other}))
	}
	w.refused(Invalid, RuleID, promise(Ref{}))
	w.refused(NotFound, RuleTask, task(Ref{ID: "x"}))
	w.refused(Invalid, RuleID, task(Ref{}))

	w.s.PutTask(Task{ID: "orphan", State: TaskPending})
	w.refused(NotFound, RulePromise, task(Ref{ID: "orphan"}))
}
