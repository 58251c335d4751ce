package audit

import (
	"bytes"
	"fmt"

	commandv1 "perdure/api/command/v1"
	"perdure/entity"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/id"
	"perdure/journal"
	"perdure/recovery"
)

// entityHead checks one entity: its head and its lists by the rules of entities, and its task and its deadline.
func (a *auditor) entityHead(key, value []byte) {
	ns, more, _, ok := a.parts(key, 1)
	if !ok {
		return
	}
	entityID := more[0]
	head, err := state.DecodeEntityHead(bytes.Clone(value))
	switch {
	case err != nil:
		a.damaged(ns, entityID, key, err.Error())
		return
	case !bytes.Equal(key, keys.Of(keys.Entity, ns, string(head.ID))):
		a.found(ns, entityID, RuleMisplaced, "its key has the entity %q", string(head.ID))
		return
	case !bytes.Equal(state.EncodeEntityHead(head.State, head.EntityWork), value):
		a.damaged(ns, entityID, key, "the entity is not written the one way there is")
	}
	a.here(ns, entityID)
	e, ok := readable(state.ReadEntity(a.From, ns, entityID, 0))
	if !ok {
		return // an entry is damaged, and said to be
	}
	bad := func(format string, args ...any) { a.found(ns, entityID, RuleEntity, format, args...) }
	for _, v := range e.Invariants() {
		a.found(ns, entityID, v.Name, "%s", v.Detail)
	}
	if err := id.ValidateEntity(entityID); err != nil {
		bad("%v", err)
	}
	if level := a.number(state.MetaFeature); level < state.LevelFunctions {
		bad("an entity in a state of feature level %d", level)
	}
	if e.Incarnation > a.newest {
		bad("it began at index %d, the state is at %d", e.Incarnation, a.newest)
	}
	due, _ := e.NextScheduled()
	if due != e.DueAt || due != 0 && !a.Has(keys.DeadlineOf(keys.DeadlineEntity, due, ns, entityID)) {
		bad("its first scheduled signal is for %d, its head has %d, which is in the index: %t", due, e.DueAt, a.Has(keys.DeadlineOf(keys.DeadlineEntity, e.DueAt, ns, entityID)))
	}
	a.entityTask(ns, e)
	a.backlog(ns, e)
}

// backlog checks the bound of an entity's backlog by the operations of clients alone: each of them was admitted while
// less than the bound waited. Messages of functions and entities are bounded where they are sent.
func (a *auditor) backlog(ns string, e state.Entity) {
	entries, bytes, largest := 0, 0, 0
	for _, list := range [][]entity.Entry{e.Lane, e.Queue, e.Delayed} {
		for _, item := range list {
			if item.Message.From().Kind == entity.PartyClient {
				entries++
				bytes += item.Bytes()
				largest = max(largest, item.Bytes())
			}
		}
	}
	if entries > state.MaxEntityQueue || entries > 0 && bytes-largest >= state.MaxEntityBytes {
		a.found(ns, string(e.ID), RuleBacklog, "%d operations of clients wait with %d bytes, the bounds are %d and %d",
			entries, bytes, state.MaxEntityQueue, state.MaxEntityBytes)
	}
}

// entityTask checks that an entity has the task that it needs.
func (a *auditor) entityTask(ns string, e state.Entity) {
	bad := func(format string, args ...any) { a.found(ns, string(e.ID), RuleEntity, format, args...) }
	taskID := id.EntityTask(string(e.ID))
	p, okPromise := a.storedPromise(ns, taskID)
	t, ok := a.storedTask(ns, taskID)
	switch {
	case !ok || !okPromise:
		bad("it has no task")
		return
	case t.Incarnation != e.Incarnation || p.State != recovery.PromisePending || t.Target != id.EntityQueue(string(e.ID)):
		bad("its task is for %q of incarnation %d, its own is %d, and its promise is %s", t.Target, t.Incarnation, e.Incarnation, p.State)
	}
	switch runnable := e.Runnable(); {
	case t.State == recovery.TaskAcquired:
	case e.Collectable():
		bad("nothing distinguishes it from a new one, and it is stored")
	case t.State == recovery.TaskPending && !runnable:
		bad("it waits for a worker, and no operation may run")
	case t.State != recovery.TaskPending && runnable:
		bad("an operation may run, and its task is %s", t.State)
	}
}

