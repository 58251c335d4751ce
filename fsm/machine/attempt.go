package machine

import (
	"encoding/binary"
	"math"

	"github.com/cespare/xxhash/v2"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/wire"
	"perdure/id"
	"perdure/journal"
	"perdure/recovery"
)

// This file is about the attempts of a child. An attempt begins when a worker acquires its task for the first
// time; the caller's journal says so by InvokeStarted. An attempt that fails with attempts left is
// InvokeRetrying there, and a new incarnation of the child. A lost lease is no failed attempt. A caller in
// another partition learns both by messages, which the channel keeps in order before the child's end.

// retryOf reads how a child's failed attempts are repeated.
func (c *commit) retryOf(e journal.InvokeScheduled, o *perdurev1.ChildRetry) (state.Retry, error) {
	if o == nil {
		return state.Retry{}, nil
	}
	if c.t.m.feature < state.LevelFunctions {
		return state.Retry{}, api.Errorf(perdurev1.Reason_REASON_FEATURE_LEVEL, "child %q with retries needs feature level %d, the partition is at %d",
			e.Promise, state.LevelFunctions, c.t.m.feature).With("id", c.ex.h.ID)
	}
	if o.JitterPercent > 100 || o.InitialMs < 0 || o.MaxMs < 0 {
		return state.Retry{}, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "child %q: a pause of %d to %d ms with a jitter of %d %%",
			e.Promise, o.InitialMs, o.MaxMs, o.JitterPercent).With("id", c.ex.h.ID)
	}
	return retryFromWire(o, uint32(min(state.RetryBound(e.RetryPolicy), 1<<30))+1), nil
}

func retryFromWire(o *perdurev1.ChildRetry, attempts uint32) state.Retry {
	if o == nil || attempts < 2 {
		return state.Retry{}
	}
	return state.Retry{Attempts: attempts, InitialMS: o.InitialMs, MaxMS: o.MaxMs, FactorPercent: o.FactorPercent, JitterPercent: o.JitterPercent}
}

func retryToWire(r state.Retry) *perdurev1.ChildRetry {
	if r == (state.Retry{}) {
		return nil
	}
	return &perdurev1.ChildRetry{InitialMs: r.InitialMS, MaxMs: r.MaxMS, FactorPercent: r.FactorPercent, JitterPercent: r.JitterPercent}
}

// elsewhere reports whether a child's caller holds a proxy promise for it.
func (ex *execution) elsewhere() bool { return ex.h.ParentPromise != ex.h.ID }

// callerOf finds the execution whose journal has a child under the child's own id. Its expirations run first,
// and may end the child. ok is false if nothing can be recorded there.
func (t *txn) callerOf(child *execution) (caller *execution, ok bool) {
	if child.h.Parent == "" || child.elsewhere() || child.h.IsCleanup() {
		return nil, false
	}
	t.runExpirations(child.ns, child.h.Parent)
	caller, ok = t.execution(child.ns, child.h.Parent)
	if !ok || caller.h.Kind != state.KindFunction || caller.h.Status.Terminal() || !caller.h.Belongs(child.h.ParentIncarnation) {
		return nil, false
	}
	return caller, true
}

// firstAcquired records that a worker has acquired the task of a child's attempt for the first time.
func (t *txn) firstAcquired(ns, objectID string) {
	if t.m.feature < state.LevelFunctions {
		return // the caller's journal has it
	}
	ex, ok := t.execution(ns, objectID)
	if !ok || ex.h.Parent == "" || ex.h.IsAttempt() {
		return
	}
	if caller, ok := t.callerOf(ex); ok {
		t.attemptBegun(caller, id.PromiseID(ex.h.ID))
		return
	}
	if attempt := ex.h.FailedAttempts + 1; ex.elsewhere() && ex.h.BegunAttempt != attempt {
		ex.h.BegunAttempt, ex.dirty = attempt, true
		t.toCaller(ex, &commandv1.Message{Kind: &commandv1.Message_ChildStarted{ChildStarted: &commandv1.ChildStarted{}}})
	}
}

// attemptBegun writes the InvokeStarted of an invocation's next attempt, unless one is open or the caller no
// longer runs.
func (t *txn) attemptBegun(caller *execution, promise id.PromiseID) {
	inv, ok := caller.j.Invoke(promise)
	if ok && !inv.Completed && inv.Open == 0 && caller.h.Status != journal.StatusCancelling {
		t.must(caller, journal.InvokeStarted{Promise: promise, Attempt: inv.Retries + 1})
	}
}

// attemptFailed writes the InvokeRetrying of an invocation's open attempt. It writes nothing if the caller is
// cancelling, or is a new incarnation that inherited a part of the attempts.
func (t *txn) attemptFailed(caller *execution, promise id.PromiseID, failure []byte, at int64) {
	t.attemptBegun(caller, promise)
	inv, ok := caller.j.Invoke(promise)
	if ok && inv.Open != 0 && inv.Retries < inv.Bound && caller.h.Status != journal.StatusCancelling {
		t.must(caller, journal.InvokeRetrying{Promise: promise, FailedAttempt: inv.Open, Error: failure, RetryAt: at})
	}
}

// invocationEnded writes the result of an invocation. One that nobody has begun is begun with it, except
// while its caller is cancelling: then it stays open.
func (t *txn) invocationEnded(caller *execution, promise id.PromiseID, result []byte) {
	t.attemptBegun(caller, promise)
	if inv, _ := caller.j.Invoke(promise); inv.Open != 0 {
		t.must(caller, journal.InvokeCompleted{Promise: promise, Result: result, Attempt: inv.Open})
	}
}

