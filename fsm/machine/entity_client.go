package machine

import (
	"encoding/hex"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/entity"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/id"
	"perdure/recovery"
)

// maxEntityQueue bounds what waits at an entity when a client adds to it, or a function outside its critical section
// signals it. A message that was sent is never refused, so a backlog may exceed the bound by what is under way.
const maxEntityQueue = 10_000

// fullRetryMS is after what time a refused signal should come again.
const fullRetryMS = 500

// backlog counts what waits at an entity.
func (o *entityObject) backlog() int { return len(o.Queue) + len(o.Lane) + len(o.Delayed) }

// errFull refuses an operation for an entity whose backlog is full.
func errFull(ns, entityID string, waiting int) *api.Error {
	return api.Errorf(perdurev1.Reason_REASON_OVERLOADED, "%d operations wait at entity %q, the bound is %d", waiting, entityID, maxEntityQueue).
		With("namespace", ns).With("id", entityID).WithRetryAfterMS(fullRetryMS)
}

// fullEntities returns the entities with full backlogs among those asked for and those that messages have come for.
func (t *txn) fullEntities(asked []*commandv1.EntityRef) (full []*commandv1.EntityRef) {
	coming := map[state.Ref]int{}
	var order []state.Ref
	note := func(ref state.Ref, n int) {
		if _, known := coming[ref]; !known {
			order = append(order, ref)
		}
		coming[ref] += n
	}
	for _, a := range asked {
		note(state.Ref{Namespace: a.Namespace, ID: a.Id}, 0)
	}
	for _, p := range t.posted {
		if to := p.m.To(); to.Kind == entity.PartyEntity {
			note(state.Ref{Namespace: p.ns, ID: to.ID}, 1)
		}
	}
	for _, ref := range order {
		if o, ok := t.entity(ref.Namespace, entity.ID(ref.ID), false); ok && o.backlog()+coming[ref] >= maxEntityQueue {
			full = append(full, &commandv1.EntityRef{Namespace: ref.Namespace, Id: ref.ID})
		}
	}
	return full
}

// applySignalEntity queues a client's signal to an entity.
func applySignalEntity(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	req, ns := cmd.GetSignalEntity(), cmd.Namespace
	if err := t.admitEntity(ns, req.Id, req.Operation); err != nil {
		return nil, err
	}
	t.post(ns, entity.Signal{Origin: client, Entity: entity.ID(req.Id), Request: requestOf(t, cmd), Operation: req.Operation,
		Input: req.Input, DueAt: t.dueAt(req.DelayMs)})
	return &commandv1.Reply{Kind: &commandv1.Reply_SignalEntity{SignalEntity: &perdurev1.SignalEntityResponse{}}}, nil
}

// applyCallEntity queues a client's call of an entity. A promise, whose id the request determines, gets the result.
func applyCallEntity(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	req, ns := cmd.GetCallEntity(), cmd.Namespace
	if err := t.admitEntity(ns, req.Id, req.Operation); err != nil {
		return nil, err
	}
	request := requestOf(t, cmd)
	made, _, err := recovery.Create(t.store(ns), t.now, recovery.CreateRequest{
		ID: id.EntityCall(req.Id, request), Incarnation: t.index, External: true, TimeoutAt: state.Never}, retryMS)
	if err != nil {
		return nil, ruleError(ns, err)
	}
	if made.New {
		t.post(ns, entity.Call{Origin: client, Entity: entity.ID(req.Id), Request: request, Operation: req.Operation, Input: req.Input})
	}
	return &commandv1.Reply{Kind: &commandv1.Reply_CallEntity{CallEntity: &perdurev1.CallEntityResponse{}}}, nil
}

// client is the origin of all that clients send: a client's own order is that of its requests' answers.
var client = entity.Party{Kind: entity.PartyClient, ID: "client"}

// requestOf is the request of a client's operation among those of all clients.
func requestOf(t *txn, cmd *commandv1.Command) string {
	if rid := cmd.GetRequest().GetId(); len(rid) > 0 {
		return hex.EncodeToString(rid)
	}
	return hex.EncodeToString(keys.AppendUint64(nil, t.index))
}

// dueAt converts the delay of a signal to a point in time; 0 for none.
func (t *txn) dueAt(delayMS int64) int64 {
	if delayMS <= 0 {
		return 0
	}
	return t.now + min(delayMS, state.Never-t.now)
}

// admitEntity refuses a client's operation of a malformed id, of an unknown entity, or beyond the bound of its queue.
func (t *txn) admitEntity(ns, entityID, operation string) *api.Error {
	if err := id.ValidateEntity(entityID); err != nil {
		return badID(ns, err)
	}
	if operation == "" {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "the operation of entity %q has no name", entityID).With("namespace", ns).With("id", entityID)
	}
	queue := id.EntityQueue(entityID)
	if _, known := t.get(keys.Of(keys.Function, ns, queue)); !known {
		return api.Errorf(perdurev1.Reason_REASON_FUNCTION_UNKNOWN, "no worker has ever registered an entity %q in namespace %q", queue[1:], ns).
			With("namespace", ns).With("id", entityID).With("function", queue)
	}
	if o, ok := t.entity(ns, entity.ID(entityID), false); ok && o.backlog() >= maxEntityQueue {
		return errFull(ns, entityID, o.backlog())
	}
	return nil
}

// answerClient settles the promise of a client's call.
func (t *txn) answerClient(ns string, r entity.Reply) {
	call := id.EntityCall(string(r.Entity), r.Request)
	p, ok := t.store(ns).Promise(call)
	if !ok || p.State.Settled() {
		return
	}
	to := recovery.PromiseResolved
	if r.Failed {
		to = recovery.PromiseRejected
	}
	if err := t.settle(ns, call, to, r.Output); err != nil {
		panic(state.Fault{Err: err})
	}
	at := t.now + state.AnswerRetentionMS
	t.put(keys.DeadlineOf(keys.DeadlineAnswer, at, ns, call), []byte{})
	t.fx.expiration(at)
}

// expireAnswer deletes the result of a client's call whose time is over.
func (t *txn) expireAnswer(ns, call string) {
	p, ok := t.store(ns).Promise(call)
	if !ok || !p.State.Settled() || p.SettledAt+state.AnswerRetentionMS > t.now {
		return
	}
	t.remove(keys.DeadlineOf(keys.DeadlineAnswer, p.SettledAt+state.AnswerRetentionMS, ns, call))
	t.forget(ns, call)
}
