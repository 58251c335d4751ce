package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
	"perdure/journal"
	"perdure/recovery"
)

const defaultGraceMS = 30_000

// applyCancel requests an execution to stop. It records the request at once; the worker acknowledges it, or
// the end of the grace period ends the execution. A repeated request changes nothing.
func applyCancel(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	req, ns := cmd.GetCancel(), cmd.Namespace
	ex, ok := t.execution(ns, req.Id)
	if !ok {
		return nil, wire.NotFound(ns, req.Id)
	}
	if !ex.h.Status.Terminal() && ex.h.Status != journal.StatusCancelling {
		if err := t.requestCancel(ex, req.Reason, req.GraceMs); err != nil {
			return nil, ruleError(ns, err)
		}
	}
	return &commandv1.Reply{Kind: &commandv1.Reply_Cancel{Cancel: &perdurev1.CancelResponse{Status: wire.EncodeStatus(ex.h.Status)}}}, nil
}

func (t *txn) requestCancel(ex *execution, reason string, graceMS int64) error {
	wait := signalWait(ex)
	if err := t.append(ex, journal.CancelRequested{Reason: reason}); err != nil {
		return err
	}
	t.noteReason(ex, reason)
	if graceMS <= 0 {
		graceMS = defaultGraceMS
	}
	ex.h.GraceAt = t.now + min(graceMS, state.Never-t.now)
	t.put(keys.DeadlineOf(keys.DeadlineGrace, ex.h.GraceAt, ex.ns, ex.h.ID), []byte{})
	t.fx.expiration(ex.h.GraceAt)
	if ex.h.Kind == state.KindGraph {
		t.cancelNodes(ex, reason, graceMS)
		return nil
	}
	t.reachChildren(ex)
	s := t.store(ex.ns)
	task, ok := s.Task(ex.h.ID)
	if !ok {
		return nil
	}
	switch task.State {
	case recovery.TaskSuspended:
		// A worker must see the request, so the task becomes pending. The promises it waited for no longer
		// wake it.
		_, fx := recovery.Resume(s, t.now, ex.h.ID, ex.h.ID, retryMS)
		t.effects(ex.ns, fx)
		return t.abandon(ex, wait)
	case recovery.TaskPending:
		if ex.h.RetryAt > t.now && task.Version == 0 {
			return t.cancelled(ex, reason) // no worker has begun the attempt
		}
	case recovery.TaskAcquired:
		t.fx.Cancelling = append(t.fx.Cancelling, Assignment{Worker: task.PID, Function: ex.h.Function, Token: wire.Token(ex.ns, task)})
	}
	return nil
}
