package machine

import (
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
	"perdure/id"
	"perdure/journal"
	"perdure/recovery"

	commandv1 "perdure/api/command/v1"
)

// settle settles a promise and runs the whole settlement chain (recovery protocol, settlement chain).
func (t *txn) settle(ns, objectID string, to recovery.PromiseState, value []byte) error {
	st, err := recovery.Settle(t.store(ns), t.now, recovery.Ref{ID: objectID}, to, value)
	if err != nil {
		return err
	}
	t.chain(ns, st)
	return nil
}

// timeout settles a promise whose deadline has expired.
func (t *txn) timeout(ns, objectID string) {
	t.ended(ns, recovery.TimeoutPromise(t.store(ns), t.now, recovery.Ref{ID: objectID}))
}

// ended writes the end of an execution whose promise was settled by its deadline, then continues the chain.
// Promise and journal end together (the ending table).
func (t *txn) ended(ns string, st recovery.Settlement) {
	if !st.Changed {
		return
	}
	if ex, ok := t.executionOf(ns, st.Promise); ok && !ex.h.Status.Terminal() {
		wait := signalWait(ex)
		if ex.h.Status != journal.StatusCancelling {
			t.must(ex, journal.CancelRequested{Reason: "timed out"})
		}
		t.must(ex, journal.ExecutionCancelled{Reason: "timed out"})
		t.close(ex)
		if err := t.abandon(ex, wait); err != nil {
			panic(state.Fault{Err: err})
		}
		t.leave(ex, "its graph run timed out")
	}
	t.chain(ns, st)
}

// executionOf returns the execution whose result a promise holds. Only a promise with a target, or one marked
// as a graph run's, has one.
func (t *txn) executionOf(ns string, p recovery.Promise) (*execution, bool) {
	if p.Target == "" && !state.OfGraph(p) || state.OfClient(p) {
		return nil, false
	}
	return t.execution(ns, p.ID)
}

// chain runs the consequences of one settlement: it records the result in the caller's journal, resumes
// awaiters whose wait is satisfied, and notifies listeners. It settles no other promise.
func (t *txn) chain(ns string, st recovery.Settlement) {
	if !st.Changed {
		return
	}
	t.notifyCaller(ns, st.Promise)
	t.notify(ns, st)
}

// notify is the part of the chain for awaiters and listeners.
func (t *txn) notify(ns string, st recovery.Settlement) {
	if !st.Changed {
		return
	}
	for _, awaiter := range st.Awaiters {
		t.wake(ns, awaiter, st.Promise.ID)
	}
	t.notifyFirst(ns, st.Promise)
}

// wake resumes an awaiter's task. It resumes an awaiter with a journal only when its wait is satisfied; until
// then the task stays suspended on its other callbacks.
func (t *txn) wake(ns, awaiter, by string) {
	if t.ofClient(ns, awaiter) {
		_, fx := recovery.Resume(t.store(ns), t.now, awaiter, by, t.m.clientRetry)
		t.effects(ns, fx)
		return
	}
	if ex, ok := t.execution(ns, awaiter); ok {
		if ex.h.Status != journal.StatusBlocked || !ex.j.WaitSatisfied() {
			return
		}
		t.must(ex, journal.ExecutionResumed{})
	}
	_, fx := recovery.Resume(t.store(ns), t.now, awaiter, by, retryMS)
	t.effects(ns, fx)
}

// notifyCaller records a settled child promise as a fact in the journal of its calling execution.
func (t *txn) notifyCaller(ns string, p recovery.Promise) {
	if state.OfClient(p) {
		return // whatever its id
	}
	incarnation := p.Incarnation // of the caller
	if child, ok := t.executionOf(ns, p); ok {
		if child.h.IsAttempt() {
			t.attemptEnded(child, p)
			return
		}
		if child.h.ParentPromise != "" && child.h.ParentPromise != p.ID {
			// The caller is in another partition: it holds a proxy promise, which a message settles.
			if err := t.send(ns, child.h.Parent, &commandv1.Message{
				FromId: p.ID, FromIncarnation: child.h.Incarnation,
				ToId: child.h.ParentPromise, ToIncarnation: child.h.ParentIncarnation,
				Kind: &commandv1.Message_ChildDone{ChildDone: &commandv1.ChildDone{Outcome: wire.EncodeOutcome(state.OutcomeOf(p))}},
			}); err != nil {
				panic(state.Fault{Err: err})
			}
			return
		}
		incarnation = child.h.ParentIncarnation
	}
	promise := id.PromiseID(p.ID)
	parent, ok := promise.Parent()
	if !ok {
		return
	}
	// The caller's own deadline may have expired as well: then the caller ends and the result comes too late.
	t.runExpirations(ns, string(parent))
	ex, ok := t.execution(ns, string(parent))
	if !ok || ex.h.Status.Terminal() || !ex.h.Belongs(incarnation) {
		return
	}
	if ex.h.Kind == state.KindGraph {
		t.expireNode(ex, promise, p)
		return
	}
	if fired, isTimer := ex.j.Timer(promise); isTimer {
		if !fired && p.State != recovery.PromiseRejectedCanceled {
			t.must(ex, journal.TimerFired{Promise: promise})
		}
		return
	}
	if _, invoked := ex.j.Invoke(promise); invoked {
		t.invocationEnded(ex, promise, state.OutcomeOf(p))
		return
	}
	if p.State == recovery.PromiseRejectedTimedout {
		t.signalTimedOut(ex, promise)
	}
}

