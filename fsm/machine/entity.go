package machine

import (
	"container/list"
	"slices"

	"perdure/entity"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/id"
	"perdure/recovery"

	commandv1 "perdure/api/command/v1"
)

// entityObject is an entity in the machine's memory, a cache of what is stored.
type entityObject struct {
	ns string
	state.Entity
	// born: this transaction has made it. touched: it is on the transaction's list, and queue, lane and delayed are its
	// lists at that time.
	born, touched        bool
	queue, lane, delayed []entity.Entry
	before               state.EntityWork
	// bytes are those of the operations that wait, as they are stored.
	bytes int
	place *list.Element
	size  int
}

// posted is a message between entities and executions of this partition.
type posted struct {
	ns string
	m  entity.Message
}

// entityCache keeps the most recently used entities. Its content never reaches state or output.
type entityCache struct {
	byKey map[state.Ref]*entityObject
	order *list.List
	bytes int
}

// Bounds of an entityCache.
const (
	cachedEntities    = 4096
	cachedEntityBytes = 32 << 20
	// leastEntities stay in the cache regardless of their size.
	leastEntities = 4
)

func newEntityCache() *entityCache {
	return &entityCache{byKey: map[state.Ref]*entityObject{}, order: list.New()}
}

// keep makes an entity the most recently used one, and counts its size.
func (c *entityCache) keep(o *entityObject) {
	if o.place == nil {
		o.place = c.order.PushFront(o)
		c.byKey[state.Ref{Namespace: o.ns, ID: string(o.ID)}] = o
	} else {
		c.order.MoveToFront(o.place)
	}
	b := o.backlog()
	size := len(o.Value) + 256 + b.entries*256 + b.bytes
	c.bytes += size - o.size
	o.size = size
}

func (c *entityCache) drop(o *entityObject) {
	if o.place == nil {
		return
	}
	c.order.Remove(o.place)
	delete(c.byKey, state.Ref{Namespace: o.ns, ID: string(o.ID)})
	c.bytes -= o.size
	o.place, o.size = nil, 0
}

func (c *entityCache) trim() {
	for c.order.Len() > cachedEntities || c.bytes > cachedEntityBytes && c.order.Len() > leastEntities {
		c.drop(c.order.Back().Value.(*entityObject))
	}
}

// peekEntity finds an entity that is only read. It is not written again, and stays in the cache if the command is refused:
// a refusal must not cost a long backlog's reading.
func (t *txn) peekEntity(ns string, entityID entity.ID) (*entityObject, bool) {
	if o := t.m.entities.byKey[state.Ref{Namespace: ns, ID: string(entityID)}]; o != nil {
		return o, true
	}
	stored, ok := state.Must{From: t}.Entity(ns, string(entityID), 0)
	if !ok {
		return nil, false
	}
	o := &entityObject{ns: ns, Entity: stored}
	for _, l := range [...][]entity.Entry{o.Queue, o.Lane, o.Delayed} {
		for _, e := range l {
			o.bytes += e.Bytes()
		}
	}
	t.m.entities.keep(o)
	return o, true
}

// entity finds an entity to change it; if there is none and create is set, it makes a new one.
func (t *txn) entity(ns string, entityID entity.ID, create bool) (*entityObject, bool) {
	o, ok := t.peekEntity(ns, entityID)
	switch {
	case ok:
	case create:
		s, err := entity.New(entityID, t.index)
		if err != nil {
			panic(state.Fault{Err: err})
		}
		o = &entityObject{ns: ns, Entity: state.Entity{State: s}, born: true}
	default:
		return nil, false
	}
	if !o.touched {
		o.touched, o.before = true, o.EntityWork
		o.queue, o.lane, o.delayed = o.Queue, o.Lane, o.Delayed
		t.entities = append(t.entities, o)
		t.m.entities.keep(o)
	}
	return o, true
}

// post sends the messages of entities and of executions towards entities. Those of this partition are received at the
// transaction's end, in order, so that the messages of one sender to one receiver keep their order.
func (t *txn) post(ns string, messages ...entity.Message) {
	for _, m := range messages {
		to := m.To()
		if to.Kind == entity.PartyClient || state.PartitionOf(ns, to.ID, t.m.cfg.Partitions) == t.m.cfg.Partition {
			t.posted = append(t.posted, posted{ns, m})
			continue
		}
		from := m.From()
		if err := t.send(ns, to.ID, &commandv1.Message{
			FromId: from.ID, FromIncarnation: from.Incarnation, ToId: to.ID, ToIncarnation: to.Incarnation,
			Kind: &commandv1.Message_Entity{Entity: &commandv1.EntityMessage{Message: entity.AppendMessage(nil, m)}},
		}); err != nil {
			panic(state.Fault{Err: err})
		}
	}
}

