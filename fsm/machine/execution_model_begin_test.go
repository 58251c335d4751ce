package machine

import (
	"fmt"
	"slices"
	"strings"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/id"
	"perdure/journal"
	"perdure/recovery"
)

// begins is the first entry of an execution that was not there.
func (m *executionModel) begins(h *state.Header, first journal.ExecutionStarted) error {
	r := &modelRun{id: h.ID, function: h.Function, input: string(first.Input), incarnation: h.Incarnation, deadline: h.DeadlineMS}
	fail := func(why string) error { return fmt.Errorf("%s begins: %s", h.ID, why) }
	if c := m.callFor(h); c != nil {
		switch {
		case c.run != nil:
			return fail("its caller has called it once, it begins twice")
		case c.function != h.Function || c.input != r.input || c.deadline != h.DeadlineMS || h.ClosePolicy != state.CloseFollow && h.ClosePolicy != c.policy:
			return fail(fmt.Sprintf("it has %s of %q until %d, its call says %+v", h.Function, r.input, h.DeadlineMS, c))
		}
		r.ready = c.ready
		c.runs(r)
	} else if of := m.cleaned(h); of != nil {
		if of.phase != modelEnded || of.completed || of.armed == 0 || of.terminated || of.cleanup != nil || h.DeadlineMS != m.now+of.armed {
			return fail(fmt.Sprintf("it cleans up after %+v", of))
		}
		of.cleanup, r.cleanupOf = r, of
	} else if h.Parent != "" {
		return fail("nobody calls it")
	} else if s := m.act.start; s != nil && s.Id == h.ID && s.Function == h.Function && string(s.Input) == r.input {
		m.act.start = nil
		if s.TimeoutMs > 0 && h.DeadlineMS != m.now+s.TimeoutMs {
			return fail("it has another deadline")
		}
	} else {
		i := slices.IndexFunc(m.flights, func(f *modelFlight) bool {
			return f.kind == journal.KindExecutionStarted && !f.done && f.target == h.ID && f.name == h.Function && f.payload == r.input
		})
		if i < 0 {
			return fail("nobody has started it")
		}
		f := m.flights[i]
		f.done, f.came = true, true
		// An operation that a former incarnation cancelled after the kept entries stays cancelled.
		f.answers = addOnce(slices.DeleteFunc(f.answers, func(a string) bool { return a != modelCancelled }), "")
	}
	m.runs[h.ID] = r
	r.log = []journal.Entry{{Event: first}}
	m.look()
	return nil
}

// callFor is the call that a header names as its origin.
func (m *executionModel) callFor(h *state.Header) *modelCall {
	return m.calls[callKey(id.PromiseID(h.ParentPromise), h.ParentIncarnation)]
}

// runs: an execution has the result of a call, so the call's id was not taken.
func (c *modelCall) runs(r *modelRun) {
	r.call, c.run = c, r
	c.answers = slices.DeleteFunc(c.answers, func(a string) bool { return a == modelConflict })
}

// drop: the incarnation that made a call is over.
func (m *executionModel) drop(c *modelCall) {
	c.dropped = true
	if c.elsewhere && c.policy == state.CloseCancel {
		m.tell(c, false)
	}
	if c.elsewhere && c.policy == state.CloseTerminate {
		m.tell(c, true)
	}
}

func (m *executionModel) cleaned(h *state.Header) *modelRun {
	if !strings.HasPrefix(h.Function, state.FunctionCleanup) {
		return nil
	}
	return m.runs[h.Parent]
}