// retryChild begins the next attempt of a child that has failed. retried is false if the failure is final: it is marked
// as such, no attempt is left, the caller is cancelling, the deadline would come first, or the attempt got more signals
// than can be delivered again. The next attempt gets the input of the failed incarnation and the signals that were
// delivered to that.
func (c *commit) retryChild(e journal.ExecutionFailed, request []byte) (retried bool, err error) {
	t, ex := c.t, c.ex
	attempt := ex.h.FailedAttempts + 1
	if attempt >= ex.h.Retry.Attempts || ex.h.Incarnation == t.index {
		return false, nil
	}
	if o, err := recovery.DecodeOutcome(e.Error); err != nil || o.Failure != nil && o.Failure.NonRetryable {
		return false, nil //nolint:nilerr // a failure that cannot be read is final
	}
	caller, here := t.callerOf(ex)
	if ex.h.Status.Terminal() {
		c.over, c.state = true, recovery.TaskFulfilled // with its caller, whose deadline had expired
		return true, nil
	}
	if here && caller.h.Status == journal.StatusCancelling {
		return false, nil
	}
	at := t.now + t.pauseOf(ex, attempt)
	if ex.h.DeadlineMS != 0 && at >= ex.h.DeadlineMS {
		return false, nil
	}
	signals, ok := t.signalsOf(ex)
	if !ok {
		return false, nil
	}
	if err := ex.j.Check(ex.j.NextSeq(), e); err != nil {
		return false, err
	}
	if here {
		t.attemptFailed(caller, id.PromiseID(ex.h.ID), e.Error, at)
	} else if ex.elsewhere() {
		t.toCaller(ex, &commandv1.Message{Kind: &commandv1.Message_ChildRetrying{ChildRetrying: &commandv1.ChildRetrying{
			Error: wire.EncodeOutcome(e.Error).GetFailure(), RetryAtMs: at}}})
	}
	c.next = t.succeed(ex, succession{
		function: ex.h.Function, digest: ex.h.Digest, input: t.firstEntry(ex).Input, request: ex.h.StartRequest,
		startInput: ex.h.StartInput, signals: signals, lastCommit: request, failedAttempts: attempt, retryAt: at,
	})
	c.over = true
	return true, nil
}

// pauseOf is the pause after a child's attempt, in milliseconds. Its jitter is drawn from the child's identity, so all
// replicas draw the same.
func (t *txn) pauseOf(ex *execution, attempt uint32) int64 {
	pause := ex.h.Retry.Pause(attempt)
	seed := binary.BigEndian.AppendUint64([]byte(ex.h.ID), ex.h.Incarnation)
	part := int64(xxhash.Sum64(seed) % 1001)
	return max(pause-pause*int64(ex.h.Retry.JitterPercent)/100*part/1000, 1)
}

// signalsOf reads the signals that were delivered to an execution, without the timeouts of its waits. ok is
// false if they are more than a new incarnation takes over.
func (t *txn) signalsOf(ex *execution) (out []journal.SignalDelivered, ok bool) {
	size := 0
	t.journalEntries(ex, 0, math.MaxUint64, func(key, value []byte) bool {
		kind, err := journal.KindOf(value)
		if err == nil && kind == journal.KindSignalDelivered {
			var entry journal.Entry
			if entry, err = journal.DecodeEntry(append([]byte(nil), value...)); err == nil {
				if signal := entry.Event.(journal.SignalDelivered); !isFailure(signal.Payload) {
					out, size = append(out, signal), size+len(signal.Name)+len(signal.Payload)
				}
			}
		}
		if err != nil {
			state.PanicCorrupt("journal", key, err)
		}
		return len(out) <= state.MaxCarriedSignals && size <= state.MaxCarriedBytes
	})
	return out, len(out) <= state.MaxCarriedSignals && size <= state.MaxCarriedBytes
}

// toCaller sends a message about a child to the partition of its caller.
func (t *txn) toCaller(child *execution, msg *commandv1.Message) {
	msg.FromId, msg.FromIncarnation = child.h.ID, child.h.Incarnation
	msg.ToId, msg.ToIncarnation = child.h.ParentPromise, child.h.ParentIncarnation
	t.mustNot(child, t.send(child.ns, child.h.Parent, msg))
}

// callerTold finds the caller that a message about a child is for; ok is false if that no longer waits for it.
func (t *txn) callerTold(msg *commandv1.Message) (caller *execution, ok bool) {
	t.level = max(t.level, state.LevelFunctions)
	parent, ok := state.ParentOf(msg.ToId)
	if !ok {
		return nil, false
	}
	t.runExpirations(msg.Namespace, parent)
	p, ok := t.store(msg.Namespace).Promise(msg.ToId)
	if !ok || p.Incarnation != msg.ToIncarnation || p.Target != "" || !p.Live(t.now) {
		return nil, false
	}
	caller, ok = t.execution(msg.Namespace, parent)
	return caller, ok && caller.h.Kind == state.KindFunction && !caller.h.Status.Terminal() && caller.h.Belongs(p.Incarnation)
}

func (t *txn) receiveChildStarted(msg *commandv1.Message) {
	if caller, ok := t.callerTold(msg); ok {
		t.attemptBegun(caller, id.PromiseID(msg.ToId))
	}
}

func (t *txn) receiveChildRetrying(msg *commandv1.Message, w *commandv1.ChildRetrying) error {
	caller, ok := t.callerTold(msg)
	if !ok {
		return nil
	}
	failure, refused := wire.DecodeOutcome(&perdurev1.Outcome{Result: &perdurev1.Outcome_Failure{Failure: w.Error}})
	if refused != nil {
		return refused
	}
	t.attemptFailed(caller, id.PromiseID(msg.ToId), failure, w.RetryAtMs)
	return nil
}
