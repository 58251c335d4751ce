package machine

import (
	"bytes"
	"crypto/sha256"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/entity"
	"perdure/fsm/state"
	"perdure/fsm/wire"
	"perdure/journal"
	"perdure/recovery"
)

// ruleContinue is the rule of commits that continue as new.
const ruleContinue = "continue_as_new"

// continueAsNew ends an incarnation and begins the next one with another input, without a history. Signals that
// the execution has not received are delivered to the next one. The commit's token is void afterwards; a
// repeated commit is answered by continued.
func (t *txn) continueAsNew(ex *execution, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	req, ns := cmd.GetCommit(), cmd.Namespace
	refuse := func(format string, args ...any) (*commandv1.Reply, *api.Error) {
		return nil, api.Errorf(perdurev1.Reason_REASON_RULE_BROKEN, format, args...).
			With("namespace", ns).With("id", ex.h.ID).With("rule", ruleContinue)
	}
	switch {
	case len(req.Events) > 0:
		return refuse("execution %q: a commit that continues as new has %d events", ex.h.ID, len(req.Events))
	case ex.h.Status == journal.StatusCancelling:
		return t.commitAnswer(ex, req.KnownSeq, recovery.TaskAcquired, nil), nil
	case ex.h.IsCleanup():
		return refuse("execution %q is a clean-up, which undoes everything once and does not continue as new", ex.h.ID)
	case ex.h.Incarnation == t.index:
		return nil, beganNow(ex)
	}
	if held := t.holder(ex).Phase; held == entity.Acquiring || held == entity.Inside {
		return refuse("execution %q continues as new inside a critical section", ex.h.ID)
	}
	waiting := ex.j.Unconsumed()
	if len(waiting) > state.MaxCarriedSignals {
		return refuse("execution %q has %d signals that it has not received, at most %d are carried over", ex.h.ID, len(waiting), state.MaxCarriedSignals)
	}
	signals, size := t.carried(ex, waiting)
	if size > state.MaxCarriedBytes {
		return refuse("execution %q has signals of %d bytes that it has not received, at most %d are carried over", ex.h.ID, size, state.MaxCarriedBytes)
	}
	startInput := ex.h.StartInput
	if len(startInput) == 0 {
		sum := sha256.Sum256(t.firstEntry(ex).Input)
		startInput = sum[:]
	}
	next := t.succeed(ex, succession{
		function: ex.h.Function, digest: t.nextDigest(ex), input: req.ContinueAsNew.Input, request: ex.h.StartRequest,
		startInput: startInput, signals: signals, lastCommit: cmd.GetRequest().GetId(),
		failedAttempts: ex.h.FailedAttempts, begunAttempt: ex.h.BegunAttempt,
	})
	return continuedReply(next), nil
}

// nextDigest is the digest of an execution's next incarnation, which has no history: the function's current one.
func (t *txn) nextDigest(ex *execution) string {
	if current := t.digest(ex.ns, ex.h.Function, ""); current != "" {
		return current
	}
	return ex.h.Digest
}

// continuedReply is the answer to a commit that began the next incarnation.
func continuedReply(next *execution) *commandv1.Reply {
	return &commandv1.Reply{Kind: &commandv1.Reply_Commit{Commit: &perdurev1.CommitReply{
		State: perdurev1.TaskState_TASK_STATE_PENDING, Status: wire.EncodeStatus(next.h.Status),
	}}}
}

// continued answers a repeated commit that began the present incarnation, as new or as the next attempt; nil
// if this one did not.
func (t *txn) continued(ns string, cmd *commandv1.Command) *commandv1.Reply {
	req := cmd.GetCommit()
	ex, ok := t.execution(ns, req.GetTask().GetId())
	if !ok || ex.h.Former != req.Task.Incarnation || len(ex.h.LastCommit) == 0 || !bytes.Equal(ex.h.LastCommit, cmd.GetRequest().GetId()) {
		return nil
	}
	return continuedReply(ex)
}

// carried reads signals that were delivered to an execution, and their size.
func (t *txn) carried(ex *execution, waiting []journal.Delivery) (out []journal.SignalDelivered, size int) {
	for _, d := range waiting {
		payload := t.payload(ex, d.Seq)
		if size += len(d.Name) + len(payload); size > state.MaxCarriedBytes {
			return nil, size
		}
		out = append(out, journal.SignalDelivered{Name: d.Name, Payload: payload})
	}
	return out, size
}

// mayBegin refuses a new incarnation of an execution that cannot have one by itself.
func (t *txn) mayBegin(ex *execution) *api.Error {
	h := &ex.h
	refuse := func(format string, args ...any) *api.Error {
		return api.Errorf(perdurev1.Reason_REASON_RULE_BROKEN, format, args...).With("namespace", ex.ns).With("id", h.ID)
	}
	switch {
	case h.Kind != state.KindFunction:
		return refuse("%q is a graph run", h.ID)
	case h.Parent != "":
		return refuse("execution %q is part of %q, which decides about it", h.ID, h.Parent)
	case h.Incarnation == t.index:
		return beganNow(ex)
	}
	if h.Purge != "" {
		return beingPurged(ex)
	}
	if h.ChildrenAt != 0 {
		// The children that the cancel or the end has not reached yet are children of this incarnation.
		if t.reachMoreChildren(ex.ns, h.ID); h.ChildrenAt != 0 {
			return api.Errorf(perdurev1.Reason_REASON_TRY_LATER, "execution %q still ends its children", h.ID).
				With("namespace", ex.ns).With("id", h.ID)
		}
	}
	if t.notifying(ex.ns, h.ID) {
		return errNotifying(ex.ns, h.ID)
	}
	if cleanup := h.CleanupID(); cleanup != "" {
		t.runExpirations(ex.ns, cleanup)
		if t.cleanupOpen(ex.ns, h) {
			return refuse("execution %q is being cleaned up after: %q has not ended", h.ID, cleanup)
		}
	}
	return nil
}

// beganNow refuses a second new incarnation of an execution, or of its child, within one entry: it would have
// the same number.
func beganNow(ex *execution) *api.Error {
	return api.Errorf(perdurev1.Reason_REASON_TRY_LATER, "execution %q or its child began in this very entry", ex.h.ID).
		With("namespace", ex.ns).With("id", ex.h.ID)
}
