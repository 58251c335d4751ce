package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/entity"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/id"
	"perdure/journal"
	"perdure/recovery"
)

// holder returns an execution as entities know it: in its critical section, or in none. It is read once and kept with
// the execution. A change is stored by putHolder.
func (t *txn) holder(ex *execution) *entity.Holder {
	if ex.holder != nil {
		return ex.holder
	}
	if !t.none(keys.AppendUint64(keys.Append(t.m.arena.open(), keys.Holder, ex.ns, ex.h.ID), ex.h.Incarnation)) {
		if h, ok := (state.Must{From: t}).Holder(ex.ns, ex.h.ID, ex.h.Incarnation); ok {
			ex.holder = h
			return h
		}
	}
	h, err := entity.NewHolder(ex.h.ID, ex.h.Incarnation)
	if err != nil {
		panic(state.Fault{Err: err})
	}
	ex.holder = h
	return h
}

// putHolder stores an execution's critical section; there is nothing to store of an execution that is in none.
func (t *txn) putHolder(ex *execution) {
	key := keys.HolderOf(ex.ns, ex.h.ID, ex.h.Incarnation)
	if h := ex.holder; h.Phase == entity.Acquiring || h.Phase == entity.Inside {
		t.put(key, entity.AppendHolder(nil, h))
		return
	}
	t.remove(key)
}

// leaveSection gives back the locks that an ended execution holds or has asked for.
func (t *txn) leaveSection(ex *execution) {
	if t.m.feature < state.LevelFunctions {
		return
	}
	if ex.holder == nil && t.none(keys.AppendUint64(keys.Append(t.m.arena.open(), keys.Holder, ex.ns, ex.h.ID), ex.h.Incarnation)) {
		return // it never was in one
	}
	h := t.holder(ex)
	if h.Phase == entity.Acquiring || h.Phase == entity.Inside {
		out := h.End()
		t.putHolder(ex)
		t.post(ex.ns, out...)
	}
}

// content finds the content of a one-way operation in the commit.
func (c *commit) content(promise id.PromiseID) *perdurev1.Send {
	for _, s := range c.req.Sends {
		if s.PromiseId == string(promise) {
			return s
		}
	}
	return nil
}

// ofEntities reports whether a one-way operation concerns entities.
func ofEntities(s *perdurev1.Send) bool {
	switch s.GetWhat().(type) {
	case *perdurev1.Send_EntityCall, *perdurev1.Send_EntitySignal, *perdurev1.Send_EntityLocks, *perdurev1.Send_EntityUnlock:
		return true
	}
	return false
}

// sendEntity performs an operation on entities. A call is completed by the entity's reply, a request for locks when all
// are held; a signal and an unlock are completed at once.
func (c *commit) sendEntity(e journal.InvokeScheduled, s *perdurev1.Send) error {
	t, ex := c.t, c.ex
	if t.m.feature < state.LevelFunctions {
		return api.Errorf(perdurev1.Reason_REASON_FEATURE_LEVEL, "operation %q needs feature level %d, the partition is at %d",
			e.Promise, state.LevelFunctions, t.m.feature).With("id", ex.h.ID)
	}
	h := t.holder(ex)
	var out []entity.Message
	var err error
	awaited, of := "", state.OfEntityCall // the entity that completes the operation; "" for none
	switch w := s.What.(type) {
	case *perdurev1.Send_EntityCall:
		if err := id.ValidateEntity(w.EntityCall.Id); err != nil {
			return badID(ex.ns, err)
		}
		if err := t.sendAdmitted(ex.ns, h, w.EntityCall.Id); err != nil {
			return err
		}
		var m entity.Call
		m, err = h.Call(entity.ID(w.EntityCall.Id), string(e.Promise), w.EntityCall.Operation, w.EntityCall.Input)
		out, awaited = []entity.Message{m}, w.EntityCall.Id
	case *perdurev1.Send_EntitySignal:
		if err := id.ValidateEntity(w.EntitySignal.Id); err != nil {
			return badID(ex.ns, err)
		}
		if err := t.sendAdmitted(ex.ns, h, w.EntitySignal.Id); err != nil {
			return err
		}
		var m entity.Signal
		m, err = h.Signal(entity.ID(w.EntitySignal.Id), string(e.Promise), w.EntitySignal.Operation, w.EntitySignal.Input, t.dueAt(w.EntitySignal.DelayMs))
		out = []entity.Message{m}
	case *perdurev1.Send_EntityLocks:
		var set []entity.ID
		for _, one := range w.EntityLocks.Ids {
			if err := id.ValidateEntity(one); err != nil {
				return badID(ex.ns, err)
			}
			set = append(set, entity.ID(one))
		}
		var m entity.LockRequest
		if m, err = h.Enter(string(e.Promise), set); err == nil {
			out, awaited, of = []entity.Message{m}, string(m.Set[0]), state.OfLocks
		}
	case *perdurev1.Send_EntityUnlock:
		out, err = h.Exit()
	}
	if err != nil {
		ex.holder = nil // the refused operation ends the commit
		return err
	}
	if err := c.begun(e); err != nil {
		return err
	}
	if awaited == "" {
		err = c.add(journal.InvokeCompleted{Promise: e.Promise, Attempt: 1, Result: recovery.AppendOutcome(nil, recovery.Outcome{})})
	} else {
		_, err = c.promise(recovery.CreateRequest{ID: string(e.Promise), Param: []byte(awaited), Tags: state.EntityTags(of), External: true, TimeoutAt: state.Never})
	}
	if err != nil {
		return err
	}
	t.level = max(t.level, state.LevelFunctions)
	t.putHolder(ex)
	t.post(ex.ns, out...)
	return nil
}

