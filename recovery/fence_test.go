package recovery

import "testing"

func TestFence(t *testing.T) {
	w := newWorld(t)
	ref := w.hold("a", 1000)
	before := dump(w.s)
	h, err := Fence(w.s, ttl-1, ref)
	w.ok(ttl-1, err)
	w.is(showTask(h.Task), showTask(w.task("a")))
	w.is(showPromise(h.Promise), showPromise(w.promise("a")))
	w.is(dump(w.s), before)
	for _, tc := range []struct {
		now  int64
		ref  TaskRef
		code Code
		rule string
	}{
		{5, TaskRef{}, Invalid, RuleID},
		{5, TaskRef{ID: "m"}, NotFound, RuleTask},
		{5, TaskRef{"a", 7, 0}, Conflict, RuleVersion},
		{5, TaskRef{"a", 7, 2}, Conflict, RuleVersion},
		{5, TaskRef{"a", 6, 1}, Conflict, RuleIncarnation},
		{ttl, ref, Conflict, RuleState},
		{1000, ref, Conflict, RuleState},
	} {
		w.refused(tc.code, tc.rule, func() error {
			_, err := Fence(w.s, tc.now, tc.ref)
			return err
		})
	}
}
