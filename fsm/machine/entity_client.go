package machine

import (
	"encoding/hex"
	"math"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/entity"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/id"
	"perdure/recovery"
)

// maxEntityQueue and maxEntityBytes bound what waits at an entity. A full backlog refuses the operations of clients and
// of this partition's functions and entities. The leaders of other partitions hold theirs back once they know. A message
// that was sent is never refused, so a backlog may exceed the bounds by what is under way.
const (
	maxEntityQueue = state.MaxEntityQueue
	maxEntityBytes = state.MaxEntityBytes
)

// fullRetryMS is after what time a refused operation should come again.
const fullRetryMS = 500

// backlog is what waits at an entity: entries, and the bytes of their operations.
type backlog struct{ entries, bytes int }

func (b backlog) full() bool { return b.entries >= maxEntityQueue || b.bytes >= maxEntityBytes }

// backlog is what waits at an entity. Its bytes are those at the transaction's begin.
func (o *entityObject) backlog() backlog {
	return backlog{len(o.Queue) + len(o.Lane) + len(o.Delayed), o.bytes}
}

// errFull refuses an operation for an entity whose backlog is full.
func errFull(ns, entityID string, b backlog) *api.Error {
	return api.Errorf(perdurev1.Reason_REASON_OVERLOADED, "%d operations of %d bytes wait at entity %q, the bounds are %d and %d bytes",
		b.entries, b.bytes, entityID, maxEntityQueue, maxEntityBytes).
		With("namespace", ns).With("id", entityID).With("rule", state.RuleEntityBacklog).WithRetryAfterMS(fullRetryMS)
}

// admitted refuses an operation for an entity of this partition whose backlog is full.
func (t *txn) admitted(ns, entityID string) *api.Error {
	if state.PartitionOf(ns, entityID, t.m.cfg.Partitions) != t.m.cfg.Partition {
		return nil
	}
	if o, ok := t.peekEntity(ns, entity.ID(entityID)); ok && o.backlog().full() {
		return errFull(ns, entityID, o.backlog())
	}
	return nil
}

// signalsAdmitted refuses a commit of an entity's first operations, so many as leave, if one of their signals goes to an
// entity of this partition whose backlog is full. A full entity may signal itself as long as its backlog does not grow.
func (t *txn) signalsAdmitted(o *entityObject, leave int, signals []*perdurev1.EntitySignal) *api.Error {
	before, own := o.backlog(), backlog{}
	for _, s := range signals {
		if s.Id == string(o.ID) {
			own.entries++
			own.bytes += len(s.Operation) + len(s.Input)
		} else if refused := t.admitted(o.ns, s.Id); refused != nil {
			return refused
		}
	}
	if own.entries == 0 {
		return nil
	}
	ran, _ := o.Batch(leave, math.MaxInt)
	after := backlog{before.entries + own.entries - len(ran.Operations), before.bytes + own.bytes}
	for _, op := range ran.Operations {
		after.bytes -= len(op.Name) + len(op.Input)
	}
	if after.full() && (after.entries > before.entries || after.bytes > before.bytes) {
		return errFull(o.ns, string(o.ID), before)
	}
	return nil
}

// fullEntities returns the entities with full backlogs among those asked for and those that messages have come for.
func (t *txn) fullEntities(asked []*commandv1.EntityRef) (full []*commandv1.EntityRef) {
	coming := map[state.Ref]backlog{}
	var order []state.Ref
	note := func(ref state.Ref, n, bytes int) {
		b, known := coming[ref]
		if !known {
			order = append(order, ref)
		}
		coming[ref] = backlog{b.entries + n, b.bytes + bytes}
	}
	for _, a := range asked {
		note(state.Ref{Namespace: a.Namespace, ID: a.Id}, 0, 0)
	}
	for _, p := range t.posted {
		if to := p.m.To(); to.Kind == entity.PartyEntity {
			note(state.Ref{Namespace: p.ns, ID: to.ID}, 1, entity.Entry{Message: p.m}.Bytes())
		}
	}
	for _, ref := range order {
		o, ok := t.peekEntity(ref.Namespace, entity.ID(ref.ID))
		if !ok {
			continue
		}
		b, more := o.backlog(), coming[ref]
		if (backlog{b.entries + more.entries, b.bytes + more.bytes}).full() {
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
	return t.admitted(ns, entityID)
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
	if !t.released(ns, call, nil) {
		return // the deadline stays
	}
	t.remove(keys.DeadlineOf(keys.DeadlineAnswer, p.SettledAt+state.AnswerRetentionMS, ns, call))
	t.forget(ns, call)
}
