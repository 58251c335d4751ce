package machine

import (
	"fmt"
	"slices"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/id"
	"perdure/journal"
)

// says is an event that only a worker writes.
func (m *executionModel) says(r *modelRun, e journal.Event) error {
	if err := r.running(); err != nil {
		return err
	}
	if err := m.own(r, e); err != nil {
		return err
	}
	r.record(e, m.now)
	s, ok := e.(journal.InvokeScheduled)
	if !ok {
		return nil
	}
	op := r.ops[len(r.ops)-1]
	switch s.Invoke {
	case journal.InvokeFunction:
		m.called(r, op, s)
	case journal.InvokeSend:
		return m.sent(r, op, s)
	}
	return nil
}

// record makes the operation of a worker's event.
func (r *modelRun) record(e journal.Event, now int64) {
	op := &modelOp{modelWorld: &modelWorld{}, call: e.Kind()}
	switch ev := e.(type) {
	case journal.InvokeScheduled:
		op.invoke, op.function, op.input = ev.Invoke, ev.Function, string(ev.Input)
	case journal.TimerScheduled:
		op.fireAt = now + ev.Duration
	case journal.JoinSetSubmitted:
		set, _ := r.op(id.PromiseID(ev.Set))
		n, _ := ev.Promise.IsChildOf(id.PromiseID(r.id))
		set.members = append(set.members, n)
		return
	case journal.JoinSetAwaited:
		member, _ := r.op(ev.Promise)
		member.consumed = true
		return
	default:
		op.resolved = true
	}
	r.ops = append(r.ops, op)
}

func (m *executionModel) called(r *modelRun, op *modelOp, s journal.InvokeScheduled) {
	o := m.act.children[s.Promise]
	c := &modelCall{promise: s.Promise, incarnation: r.incarnation, function: s.Function, input: string(s.Input),
		policy: state.ClosePolicy(o.GetClosePolicy()), ownID: o.GetId(), attempts: 1, made: m.now}
	if o.GetRetry() != nil {
		c.attempts = state.RetryBound(s.RetryPolicy) + 1
	}
	if o.GetDelayMs() > 0 {
		c.ready = m.now + o.DelayMs
	}
	if o.GetTimeoutMs() > 0 {
		c.deadline = m.now + o.TimeoutMs + o.DelayMs
	}
	c.elsewhere = c.ownID != "" || o.GetSpread() || c.policy == state.CloseCancel || c.policy == state.CloseAbandon
	op.child, m.calls[callKey(s.Promise, r.incarnation)] = c, c
}

// sent begins the flight of a one-way operation.
func (m *executionModel) sent(r *modelRun, op *modelOp, s journal.InvokeScheduled) error {
	f := &modelFlight{from: fmt.Sprint(r.id, "#", r.incarnation)}
	switch w := m.act.sends[s.Promise].GetWhat().(type) {
	case *perdurev1.Send_Signal:
		f.kind, f.target, f.name, f.payload = journal.KindSignalDelivered, w.Signal.Id, w.Signal.Name, string(w.Signal.Payload)
	case *perdurev1.Send_Start:
		f.kind, f.target, f.name, f.payload = journal.KindExecutionStarted, w.Start.Id, w.Start.Function, string(w.Start.Input)
	case *perdurev1.Send_AwaitedPromise:
		f.target = w.AwaitedPromise.Id
	case *perdurev1.Send_NewPromise:
		op.made = string(s.Promise)
		m.values[op.made] = ""
		if w.NewPromise.TimeoutMs > 0 {
			op.fireAt = m.now + w.NewPromise.TimeoutMs
		}
		return nil
	case *perdurev1.Send_Cancel:
		op.target, _ = id.PromiseID(w.Cancel.OperationId).IsChildOf(id.PromiseID(r.id))
		if target := r.ops[op.target]; target.child != nil && !target.resolved {
			target.child.told = true
		}
		return nil
	default:
		return nil // an entity's: the model of entities has it
	}
	op.flight, m.flights = f, append(m.flights, f)
	return nil
}

func local(k journal.InvokeKind) bool { return k == journal.InvokeStep || k == journal.InvokeHTTP }

func (m *executionModel) attemptStarted(r *modelRun, e journal.InvokeStarted) error {
	op, err := r.op(e.Promise)
	switch {
	case err != nil:
		return err
	case op.resolved || op.open:
		return refuse(r, "%s begins, and is open or over", e.Promise)
	case local(op.invoke):
		if err := m.own(r, e); err != nil {
			return err
		}
	case r.phase == modelCancelling:
		return refuse(r, "%s begins while it is being cancelled", e.Promise)
	case op.invoke == journal.InvokeFunction:
		c := op.child
		if op.claimed && m.act.restart == r.id {
			break
		}
		if c.begun <= op.started-op.begunBefore && len(m.answersTo(c)) == 0 && op.seen >= len(c.failures) && !op.cancelled {
			return refuse(r, "attempt %d of child %s begins, and workers have begun %d", op.started+1, e.Promise, c.begun)
		}
	}
	op.started++
	op.open = true
	return nil
}

