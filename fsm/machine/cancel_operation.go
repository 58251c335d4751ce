package machine

import (
	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/entity"
	"perdure/fsm/state"
	"perdure/id"
	"perdure/journal"
	"perdure/recovery"
)

// reasonCancelledByCaller is the reason of what an execution cancels of its own.
const reasonCancelledByCaller = "cancelled by its caller"

// cancelOperation ends an open operation of the execution. The send completes at once and says whether the
// operation was open: of two cancels only the first is.
func (c *commit) cancelOperation(e journal.InvokeScheduled, w *perdurev1.CancelOperation) error {
	t, ex := c.t, c.ex
	if t.m.feature < state.LevelFunctions {
		return api.Errorf(perdurev1.Reason_REASON_FEATURE_LEVEL, "operation %q needs feature level %d, the partition is at %d",
			e.Promise, state.LevelFunctions, t.m.feature).With("id", ex.h.ID)
	}
	target := id.PromiseID(w.OperationId)
	if n, ok := target.IsChildOf(id.PromiseID(ex.h.ID)); !ok || n >= ex.j.NextChild() {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "%q is no operation of %q that it has begun", w.OperationId, ex.h.ID).With("id", ex.h.ID)
	}
	if e.Function != functionCancel || string(e.Input) != w.OperationId {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "operation %q cancels %q, and is recorded as %q of %q", e.Promise, w.OperationId, e.Function, e.Input).With("id", ex.h.ID)
	}
	if err := c.begun(e); err != nil {
		return err
	}
	t.timeout(ex.ns, string(target))
	result := []byte{0}
	if p, ok := t.store(ex.ns).Promise(string(target)); ok && !p.State.Settled() && t.mayCancel(ex, p) {
		result[0] = 1
		if err := t.cancelPromise(ex, p); err != nil {
			return err
		}
	}
	return c.add(journal.InvokeCompleted{Promise: e.Promise, Attempt: 1, Result: recovery.AppendOutcome(nil, recovery.Outcome{Data: result})})
}

// mayCancel reports whether an operation can end before its result: the locks of a critical section cannot, nor can its
// calls, which unlocking waits for.
func (t *txn) mayCancel(ex *execution, p recovery.Promise) bool {
	if !state.OfEntity(p) {
		return true
	}
	phase := t.holder(ex).Phase
	return phase != entity.Acquiring && phase != entity.Inside
}

// cancelPromise ends an open operation. Its journal entry follows from the promise's settlement, for a child
// from its end.
func (t *txn) cancelPromise(ex *execution, p recovery.Promise) error {
	inv, invoked := ex.j.Invoke(id.PromiseID(p.ID))
	if !invoked || inv.Kind != journal.InvokeFunction {
		return t.settle(ex.ns, p.ID, recovery.PromiseRejectedCanceled, state.EncodeFailure(state.FailureCancelled, reasonCancelledByCaller))
	}
	end := ending{reason: reasonCancelledByCaller}
	if p.Target == "" {
		t.endElsewhere(ex.ns, p, func(state.ClosePolicy) (ending, bool) { return end, true })
		return nil
	}
	t.runExpirations(ex.ns, p.ID)
	if child, ok := t.execution(ex.ns, p.ID); ok {
		t.endChild(child, end)
	}
	return nil
}

// mayAwait refuses a wait for a timer that the execution has cancelled: nothing would end it.
func (c *commit) mayAwait(on []id.PromiseID) error {
	for _, promise := range on {
		if fired, timer := c.ex.j.Timer(promise); !timer || fired {
			continue
		}
		if p, ok := c.t.store(c.ex.ns).Promise(string(promise)); ok && p.State == recovery.PromiseRejectedCanceled {
			return api.Errorf(perdurev1.Reason_REASON_RULE_BROKEN, "execution %q waits for timer %q, which it has cancelled", c.ex.h.ID, promise).
				With("namespace", c.ex.ns).With("id", c.ex.h.ID).With("rule", "cancelled_timer")
		}
	}
	return nil
}

// cancelledIn are the operations that the kept entries of a restart cancel.
func cancelledIn(kept []journal.Entry) map[id.PromiseID]bool {
	out := map[id.PromiseID]bool{}
	for _, e := range kept {
		if s, ok := e.Event.(journal.InvokeScheduled); ok && s.Invoke == journal.InvokeSend && s.Function == functionCancel {
			out[id.PromiseID(s.Input)] = true
		}
	}
	return out
}

// functionCancel is the name by which the journal has a cancel of an operation.
const functionCancel = "cancel"

// rearm starts a timer again that a former incarnation cancelled after the entries that a restart keeps.
func (t *txn) rearm(ex *execution, timer id.PromiseID, at int64) {
	t.erasePromise(ex.ns, string(timer))
	made, _, err := recovery.Create(t.store(ex.ns), t.now, recovery.CreateRequest{ID: string(timer), Incarnation: ex.h.Incarnation, Timer: true, TimeoutAt: at}, retryMS)
	t.mustNot(ex, err)
	if made.Promise.State != recovery.PromisePending {
		t.must(ex, journal.TimerFired{Promise: timer})
	}
}

// waitAgain reopens a wait for a signal or a promise that a former incarnation cancelled after the entries that a
// restart keeps.
func (t *txn) waitAgain(ex *execution, call openCall) {
	promise := string(call.promise)
	p, _ := t.store(ex.ns).Promise(promise)
	if !call.started {
		t.must(ex, journal.InvokeStarted{Promise: call.promise, Attempt: 1})
	}
	t.erasePromise(ex.ns, promise)
	_, _, err := recovery.Create(t.store(ex.ns), t.now, recovery.CreateRequest{ID: promise, Incarnation: ex.h.Incarnation,
		Param: p.Param, Tags: p.Tags, External: true, TimeoutAt: state.Never}, retryMS)
	t.mustNot(ex, err)
	if state.OfAwait(p) {
		t.mustNot(ex, t.askFor(ex, string(p.Param), promise))
	}
}