// signalTimedOut ends a signal wait whose deadline has expired: it writes the delivery of a typed timeout and
// its receipt in one apply.
func (t *txn) signalTimedOut(ex *execution, promise id.PromiseID) {
	kind, on, name, blocked := ex.j.Wait()
	if !blocked || kind != journal.AwaitSignal || len(on) != 1 || on[0] != promise {
		return
	}
	payload := state.EncodeFailure(state.FailureTimeout, "no signal \""+name+"\" came before the deadline")
	delivery := ex.j.Deliveries(name) + 1
	t.must(ex, journal.SignalDelivered{Name: name, Payload: payload, DeliveryID: delivery})
	t.must(ex, journal.SignalReceived{Promise: promise, Name: name, Payload: payload, DeliveryID: delivery})
}

// finish ends an execution whose last journal entry is written already.
func (t *txn) finish(ex *execution, to recovery.PromiseState, value []byte) error {
	t.close(ex)
	return t.settle(ex.ns, ex.h.ID, to, value)
}

// cancelled ends an execution as cancelled, in any open state.
func (t *txn) cancelled(ex *execution, reason string) error {
	wait := signalWait(ex)
	if ex.h.Status != journal.StatusCancelling {
		if err := t.append(ex, journal.CancelRequested{Reason: reason}); err != nil {
			return err
		}
	}
	if err := t.append(ex, journal.ExecutionCancelled{Reason: reason}); err != nil {
		return err
	}
	if err := t.finish(ex, recovery.PromiseRejectedCanceled, state.EncodeFailure(state.FailureCancelled, reason)); err != nil {
		return err
	}
	t.leave(ex, reason)
	return t.abandon(ex, wait)
}

// signalWait is the promise of an execution's open signal wait, "" if there is none.
func signalWait(ex *execution) string {
	if kind, on, _, blocked := ex.j.Wait(); blocked && kind == journal.AwaitSignal {
		return string(on[0])
	}
	return ""
}

// abandon ends the promise of a signal wait that was open at its execution's cancel: the execution will not
// receive the signal.
func (t *txn) abandon(ex *execution, wait string) error {
	if wait == "" {
		return nil
	}
	return t.settle(ex.ns, wait, recovery.PromiseRejectedCanceled, nil)
}

// runExpirations runs the expirations of one object: its promise's deadline, its task's lease, its grace.
func (t *txn) runExpirations(ns, objectID string) {
	p, ok := t.store(ns).Promise(objectID)
	if !ok || p.State != recovery.PromisePending {
		return // a settled promise has no task and no grace left
	}
	if !p.Live(t.now) {
		t.timeout(ns, objectID)
		return
	}
	if p.Target == "" && !state.OfGraph(p) {
		return
	}
	if !state.OfClient(p) {
		t.graceOver(ns, objectID)
	}
	if p.Target == "" {
		t.expireGraph(ns, objectID)
		return
	}
	if task, ok := t.store(ns).Task(objectID); ok && task.State == recovery.TaskAcquired && task.LeaseAt <= t.now {
		t.expireLease(ns, recovery.Ref{ID: objectID})
	}
}

// graceOver ends a cancelling execution whose worker did not acknowledge in time.
func (t *txn) graceOver(ns, objectID string) {
	ex, ok := t.execution(ns, objectID)
	if !ok || ex.h.GraceAt == 0 || ex.h.GraceAt > t.now {
		return
	}
	t.remove(keys.DeadlineOf(keys.DeadlineGrace, ex.h.GraceAt, ns, objectID))
	ex.h.GraceAt, ex.dirty = 0, true
	if ex.h.Status == journal.StatusCancelling {
		reason := "the grace period ended"
		if ex.h.CancelReason != "" {
			reason = ex.h.CancelReason + ": " + reason
		}
		if err := t.cancelled(ex, reason); err != nil {
			panic(state.Fault{Err: err})
		}
	}
}
