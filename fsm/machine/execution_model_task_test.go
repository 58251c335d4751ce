package machine

import (
	"fmt"
	"slices"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/wire"
	"perdure/id"
	"perdure/journal"
)

// acquired: a worker holds the task of an execution.
func (m *executionModel) acquired(incarnation, version uint64, lease int64, r *modelRun) error {
	switch {
	case r == nil || r.incarnation != incarnation:
		return fmt.Errorf("a task of incarnation %d is acquired, which is over", incarnation)
	case r.phase != modelRunning && r.phase != modelCancelling:
		return refuse(r, "its task is acquired in phase %d", r.phase)
	case r.holder != 0 && r.leaseAt > m.now:
		return refuse(r, "its task is acquired, and a worker holds it until %d", r.leaseAt)
	case !r.begun && r.ready > m.now:
		return refuse(r, "its task is acquired before %d", r.ready)
	}
	if r.call != nil && !r.begun {
		r.call.begun++
	}
	r.holder, r.leaseAt, r.begun = version, m.now+lease, true
	return nil
}

// holds reports whether a token is that of the worker that holds the task.
func (m *executionModel) holds(token *perdurev1.TaskToken) *modelRun {
	r := m.runs[token.Id]
	if r == nil || r.incarnation != token.Incarnation || r.holder == 0 || r.holder != token.Version || r.leaseAt <= m.now || m.expired(r) {
		return nil
	}
	if r.phase == modelCancelling && r.graces != 0 && r.graces <= m.now {
		return nil
	}
	return r
}

// committing is the licence of a commit.
func (m *executionModel) committing(r *modelRun, c *perdurev1.Commit) error {
	m.act = modelAct{commit: r, waitMS: c.WaitTimeoutMs, sends: map[id.PromiseID]*perdurev1.Send{}, children: map[id.PromiseID]*perdurev1.ChildOptions{},
		continues: c.ContinueAsNew != nil, input: string(c.ContinueAsNew.GetInput())}
	for _, w := range c.Events {
		e, err := wire.DecodeEvent(w)
		if err != nil {
			return err
		}
		m.act.events = append(m.act.events, e)
	}
	for _, s := range c.Sends {
		m.act.sends[id.PromiseID(s.PromiseId)] = s
	}
	for _, o := range c.Children {
		m.act.children[id.PromiseID(o.PromiseId)] = o
	}
	if c.CleanupMs != 0 && r.phase == modelRunning {
		m.act.cleanupMS = c.CleanupMs
	}
	return nil
}

// committed: all that a commit says is recorded, but for a wait that is satisfied, unless its execution is
// being cancelled.
func (m *executionModel) committed() error {
	r := m.act.commit
	if r == nil || m.runs[r.id] != r || r.phase == modelCancelling || r.phase == modelEnded || len(m.act.events) == 0 {
		return nil
	}
	if wait, ok := m.act.events[0].(journal.ExecutionAwaiting); ok && wait.Wait != journal.AwaitSignal {
		other := *r
		if other.wait = wait; other.satisfied() {
			return nil
		}
	}
	return refuse(r, "the commit was applied, and %d of its events are missing: %s", len(m.act.events), showModel(m.act.events[0]))
}

// settled checks what must be at each moment.
func (m *executionModel) settled(r *modelRun) error {
	switch {
	case r.phase == modelBlocked && r.satisfied():
		return refuse(r, "its wait is satisfied, and it waits")
	case len(r.redeliver) > 0:
		return refuse(r, "%d signals of its former incarnation are lost", len(r.redeliver))
	case r.phase == modelEnded && !r.completed && r.armed > 0 && !r.terminated && r.cleanup == nil:
		return refuse(r, "it was cancelled, and nothing cleans up")
	}
	for n, op := range r.ops {
		if op.invoke == journal.InvokeSignal && op.open && r.phase < modelCancelling &&
			slices.ContainsFunc(r.mail, func(d journal.SignalDelivered) bool { return d.Name == op.function }) {
			return refuse(r, "operation %d waits for signal %s, which it has", n, op.function)
		}
	}
	return nil
}

// known reports whether a promise has its value, or is not there.
func (m *executionModel) known(promise string) bool {
	if value, made := m.values[promise]; made {
		return value != ""
	}
	r := m.runs[promise]
	return r == nil || r.phase == modelEnded
}

// calm checks what must be when every message has come and every deadline has been carried out.
func (m *executionModel) calm(r *modelRun) error {
	switch {
	case r.phase != modelEnded && m.expired(r):
		return refuse(r, "its deadline has passed")
	case r.phase == modelCancelling && r.graces != 0 && r.graces <= m.now:
		return refuse(r, "its grace has passed")
	case r.phase < modelCancelling && r.call != nil && r.call.owed:
		return refuse(r, "its caller's end has not reached it: %+v", r.call)
	case r.phase < modelEnded && r.call != nil && r.call.owed && r.call.terminate:
		return refuse(r, "its caller's end has not terminated it")
	case r.phase == modelEnded:
		return nil
	}
	for n, op := range r.ops {
		due := false
		switch {
		case op.resolved || op.cancelled && op.call == journal.KindTimerScheduled:
		case op.call == journal.KindTimerScheduled:
			due = op.fireAt <= m.now
		case op.child != nil:
			due = len(m.answersTo(op.child)) > 0 && (op.open || r.phase < modelCancelling)
			if op.child.begun > op.started && !op.open && !op.kept && r.phase < modelCancelling {
				return refuse(r, "child %d has begun, and its journal does not say so", n)
			}
			if op.seen < len(op.child.failures) && op.started == 0 && !op.kept && r.phase < modelCancelling {
				return refuse(r, "child %d has failed, and its journal does not say so", n)
			}
			if op.child.run == nil && len(op.child.answers) == 0 {
				return refuse(r, "child %d has not begun", n)
			}
		case op.flight != nil:
			due = op.open && (op.flight.kind != 0 || m.known(op.flight.target))
		case op.made != "":
			due = m.values[op.made] != "" || op.fireAt != 0 && op.fireAt <= m.now
		}
		if due {
			return refuse(r, "operation %d has a result, and its journal has none: %+v %+v %+v", n, op, op.modelWorld, op.child)
		}
	}
	return nil
}