// deliverPosted receives the posted messages, and those that they cause.
func (t *txn) deliverPosted() {
	for len(t.posted) > 0 {
		next := t.posted[0]
		t.posted = t.posted[1:]
		t.receiveEntity(next.ns, next.m)
	}
}

// putEntities writes the touched entities.
func (t *txn) putEntities() {
	for _, o := range t.entities {
		if t.putEntity(o) {
			t.m.entities.drop(o)
		}
	}
}

// keepEntities ends the transaction's hold of its entities.
func (t *txn) keepEntities() {
	for _, o := range t.entities {
		o.touched, o.born, o.queue, o.lane, o.delayed = false, false, nil, nil, nil
		if o.place != nil {
			t.m.entities.keep(o)
		}
	}
	t.entities = t.entities[:0]
	t.m.entities.trim()
}

// receiveEntity receives one message. It answers or drops a message that can no longer take effect.
func (t *txn) receiveEntity(ns string, m entity.Message) {
	t.level = max(t.level, state.LevelFunctions)
	switch to := m.To(); to.Kind {
	case entity.PartyEntity:
		o, ok := t.entity(ns, entity.ID(to.ID), startsEntity(m))
		if !ok {
			return // an unlock of what is not locked
		}
		out, err := o.Deliver(t.now, m)
		if call, isCall := m.(entity.Call); err != nil && isCall {
			out = []entity.Message{entity.Reply{Entity: call.Entity, Caller: call.Origin, Request: call.Request, Failed: true,
				Output: state.EncodeFailure(state.FailureRefused, err.Error())}}
		}
		t.post(ns, out...)
	case entity.PartyExecution:
		switch m := m.(type) {
		case entity.Reply:
			t.entityReplied(ns, m)
		case entity.LockGranted:
			t.locksGranted(ns, m)
		}
	case entity.PartyClient:
		if reply, ok := m.(entity.Reply); ok {
			t.answerClient(ns, reply)
		}
	}
}

// startsEntity reports whether a message makes an entity that does not exist. A withdrawal does, because it travels on.
func startsEntity(m entity.Message) bool { return m.Kind() != entity.KindUnlock }

// putEntity writes a touched entity: its head, the changes of its lists, its deadline and its task. An entity that
// nothing distinguishes from a new one is deleted (deleted).
func (t *txn) putEntity(o *entityObject) (deleted bool) {
	entityID := string(o.ID)
	o.DueAt = 0
	if at, ok := o.NextScheduled(); ok {
		o.DueAt = at
	}
	deleted = t.scheduleEntity(o)
	if o.DueAt != o.before.DueAt || deleted {
		if o.before.DueAt != 0 {
			t.remove(keys.DeadlineOf(keys.DeadlineEntity, o.before.DueAt, o.ns, entityID))
		}
		if o.DueAt != 0 {
			t.put(keys.DeadlineOf(keys.DeadlineEntity, o.DueAt, o.ns, entityID), []byte{})
			t.fx.expiration(o.DueAt)
		}
	}
	t.putItems(o, keys.Queued, o.queue, o.Queue)
	t.putItems(o, keys.Lane, o.lane, o.Lane)
	t.putItems(o, keys.Delayed, o.delayed, o.Delayed)
	if !deleted {
		t.put(keys.Of(keys.Entity, o.ns, entityID), state.EncodeEntityHead(o.State, o.EntityWork))
	} else if !o.born {
		t.remove(keys.Of(keys.Entity, o.ns, entityID))
	}
	return deleted
}

// putItems writes the difference between two versions of a list, whose entries never change.
func (t *txn) putItems(o *entityObject, in keys.EntityList, before, after []entity.Entry) {
	gone, added := changes(before, after)
	for _, e := range added {
		o.bytes += e.Bytes()
		t.putFresh(keys.EntityItemOf(o.ns, string(o.ID), in, e.Seq), entity.AppendEntry(nil, e))
	}
	for _, e := range gone {
		o.bytes -= e.Bytes()
		t.remove(keys.EntityItemOf(o.ns, string(o.ID), in, e.Seq))
	}
}