// beginsAgain is the next incarnation of an execution, with the entries that it keeps. It returns how many those are.
func (m *executionModel) beginsAgain(old *modelRun, h *state.Header, entries []journal.Entry) (int, error) {
	first := entries[0].Event.(journal.ExecutionStarted)
	r := &modelRun{id: h.ID, function: h.Function, input: string(first.Input), incarnation: h.Incarnation, deadline: h.DeadlineMS, call: old.call}
	fail := func(format string, args ...any) (int, error) {
		return 0, fmt.Errorf("%s begins again: %s", h.ID, fmt.Sprintf(format, args...))
	}
	kept := 1
	input := old.input
	var again []journal.SignalDelivered
	since := func(cut int) (out []journal.SignalDelivered) {
		for _, e := range old.log[cut:] {
			if d, ok := e.Event.(journal.SignalDelivered); ok && shown(d.Payload) != modelTimeout {
				out = append(out, d)
			}
		}
		return out
	}
	switch {
	case m.act.commit == old && m.act.continues:
		if old.phase != modelRunning {
			return fail("as new in phase %d", old.phase)
		}
		input, again, r.begun = m.act.input, old.mail, old.begun
	case m.act.commit == old && m.failure() != "":
		if !old.retries() || old.phase != modelRunning {
			return fail("it has failed, and no attempt is left")
		}
		old.call.failures = append(old.call.failures, m.failure())
		m.before(old)
		again, r.ready = since(0), h.RetryAt
		if r.ready <= m.now {
			return fail("without a pause")
		}
	case m.act.restart == h.ID && old.call == nil:
		if m.act.fromFailure && (old.phase != modelEnded || !old.completed) {
			return fail("from a failure that it does not have")
		}
		if kept = max(int(m.act.kept), 1); kept > len(old.log) || kept > len(entries) {
			return fail("with %d entries of %d", kept, len(old.log))
		}
		for i, e := range entries[1:kept] {
			if showModel(e.Event) != showModel(old.log[i+1].Event) || e.Time != old.log[i+1].Time {
				return fail("entry %d is %s, was %s", i+1, showModel(e.Event), showModel(old.log[i+1].Event))
			}
		}
		again = since(kept)
		if kept == 1 {
			again = since(0)
		}
	case m.act.start != nil && m.act.start.Id == h.ID && old.phase == modelEnded && old.call == nil:
		if m.act.start.Reuse == perdurev1.Reuse_REUSE_REJECT || m.act.start.Reuse == perdurev1.Reuse_REUSE_IF_FAILED && old.completed && !strings.HasPrefix(old.outcome, "!") {
			return fail("although its client did not ask for that")
		}
		input, m.act.start = string(m.act.start.Input), nil
	default:
		c := m.callFor(h)
		if c == nil || c.run != nil {
			return fail("nobody has asked for that")
		}
		input = c.input
		c.runs(r)
	}
	if input != r.input {
		return fail("with the input %q, must be %q", r.input, input)
	}
	if r.call != nil {
		r.call.run = r
	}
	for _, e := range entries[:kept] {
		m.keep(old, r, e)
	}
	for n, op := range r.ops {
		was := old.ops[n]
		op.claimed = was.started > op.started
		op.begunBefore, op.failedBefore = min(was.begunBefore, op.started), min(was.failedBefore, op.seen)
		op.seen -= op.failedBefore
		if err := m.calledAgain(r, op, was); err != nil {
			return fail("%v", err)
		}
	}
	for _, op := range old.ops[min(len(r.ops), len(old.ops)):] {
		if op.child != nil {
			m.drop(op.child)
		}
		if op.made != "" {
			if m.values[op.made] == "" {
				m.values[op.made] = modelCancelled
			}
			m.look()
			delete(m.values, op.made)
		}
	}
	r.redeliver, m.runs[h.ID] = slices.Clone(again), r
	m.look()
	return kept, nil
}

// before is what a commit says before a failure that another attempt follows: its journal is gone, its
// messages are not.
func (m *executionModel) before(r *modelRun) {
	for {
		switch e := m.act.events[0].(type) {
		case journal.ExecutionFailed:
			m.act.events = nil
			return
		case journal.InvokeScheduled:
			_ = m.says(r, e)
			if f := r.ops[len(r.ops)-1].flight; f != nil && f.kind == journal.KindSignalDelivered && f.target == r.id {
				f.done = true
				r.log = append(r.log, journal.Entry{Event: journal.SignalDelivered{Name: f.name, Payload: recovery.AppendOutcome(nil, recovery.Outcome{Data: []byte(f.payload)})}})
			}
			m.look()
		case journal.TimerScheduled, journal.RandomGenerated, journal.TimeRecorded, journal.JoinSetCreated:
			_ = m.says(r, e) // what follows may cancel an operation by its number
		case journal.SignalReceived:
			r.ops = append(r.ops, &modelOp{modelWorld: &modelWorld{}, call: journal.KindExecutionAwaiting, resolved: true})
			m.act.events = m.act.events[1:]
		default:
			m.act.events = m.act.events[1:]
		}
	}
}

