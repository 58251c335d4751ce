package machine

import (
	"perdure/fsm/state"
	"perdure/journal"
)

// retries reports whether another attempt may follow a failure.
func (r *modelRun) retries() bool {
	return r.call != nil && len(r.call.failures)+1 < r.call.attempts
}

// mustRetry: unless the deadline could come first, or the caller has no use for another attempt.
func (m *executionModel) mustRetry(r *modelRun) bool {
	if !r.retries() || r.deadline != 0 || r.call.dropped {
		return false
	}
	caller := m.runs[callerID(string(r.call.promise))]
	return r.call.elsewhere || caller != nil && caller.phase != modelCancelling
}

func (m *executionModel) expired(r *modelRun) bool { return r.deadline != 0 && r.deadline <= m.now }

func (m *executionModel) cancelRequested(r *modelRun, grace int64) error {
	byClient := m.act.cancel == r.id
	if !byClient && m.act.terminate != r.id && !m.expired(r) && (r.call == nil || !r.call.told) {
		return refuse(r, "nobody has asked to cancel it")
	}
	if want := m.now + m.act.graceMS; byClient && grace != 0 && grace != want {
		return refuse(r, "its grace ends at %d, must be %d", grace, want)
	}
	r.phase, r.graces = modelCancelling, grace
	m.reach(r)
	return nil
}

// tell: a child must end because of its caller.
func (m *executionModel) tell(c *modelCall, terminate bool) {
	c.told, c.owed, c.terminate = true, true, c.terminate || terminate
}

// reach lets an execution's cancel, or its end, reach its open children.
func (m *executionModel) reach(r *modelRun) {
	for _, op := range r.ops {
		c := op.child
		if c == nil || op.resolved {
			continue
		}
		switch {
		case r.phase == modelCancelling && c.policy != state.CloseAbandon:
			m.tell(c, false)
		case r.phase != modelEnded || c.policy == state.CloseAbandon:
		case c.policy == state.CloseFollow && !r.completed:
			m.tell(c, r.terminated)
		case c.policy == state.CloseCancel:
			m.tell(c, false)
		case c.policy == state.CloseTerminate:
			m.tell(c, true)
		}
	}
}

func (m *executionModel) cancelled(r *modelRun, outcome string) error {
	if r.phase != modelCancelling {
		return refuse(r, "it is cancelled without a request")
	}
	acknowledged := false
	if m.act.commit == r {
		for _, e := range m.act.events {
			switch e.(type) {
			case journal.ExecutionCompleted, journal.ExecutionFailed, journal.ExecutionCancelled:
				acknowledged = true
			}
		}
	}
	terminated := m.act.terminate == r.id || r.call != nil && r.call.terminate
	want := modelCancelled
	switch {
	case m.expired(r):
		want = modelTimeout
	case acknowledged:
		m.act.events = nil
	case r.graces != 0 && r.graces <= m.now:
	case terminated:
		r.terminated = true
	case !r.begun && r.ready > m.now:
	default:
		return refuse(r, "it is cancelled, and no worker has acknowledged that, its grace ends at %d", r.graces)
	}
	return m.end(r, want, outcome)
}

// end: an execution's result is there, at once for those who ask, later for its caller.
func (m *executionModel) end(r *modelRun, want, outcome string) error {
	if outcome != want {
		return refuse(r, "it has ended with %q, its promise has %q", want, outcome)
	}
	r.phase, r.outcome, r.holder = modelEnded, outcome, 0
	if r.call != nil {
		r.call.answers = append(r.call.answers, outcome)
	}
	m.reach(r)
	return nil
}

// erased: an execution is gone. Only one of a caller's former incarnation may, in the caller's own place.
func (m *executionModel) erased(r *modelRun) error {
	over := r.call != nil && !r.call.elsewhere && (r.call.dropped || m.runs[callerID(r.id)] == nil)
	if r.cleanupOf != nil && m.runs[r.cleanupOf.id] != r.cleanupOf {
		over = true
	}
	if !over {
		return refuse(r, "it is erased, and its caller's incarnation is not over")
	}
	delete(m.runs, r.id)
	for _, op := range r.ops {
		if op.child != nil {
			m.drop(op.child)
		}
		delete(m.values, op.made)
	}
	m.look()
	return nil
}

func callerID(promise string) string {
	parent, _ := state.ParentOf(promise)
	return parent
}