// changes returns the entries that only one of two versions of a list has, in their order. Mostly they are the first ones
// of the former and the last ones of the latter; then it allocates nothing.
func changes(before, after []entity.Entry) (gone, added []entity.Entry) {
	if len(before) == 0 || len(after) == 0 {
		return before, after
	}
	n := slices.IndexFunc(before, func(e entity.Entry) bool { return e.Seq == after[0].Seq }) // entries at the front that are gone
	n = max(n, 0)
	gone, before = before[:n], before[n:]
	front, most := 0, min(len(before), len(after))
	if &before[0] == &after[0] {
		front = most // two slices of one array, whose elements never change
	}
	for front < most && before[front].Seq == after[front].Seq {
		front++
	}
	before, after = before[front:], after[front:]
	for len(before) > 0 && len(after) > 0 && before[len(before)-1].Seq == after[len(after)-1].Seq {
		before, after = before[:len(before)-1], after[:len(after)-1]
	}
	if len(before) == 0 {
		return gone, after
	}
	gone = slices.Clone(gone)
	had := make(map[uint64]bool, len(before))
	for _, e := range before {
		had[e.Seq] = true
	}
	for _, e := range after {
		if !had[e.Seq] {
			added = append(added, e)
		}
		delete(had, e.Seq)
	}
	for _, e := range before {
		if had[e.Seq] {
			gone = append(gone, e)
		}
	}
	return gone, added
}

// scheduleEntity brings an entity's task in step with what it has to run: pending while a worker is needed,
// halted while nothing can run. A worker that holds the task keeps it until its commit. It returns deleted
// after it has deleted the task of an entity that equals a new one.
func (t *txn) scheduleEntity(o *entityObject) (deleted bool) {
	s, taskID := t.store(o.ns), id.EntityTask(string(o.ID))
	task, ok := s.Task(taskID)
	if ok && task.State == recovery.TaskAcquired {
		return false
	}
	if o.Collectable() {
		if ok {
			t.forget(o.ns, taskID)
		}
		return true
	}
	runnable := o.Runnable()
	if !ok {
		_, fx, err := recovery.Create(s, t.now, recovery.CreateRequest{ID: taskID, Incarnation: o.Incarnation, Target: id.EntityQueue(string(o.ID)), TimeoutAt: state.Never}, retryMS)
		if err != nil {
			panic(state.Fault{Err: err})
		}
		if runnable {
			t.effects(o.ns, fx)
		} else {
			t.halt(o.ns, taskID)
		}
		return false
	}
	switch {
	case task.State == recovery.TaskHalted && runnable:
		_, fx, err := recovery.Continue(s, t.now, recovery.Ref{ID: taskID}, retryMS)
		if err != nil {
			panic(state.Fault{Err: err})
		}
		t.effects(o.ns, fx)
	case task.State == recovery.TaskPending && !runnable:
		t.halt(o.ns, taskID)
	}
	return false
}

func (t *txn) halt(ns, taskID string) {
	if _, err := recovery.Halt(t.store(ns), t.now, recovery.Ref{ID: taskID}); err != nil {
		panic(state.Fault{Err: err})
	}
}

// forget deletes an object without awaiters: its promise, and its task, which it halts before.
func (t *txn) forget(ns, objectID string) {
	if task, ok := t.store(ns).Task(objectID); ok {
		if task.State != recovery.TaskHalted {
			t.halt(ns, objectID)
		}
		t.remove(keys.Of(keys.Task, ns, objectID))
	}
	t.remove(keys.Of(keys.Promise, ns, objectID))
	t.forgetLast()
}

// queueScheduled queues the scheduled signals of an entity whose time has come.
func (t *txn) queueScheduled(ns, entityID string) {
	if o, ok := t.entity(ns, entity.ID(entityID), false); ok {
		o.Tick(t.now)
	}
}

// entityFailed counts that the worker of an entity's operations was lost, or gave them back with a problem.
// An operation that has used up its attempts fails: the value stays as it is, and the caller gets the
// failure.
func (t *txn) entityFailed(ns, entityID string) {
	o, ok := t.entity(ns, entity.ID(entityID), false)
	if !ok {
		return
	}
	o.Failures++
	if o.Failures < state.EntityAttempts {
		return
	}
	b, ok := o.Batch(1, 0)
	if !ok {
		return
	}
	out, err := o.Commit(t.now, entity.Commit{
		Incarnation: b.Incarnation, Version: b.Version, Lane: b.Lane, Exists: b.Exists, Value: b.Value,
		Results: []entity.Result{{Request: b.Operations[0].Request, Failed: true,
			Output: state.EncodeFailure(state.FailureLost, "the worker was lost or gave up in every attempt")}},
	})
	if err != nil {
		panic(state.Fault{Err: err})
	}
	o.Failures = 0
	t.post(ns, out...)
}