// calledAgain begins the child of an operation again, if the restart has done so.
func (m *executionModel) calledAgain(r *modelRun, op, was *modelOp) error {
	if op.child == nil || op.resolved {
		return nil
	}
	former := op.child
	if !m.again(string(former.promise), r.incarnation) {
		if m.act.newChildren {
			return fmt.Errorf("child %s does not begin again", former.promise)
		}
		return nil
	}
	failed := func(s string) bool { return strings.HasPrefix(s, "!") }
	if !m.act.newChildren && !(m.act.fromFailure && (failed(was.result) || slices.ContainsFunc(m.answersTo(former), failed))) {
		return fmt.Errorf("child %s begins again", former.promise)
	}
	c := *former
	c.incarnation, c.made, c.ready, c.run, c.begun, c.failures, c.answers = r.incarnation, m.now, 0, nil, 0, nil, nil
	c.told, c.terminate, c.owed, c.dropped = false, false, false, false
	if c.deadline != 0 {
		c.deadline = m.now + former.deadline - former.made
	}
	m.drop(former)
	world := *op.modelWorld
	world.child = &c
	op.modelWorld, op.claimed = &world, false
	if op.begunBefore = op.started; op.open {
		op.begunBefore--
	}
	op.failedBefore, op.seen = op.failedBefore+op.seen, 0
	m.calls[callKey(c.promise, c.incarnation)] = &c
	if op.cancelled || r.cancels(c.promise) {
		m.tell(&c, false)
	}
	return nil
}

func (m *executionModel) failure() string {
	for _, e := range m.act.events {
		if f, ok := e.(journal.ExecutionFailed); ok {
			return shown(f.Error)
		}
	}
	return ""
}

// keep copies one entry of a former incarnation, with what its operation did outside.
func (m *executionModel) keep(old, r *modelRun, e journal.Entry) {
	r.log = append(r.log, e)
	op := func(p id.PromiseID) *modelOp { o, _ := r.op(p); return o }
	switch ev := e.Event.(type) {
	case journal.InvokeScheduled, journal.TimerScheduled, journal.RandomGenerated, journal.TimeRecorded, journal.JoinSetCreated,
		journal.JoinSetSubmitted, journal.JoinSetAwaited:
		n := len(r.ops)
		r.record(ev, e.Time)
		if len(r.ops) > n {
			was, now := old.ops[n], r.ops[n]
			if now.modelWorld = was.modelWorld; was.child != nil {
				was.child.owed = false // it has a caller again
				now.kept = true
			}
		}
	case journal.InvokeStarted:
		op(ev.Promise).started++
		op(ev.Promise).open = true
	case journal.InvokeRetrying:
		op(ev.Promise).seen++
		op(ev.Promise).open = false
	case journal.InvokeCompleted:
		o := op(ev.Promise)
		o.resolved, o.open, o.result = true, false, shown(ev.Result)
		if o.function == "cancel" && o.result == "\x01" {
			r.ops[o.target].cancelled = true
		}
	case journal.TimerFired:
		op(ev.Promise).resolved = true
	case journal.ExecutionAwaiting:
		r.await(ev)
	case journal.ExecutionResumed:
		r.phase = modelRunning
	case journal.SignalDelivered:
		r.mail = append(r.mail, ev)
	case journal.SignalReceived:
		r.mail = slices.DeleteFunc(r.mail, func(d journal.SignalDelivered) bool { return d.Name == ev.Name && d.DeliveryID == ev.DeliveryID })
		if r.phase == modelBlocked {
			r.ops[len(r.ops)-1].resolved = true
		} else {
			r.ops = append(r.ops, &modelOp{modelWorld: &modelWorld{}, call: journal.KindExecutionAwaiting, resolved: true})
		}
	}
}