func (m *executionModel) attemptRetried(r *modelRun, e journal.InvokeRetrying) error {
	op, err := r.op(e.Promise)
	switch {
	case err != nil:
		return err
	case op.resolved || !op.open:
		return refuse(r, "an attempt of %s fails that is not open", e.Promise)
	case local(op.invoke):
		if err := m.own(r, e); err != nil {
			return err
		}
	case r.phase == modelCancelling || op.invoke != journal.InvokeFunction:
		return refuse(r, "%s is repeated", e.Promise)
	default:
		at := slices.Index(op.child.failures[min(op.seen, len(op.child.failures)):], shown(e.Error))
		if at < 0 {
			return refuse(r, "child %s is repeated after %q, it has failed with %q, of which %d are known", e.Promise, shown(e.Error), op.child.failures, op.seen)
		}
		op.seen += at + 1
	}
	op.open = false
	return nil
}

// answersTo are the results that a call may have now.
func (m *executionModel) answersTo(c *modelCall) []string {
	out := slices.Clone(c.answers)
	if c.elsewhere && c.deadline != 0 && c.deadline <= m.now {
		out = append(out, modelTimeout)
	}
	return out
}

func (m *executionModel) invocationDone(r *modelRun, e journal.InvokeCompleted) error {
	op, err := r.op(e.Promise)
	got := shown(e.Result)
	var may []string
	switch {
	case err != nil:
		return err
	case op.resolved || !op.open:
		return refuse(r, "%s completes with %q, and is not open", e.Promise, got)
	case local(op.invoke):
		if r.phase == modelCancelling && m.act.commit == r {
			m.skipTo(e)
		}
		if err := m.own(r, e); err != nil {
			return err
		}
		may = []string{got}
	case op.invoke == journal.InvokeFunction:
		may = m.answersTo(op.child)
	case op.invoke == journal.InvokeSignal:
		if slices.ContainsFunc(r.mail, func(d journal.SignalDelivered) bool { return d.Name == op.function }) {
			may = []string{""}
		}
	case op.function == "cancel" && op.call == journal.KindInvokeScheduled && op.flight == nil:
		return m.cancelDone(r, op, got)
	case op.made != "":
		if v := m.values[op.made]; v != "" {
			may = []string{v}
		}
		if op.fireAt != 0 && op.fireAt <= m.now {
			may = append(may, modelTimeout)
		}
	case op.flight != nil:
		may = op.flight.answers
		if f := op.flight; got == "" && f.kind == journal.KindSignalDelivered && !f.done && m.runs[f.target] != nil && m.runs[f.target].phase != modelEnded {
			// Within one partition the answer is recorded first.
			may, m.act.promised = append(slices.Clone(may), ""), append(m.act.promised, f)
		}
	default:
		may = []string{got} // an entity's
	}
	if !slices.Contains(may, got) && !(got == modelCancelled && r.cancels(e.Promise)) {
		return refuse(r, "%s completes with %q, it may with %q", e.Promise, got, may)
	}
	if op.flight != nil && op.flight.came && got != "" && got != modelCancelled {
		return refuse(r, "%s completes with %q, and was delivered", e.Promise, got)
	}
	op.resolved, op.open, op.result = true, false, got
	if f := op.flight; f != nil && (got == modelNotFound || got == modelFinished || got == modelConflict) {
		f.done = true
	}
	return nil
}

// skipTo drops what a commit says before a result, while its execution is cancelling.
func (m *executionModel) skipTo(e journal.Event) {
	if i := slices.IndexFunc(m.act.events, func(o journal.Event) bool { return showModel(o) == showModel(e) }); i > 0 {
		m.act.events = m.act.events[i:]
	}
}

// cancels reports whether the execution has a cancel of an operation without a result.
func (r *modelRun) cancels(p id.PromiseID) bool {
	n, _ := p.IsChildOf(id.PromiseID(r.id))
	return slices.ContainsFunc(r.ops, func(op *modelOp) bool {
		return op.invoke == journal.InvokeSend && op.function == "cancel" && !op.resolved && op.target == n
	})
}

// cancelDone: a cancel says whether the operation was open, and ends it.
func (m *executionModel) cancelDone(r *modelRun, op *modelOp, got string) error {
	target := r.ops[op.target]
	timer := target.call == journal.KindTimerScheduled
	byThis := target.resolved && target.result == modelCancelled && !target.cancelled
	possible := timer || target.call == journal.KindInvokeScheduled && !local(target.invoke)
	switch {
	case got == op.answered: // a restart records it again, wherever the operation's result stands now
		target.cancelled = target.cancelled || got == "\x01"
	case got == "\x01" && possible && (!target.resolved && (!target.cancelled || target.child != nil) || byThis):
		target.cancelled = true
		if target.child != nil {
			m.tell(target.child, false)
		} else if target.flight != nil && target.flight.kind != 0 {
			target.flight.answers = addOnce(target.flight.answers, modelCancelled)
		} else if target.made != "" && m.values[target.made] == "" {
			m.values[target.made] = modelCancelled
		}
	case got == "\x00" && (target.resolved || target.cancelled || !possible):
	case got == "\x00" && target.child != nil && len(m.answersTo(target.child)) > 0:
	default:
		return refuse(r, "its cancel of %d answers %q: %+v", op.target, got, target)
	}
	op.resolved, op.open, op.result, op.answered = true, false, got, got
	return nil
}
