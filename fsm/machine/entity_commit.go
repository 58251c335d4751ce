package machine

import (
	"bytes"
	"errors"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/entity"
	"perdure/fsm/state"
	"perdure/fsm/wire"
	"perdure/id"
	"perdure/recovery"
)

// applyCommitEntity applies one step of an entity: the value after the first operations of its batch, and their
// results. Its guard is the task's token and the entity's version. If more can run, the worker keeps the task, and the
// answer carries the next batch.
func applyCommitEntity(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	req, ns := cmd.GetCommitEntity(), cmd.Namespace
	entityID, isEntity := id.EntityOfTask(req.GetTask().GetId())
	if !isEntity {
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "%q is not the task of an entity", req.GetTask().GetId()).With("id", req.GetTask().GetId())
	}
	o, refused := t.heldEntity(ns, entityID, req.Task)
	if o != nil && len(o.LastCommit) > 0 && bytes.Equal(o.LastCommit, cmd.GetRequest().GetId()) {
		if refused != nil {
			return entityReply(nil), nil //nolint:nilerr // it was applied, and the task has a later version
		}
		return entityReply(o), nil
	}
	if refused != nil {
		return nil, refused
	}
	c := entity.Commit{Incarnation: req.Task.Incarnation, Version: req.Version, Lane: req.Lane, Exists: req.Exists, Value: req.Value}
	for _, r := range req.Results {
		output, refused := wire.DecodeOutcome(r.Outcome)
		if refused != nil {
			return nil, refused
		}
		c.Results = append(c.Results, entity.Result{Request: r.Request, Failed: r.Outcome.GetFailure() != nil, Output: output})
	}
	for _, s := range req.Signals {
		if err := id.ValidateEntity(s.Id); err != nil {
			return nil, badID(ns, err)
		}
		c.Sends = append(c.Sends, entity.Send{To: entity.ID(s.Id), Operation: s.Operation, Input: s.Input, DueAt: t.dueAt(s.DelayMs)})
	}
	if refused := t.signalsAdmitted(o, len(c.Results), req.Signals); refused != nil {
		return nil, refused
	}
	out, err := o.Commit(t.now, c)
	if e, ok := err.(*entity.Error); ok && e.Rule == entity.RuleLane {
		// A section took the lock while the worker ran scheduled signals. They run again after it. The worker keeps the
		// task for the section's operations, or the task is halted.
		out, err = nil, nil
	}
	if err != nil {
		return nil, ruleError(ns, err)
	}
	o.LastCommit, o.Failures = cmd.GetRequest().GetId(), 0
	t.level = max(t.level, state.LevelFunctions)
	t.post(ns, out...)
	if !o.Runnable() {
		t.halt(ns, req.Task.Id)
		return entityReply(nil), nil
	}
	return entityReply(o), nil
}

// entityReply answers a commit with the next batch of an entity whose task the worker keeps; nil for none.
func entityReply(o *entityObject) *commandv1.Reply {
	reply := &perdurev1.CommitEntityReply{}
	if o != nil {
		reply.Next = wire.EntityBatch(o.Entity)
	}
	return &commandv1.Reply{Kind: &commandv1.Reply_CommitEntity{CommitEntity: reply}}
}

// heldEntity finds the entity that a token names and checks that the token is the current one. It returns the entity
// even with a refusal, if the incarnation is the token's.
func (t *txn) heldEntity(ns, entityID string, token *perdurev1.TaskToken) (*entityObject, *api.Error) {
	stale := func(why string) *api.Error {
		return api.Errorf(perdurev1.Reason_REASON_STALE_TASK, "task %q is no longer yours: %s", token.GetId(), why).
			With("namespace", ns).With("id", token.GetId())
	}
	o, ok := t.entity(ns, entity.ID(entityID), false)
	if !ok || o.Incarnation != token.Incarnation {
		return nil, stale("the entity has no such incarnation")
	}
	if _, err := recovery.Fence(t.store(ns), t.now, recovery.TaskRef{ID: token.Id, Incarnation: token.Incarnation, Version: token.Version}); err != nil {
		var why *recovery.Error
		if !errors.As(err, &why) {
			panic(state.Fault{Err: err})
		}
		return o, stale(why.Detail).With("rule", why.Rule)
	}
	return o, nil
}

// releaseEntity gives an entity's task back, now or after a delay. A release with a problem counts as a failed attempt.
func (t *txn) releaseEntity(ns, entityID string, req *perdurev1.Release) (*commandv1.Reply, *api.Error) {
	o, refused := t.heldEntity(ns, entityID, req.Task)
	if refused != nil {
		return nil, refused
	}
	_, fx, err := recovery.Release(t.store(ns), t.now, recovery.TaskRef{
		ID: req.Task.Id, Incarnation: req.Task.Incarnation, Version: req.Task.Version}, req.DelayMs, retryMS)
	if err != nil {
		return nil, ruleError(ns, err)
	}
	t.effects(ns, fx)
	if req.Problem != "" {
		t.entityFailed(o.ns, entityID)
	}
	return &commandv1.Reply{Kind: &commandv1.Reply_Release{Release: &perdurev1.ReleaseReply{}}}, nil
}
