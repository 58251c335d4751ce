package machine

import (
	"strings"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/audit"
	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/journal"
	"perdure/recovery"
)

// An execution that nothing will wake is found, with the reason.
func TestAuditFindsStuck(t *testing.T) {
	_, home, name := garden(t)
	// former makes it a state in which every callback has a row, and none of them is there.
	former := func(s *plot) { s.put(keys.MetaKey(state.MetaFeature), keys.AppendUint64(nil, state.LevelFunctions-1)) }
	callback := func(s *plot, awaiter, awaited string) {
		s.put(keys.Of(keys.Callback, ns, awaited, awaiter), []byte{})
		s.put(keys.Of(keys.AwaitedBy, ns, awaiter, awaited), []byte{})
	}
	for _, c := range []struct {
		object, why string // a part of the reason; "" when it is not stuck
		plant       func(s *plot, objectID string)
	}{
		{"working", "nothing ends the lease", func(s *plot, e string) {
			s.drop(keys.DeadlineOf(keys.DeadlineLease, s.readTask(e).LeaseAt, ns, e))
		}},
		{"waiting", "", func(s *plot, e string) { // a timer will queue it
			s.drop(keys.ReadyOf(ns, "f", s.readTask(e).RetryAt, e))
			s.put(keys.DeadlineOf(keys.DeadlineRetry, s.readTask(e).RetryAt, ns, e), []byte{})
		}},
		{"waiting", "neither in the queue", func(s *plot, e string) { s.drop(keys.ReadyOf(ns, "f", s.readTask(e).RetryAt, e)) }},
		{"waiting", "it has no task", func(s *plot, e string) { s.drop(keys.Of(keys.Task, ns, e)) }},
		{"waiting", "its task is fulfilled", func(s *plot, e string) {
			s.task(e, func(task *recovery.Task) { task.State, task.RetryAt = recovery.TaskFulfilled, 0 })
		}},
		{"waiting", "", func(s *plot, e string) { // taken out of service
			s.task(e, func(task *recovery.Task) { task.State, task.RetryAt = recovery.TaskHalted, 0 })
		}},
		{"working", "its task is suspended, and it is Running", func(s *plot, e string) {
			s.task(e, func(task *recovery.Task) {
				task.State, task.PID, task.TTL, task.LeaseAt = recovery.TaskSuspended, "", 0, 0
			})
		}},
		{"cancelling", "", func(s *plot, e string) { // its grace is left
			s.task(e, func(task *recovery.Task) {
				task.State, task.PID, task.TTL, task.LeaseAt = recovery.TaskSuspended, "", 0, 0
			})
		}},
		{"sleeping", "a timer that is not in the deadline index", func(s *plot, e string) {
			s.promise(e+":0", func(p *recovery.Promise) { s.drop(keys.DeadlineOf(keys.DeadlinePromise, p.TimeoutAt, ns, p.ID)) })
		}},
		{"sleeping", "which does not exist", func(s *plot, e string) { s.drop(keys.Of(keys.Promise, ns, e+":0")) }},
		{"sleeping", "has no callback on it", func(s *plot, _ string) { former(s) }},
		{"sleeping", "which is resolved, and its journal does not record it", func(s *plot, e string) {
			s.promise(e+":0", func(p *recovery.Promise) { p.State, p.SettledAt = recovery.PromiseResolved, p.TimeoutAt })
		}},
		{"sleeping", "", func(s *plot, e string) { // due already, and about to end by its own deadline
			former(s)
			s.promise(e, func(p *recovery.Promise) { p.TimeoutAt = p.CreatedAt })
			s.promise(e, func(p *recovery.Promise) { s.put(keys.DeadlineOf(keys.DeadlinePromise, p.TimeoutAt, ns, e), []byte{}) })
		}},
		{"calling", "a child that no longer runs", func(s *plot, e string) {
			s.header(e+":0", func(h *state.Header) { h.Status = journal.StatusCompleted })
		}},
		{"asking", "has no callback on it", func(s *plot, _ string) { former(s) }},
		// One way of several is enough.
		{"either", "", func(s *plot, e string) {
			former(s)
			callback(s, e, e+":3")
		}},
		{"either", "has no callback on it; it waits for", func(s *plot, _ string) { former(s) }},
	} {
		s := &plot{t, home.state.Clone(), home.cfg}
		objectID := name(c.object)
		c.plant(s, objectID)
		found := audited(t, s.state, s.cfg)
		why := ""
		for _, v := range found {
			if v.Rule == audit.RuleStuck && v.ID == objectID {
				why = v.Detail
			}
		}
		if (c.why == "") != (why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%s is stuck because %q, must be %q; found\n%s", c.object, why, c.why, lines(found))
		}
	}
}

// The audit reports an execution that describe shows as stuck, with a reason.
func TestStuckIsOneWord(t *testing.T) {
	_, home, name := garden(t)
	for _, object := range []string{"sleeping", "calling"} {
		s := &plot{t, home.state.Clone(), home.cfg}
		objectID := name(object)
		s.promise(objectID+":0", func(p *recovery.Promise) { p.State, p.SettledAt = recovery.PromiseResolved, p.CreatedAt })
		reply, err := query.Answer(s.state, 0, &commandv1.Query{Namespace: ns, Id: objectID,
			Kind: &commandv1.Query_Describe{Describe: &perdurev1.DescribeRequest{}}})
		if err != nil {
			t.Fatal(err)
		}
		described := reply.GetDescribe().GetExecution().GetWakeSource()
		if found := audited(t, s.state, s.cfg); described != "stuck" || !breaks(found, audit.RuleStuck, objectID) {
			t.Errorf("%s is described as %q, and audited as\n%s", object, described, lines(found))
		}
	}
}