// sendAdmitted refuses a function's operation for an entity of this partition whose backlog is full: the function's
// commit comes again. The leader holds back those to other partitions. A critical section's operations always pass: what
// its locks hold up may be what the backlog waits for.
func (t *txn) sendAdmitted(ns string, h *entity.Holder, entityID string) error {
	if h.Phase == entity.Inside {
		return nil
	}
	if refused := t.admitted(ns, entityID); refused != nil {
		return refused
	}
	return nil
}

// mayStartChild refuses a child inside a critical section.
func (c *commit) mayStartChild() error {
	if c.t.m.feature < state.LevelFunctions {
		return nil
	}
	return c.t.holder(c.ex).MayStartChild()
}

// entityReplied settles the promise of a function's call. A reply for another incarnation, or a second one, changes
// nothing.
func (t *txn) entityReplied(ns string, r entity.Reply) {
	if ex, ok := t.execution(ns, r.Caller.ID); ok && ex.h.Incarnation == r.Caller.Incarnation && !ex.h.Status.Terminal() {
		if waited, err := t.holder(ex).Replied(r); err == nil && waited {
			t.putHolder(ex)
		}
	}
	to := recovery.PromiseResolved
	if r.Failed {
		to = recovery.PromiseRejected
	}
	t.settleSend(ns, r.Request, r.Caller.Incarnation, to, r.Output)
}

// locksGranted lets an execution into its critical section. Locks that no execution waits for are given back.
func (t *txn) locksGranted(ns string, g entity.LockGranted) {
	ex, ok := t.execution(ns, g.Section.Holder.ID)
	if !ok || ex.h.Incarnation != g.Section.Holder.Incarnation || ex.h.Status.Terminal() {
		t.post(ns, entity.Unclaimed(g)...)
		return
	}
	out, entered, err := t.holder(ex).Granted(g)
	if err != nil {
		panic(state.Fault{Err: err})
	}
	t.post(ns, out...)
	if entered {
		t.putHolder(ex)
		t.settleSend(ns, g.Section.ID, g.Section.Holder.Incarnation, recovery.PromiseResolved, recovery.AppendOutcome(nil, recovery.Outcome{}))
	}
}

// settleSend settles the promise of a send, once.
func (t *txn) settleSend(ns, promise string, incarnation uint64, to recovery.PromiseState, value []byte) {
	p, ok := t.store(ns).Promise(promise)
	if !ok || p.Incarnation != incarnation || !state.OfSend(p) || p.State.Settled() {
		return
	}
	if err := t.settle(ns, promise, to, value); err != nil {
		panic(state.Fault{Err: err})
	}
}

// receiveEntityMessage takes an entity's message out of a channel. It is received at the transaction's end.
func (t *txn) receiveEntityMessage(msg *commandv1.Message, w *commandv1.EntityMessage) error {
	m, err := entity.DecodeMessage(w.GetMessage())
	if err != nil {
		panic(state.Fault{Err: err})
	}
	t.posted = append(t.posted, posted{msg.Namespace, m})
	return nil
}
