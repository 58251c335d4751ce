package query

import (
	"strings"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
	"perdure/id"
	"perdure/recovery"
)

// entity answers one entity. One that is not stored is answered as it would be created.
func (x *Read) entity() (*commandv1.QueryReply, *api.Error) {
	out := &perdurev1.Entity{Namespace: x.Query.Namespace, Id: x.Query.Id, Partition: x.Partition}
	e, ok := x.Entity(x.Query.Namespace, x.Query.Id, 0)
	if ok {
		out = x.showEntity(e)
		out.Value = e.Value
	}
	return &commandv1.QueryReply{Kind: &commandv1.QueryReply_Entity{Entity: &perdurev1.GetEntityResponse{Entity: out}}}, nil
}

// showEntity is an entity without its value.
func (x *Read) showEntity(e state.Entity) *perdurev1.Entity {
	out := &perdurev1.Entity{
		Namespace: x.Query.Namespace, Id: string(e.ID), Incarnation: e.Incarnation, Version: e.Version, Exists: e.Exists,
		Queued: uint64(len(e.Queue) + len(e.Lane)), Scheduled: uint64(len(e.Delayed)), Failures: uint32(e.Failures), Partition: x.Partition,
	}
	if e.Lock.Held() {
		holder := e.Lock.Section.Holder
		out.Lock = &perdurev1.EntityLock{Holder: holder.ID, HolderIncarnation: holder.Incarnation, Section: e.Lock.Section.ID, Released: e.Lock.Until != 0}
	}
	if task, ok := x.Task(x.Query.Namespace, id.EntityTask(string(e.ID))); ok {
		out.Task = &perdurev1.TaskInfo{State: task.State.String(), Version: task.Version, Worker: task.PID,
			LeaseUntilMs: task.LeaseAt, RetryAtMs: task.RetryAt}
	}
	return out
}

// entities lists entities by id. The cursor is the last id of the page before.
func (x *Read) entities(req *perdurev1.ListEntitiesRequest) (*commandv1.QueryReply, *api.Error) {
	limit := int(req.Limit)
	if limit <= 0 {
		limit = 100
	}
	limit = min(limit, pageEntries)
	prefix := keys.Of(keys.Entity, x.Query.Namespace)
	from := prefix
	if req.Name != "" {
		from = append(append([]byte(nil), prefix...), req.Name...)
		from = append(from, '@')
	}
	upper := keys.After(from)
	if len(req.Cursor) > 0 {
		from = append(keys.Of(keys.Entity, x.Query.Namespace, string(req.Cursor)), 0)
	}
	var ids []string
	x.Scan(from, upper, func(key, _ []byte) bool {
		entityID, _, err := keys.CutString(key[len(prefix):])
		if err != nil {
			state.PanicCorrupt("entity", key, err)
		}
		ids = append(ids, entityID)
		return len(ids) <= limit
	})
	out := &perdurev1.ListEntitiesResponse{}
	for i, entityID := range ids {
		if i == limit {
			out.Cursor = []byte(ids[limit-1])
			break
		}
		if e, ok := x.Entity(x.Query.Namespace, entityID, 0); ok {
			out.Entities = append(out.Entities, x.showEntity(e))
		}
	}
	return &commandv1.QueryReply{Kind: &commandv1.QueryReply_Entities{Entities: out}}, nil
}

// entityAnswer answers the result of a client's call.
func (x *Read) entityAnswer() (*commandv1.QueryReply, *api.Error) {
	p, ok := x.Promise(x.Query.Namespace, x.Query.Id)
	if !ok {
		return nil, api.Errorf(perdurev1.Reason_REASON_OUTCOME_UNKNOWN, "the result of call %q is no longer stored", x.Query.Id).
			With("namespace", x.Query.Namespace).With("id", x.Query.Id)
	}
	out := &perdurev1.CallEntityResponse{Done: p.State.Settled()}
	if out.Done {
		out.Outcome = wire.EncodeOutcome(state.OutcomeOf(p))
	}
	return &commandv1.QueryReply{Kind: &commandv1.QueryReply_EntityAnswer{EntityAnswer: out}}, nil
}

// batchEntries bounds the entries of an unlocked entity that are read to find its next batch.
const batchEntries = 256

// entityTask returns the operations that a worker runs of an entity. It refuses a stale token.
func (x *Read) entityTask(entityID string, req *commandv1.TaskQuery) (*commandv1.QueryReply, *api.Error) {
	ns := x.Query.Namespace
	stale := func() *api.Error {
		return api.Errorf(perdurev1.Reason_REASON_STALE_TASK, "task %q is not held at version %d", x.Query.Id, req.Version).
			With("namespace", ns).With("id", x.Query.Id)
	}
	task, ok := x.Task(ns, x.Query.Id)
	if !ok || task.Incarnation != req.Incarnation || task.Version != req.Version || task.State != recovery.TaskAcquired {
		return nil, stale()
	}
	e, ok := x.Entity(ns, entityID, batchEntries)
	if ok && e.Lock.Held() {
		e, ok = x.Entity(ns, entityID, 0) // the holder's operations may be anywhere
	}
	if !ok {
		return nil, stale()
	}
	batch := wire.EntityBatch(e)
	if batch == nil {
		return nil, stale()
	}
	return &commandv1.QueryReply{Kind: &commandv1.QueryReply_Task{Task: &perdurev1.Task{
		Token: wire.Token(ns, task), Function: task.Target, Entity: batch,
	}}}, nil
}

// locksOf begins the wake source of an execution that waits for locks.
const locksOf = "locks of "

// lockSource says which entities an execution waits to lock.
func (x *Read) lockSource(h state.Header) string {
	set := x.lockSet(h)
	if len(set) == 0 {
		return "stuck"
	}
	return locksOf + strings.Join(set, ", ")
}

// lockSet lists the entities of an execution's critical section, in the order of locking.
func (x *Read) lockSet(h state.Header) (set []string) {
	if holder, ok := x.Holder(x.Query.Namespace, h.ID, h.Incarnation); ok {
		for _, one := range holder.Set {
			set = append(set, string(one))
		}
	}
	return set
}