// entityItem checks one entry of an entity's lists. The entity's invariants check its meaning.
func (a *auditor) entityItem(key, value []byte) {
	ns, more, _, ok := a.parts(key, 1)
	if !ok {
		return
	}
	entityID := more[0]
	prefix := keys.EntityItemPrefix(ns, entityID)
	list, item, err := state.DecodeEntityItem(key, prefix, value)
	switch {
	case err != nil:
		a.damaged(ns, entityID, key, err.Error())
		return
	case !bytes.Equal(key, keys.EntityItemOf(ns, entityID, list, item.Seq)) || !bytes.Equal(entity.AppendEntry(nil, item), value):
		a.damaged(ns, entityID, key, "the entry is not written the one way there is")
	}
	if !a.Has(keys.Of(keys.Entity, ns, entityID)) {
		a.found(ns, entityID, RuleEntity, "entry %d waits, and there is no entity", item.Seq)
	}
	if call, ok := item.Message.(entity.Call); ok && call.Origin.Kind == entity.PartyClient {
		if p, ok := a.storedPromise(ns, id.EntityCall(entityID, call.Request)); !ok || p.State.Settled() {
			a.found(ns, entityID, RuleEntity, "the call %q of a client waits, and no promise waits for its result", call.Request)
		}
	}
}

// holder checks the critical section of an execution.
func (a *auditor) holder(key, value []byte) {
	ns, more, rest, ok := a.parts(key, 1)
	if !ok {
		return
	}
	objectID := more[0]
	h, err := entity.DecodeHolder(value)
	switch {
	case err != nil:
		a.damaged(ns, objectID, key, err.Error())
		return
	case len(rest) != 8 || !bytes.Equal(key, keys.HolderOf(ns, h.Self.ID, h.Self.Incarnation)):
		a.found(ns, objectID, RuleMisplaced, "its key has the critical section of %v", h.Self)
		return
	case !bytes.Equal(entity.AppendHolder(nil, h), value):
		a.damaged(ns, objectID, key, "the critical section is not written the one way there is")
	}
	a.here(ns, objectID)
	for _, v := range h.Invariants() {
		a.found(ns, objectID, v.Name, "%s", v.Detail)
	}
	bad := func(format string, args ...any) { a.found(ns, objectID, RuleSection, format, args...) }
	ex, ok := a.storedHeader(ns, objectID)
	p, granted := a.storedPromise(ns, h.Section)
	switch {
	case !ok || ex.Incarnation != h.Self.Incarnation || ex.Status.Terminal():
		bad("section %q is %s, and incarnation %d of its execution is not open", h.Section, h.Phase, h.Self.Incarnation)
	case !granted || !state.OfEntity(p) || p.Incarnation != ex.Incarnation:
		bad("section %q has no promise that its locks settle", h.Section)
	case p.State.Settled() != (h.Phase == entity.Inside):
		bad("section %q is %s, its promise %s", h.Section, h.Phase, p.State)
	}
	for _, call := range h.Pending {
		if p, ok := a.storedPromise(ns, call.Request); !ok || p.State.Settled() {
			bad("its call %q has no result, and no promise waits for one", call.Request)
		}
	}
	if h.Phase != entity.Inside {
		return
	}
	for _, one := range h.Set {
		if state.PartitionOf(ns, string(one), a.part.Count) != a.part.Number {
			continue
		}
		if e, ok := readable(state.ReadEntityHead(a.From, ns, string(one))); !ok || e.Lock.Section != (entity.Section{Holder: h.Self, ID: h.Section}) || e.Lock.Until != 0 {
			bad("it is inside section %q, which has not locked %q", h.Section, string(one))
		}
	}
}

// clientCall checks the promise of a client's call: the entity owes a result, or the result has an end.
func (a *auditor) clientCall(ns string, p recovery.Promise) {
	entityID, ok := id.EntityOfCall(p.ID)
	switch {
	case !ok:
	case p.State == recovery.PromisePending && !a.Has(keys.Of(keys.Entity, ns, entityID)):
		a.found(ns, p.ID, RuleEntity, "a client waits for a result of entity %q, which does not exist", entityID)
	case p.State.Settled() && !a.Has(keys.DeadlineOf(keys.DeadlineAnswer, p.SettledAt+state.AnswerRetentionMS, ns, p.ID)):
		a.found(ns, p.ID, RuleDeadline, "the result of a client's call, and no time at which it is deleted")
	}
}

// entitySender checks a message in the outbox from or to an entity.
func (a *auditor) entitySender(msg *commandv1.Message, w *commandv1.EntityMessage, bad func(format string, args ...any)) {
	m, err := entity.DecodeMessage(w.GetMessage())
	switch {
	case err != nil:
		bad("%v", err)
	case !bytes.Equal(entity.AppendMessage(nil, m), w.GetMessage()):
		bad("it is not written the one way there is")
	case m.From().ID != msg.FromId || m.From().Incarnation != msg.FromIncarnation || m.To().ID != msg.ToId || m.To().Incarnation != msg.ToIncarnation:
		bad("it is a %v from %v to %v", m.Kind(), m.From(), m.To())
	}
}

// entityOperation reports how the open promise of a function's operation on entities differs from what it waits for; ""
// if it does not.
func entityOperation(h state.Header, r journal.Recorded, p recovery.Promise) string {
	if state.OfEntity(p) && id.ValidateEntity(string(p.Param)) != nil {
		return fmt.Sprintf("%q of %q waits for %q, which is no entity", r.Promise, h.ID, p.Param)
	}
	return ""
}
