package machine

import (
	"slices"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/id"
	"perdure/journal"
	"perdure/recovery"
)

// retryMS is the interval at which a pending task is announced again. Workers get pending tasks through their
// grants, so this only repairs a lost announcement.
const retryMS = state.RetryMS

// store is the recovery rules' view of one namespace, within a transaction. It keeps the deadline index
// and the queues of pending tasks in step with the objects they derive from.
type store struct {
	t  *txn
	ns string
}

func (t *txn) store(ns string) *store {
	if t.space == nil || t.space.ns != ns {
		t.space = &store{t, ns} // rules take it as an interface, so it is allocated
	}
	return t.space
}

// lastPromise and lastTask hold one decoded object each; a cache of the transaction's writes. A transaction has two of each,
// of different ids: a child and its caller are read in turns.
type (
	lastPromise struct {
		ns    string
		p     recovery.Promise // only its ID if it is absent
		known bool
		// absent: there is no such promise. born: there was none before this one, so it has no task yet.
		absent, born bool
	}
	lastTask struct {
		ns    string
		task  recovery.Task
		known bool
	}
	// lastPlace is a place in a queue that the transaction has read from below its own writes.
	lastPlace struct {
		ns, target, id string
		order          int64
		timed          bool // see state.RetryInPlace
		known          bool
	}
)

// Promise implements recovery.Store.
func (s store) Promise(id string) (recovery.Promise, bool) {
	if last := &s.t.promise; last.known && last.p.ID == id && last.ns == s.ns {
		if last.absent {
			return recovery.Promise{}, false
		}
		return last.p, true
	}
	if former := &s.t.formerPromise; former.known && former.p.ID == id && former.ns == s.ns {
		s.t.promise, *former = *former, s.t.promise
		former.born = false // its task may be written before it is the last one again
		return s.t.promise.p, !s.t.promise.absent
	}
	found, ok := s.find(keys.Promise, id)
	var p recovery.Promise
	if !ok {
		if p, ok = s.inlinePromise(id); !ok {
			s.t.noPromise(s.ns, id)
			return recovery.Promise{}, false
		}
	} else if object, decoded := found.object.(*recovery.Promise); decoded {
		p = *object
	} else {
		p, _ = state.Must{From: found}.Promise(s.ns, id)
	}
	s.t.keepPromise(lastPromise{ns: s.ns, p: p, known: true})
	return p, true
}

// noPromise notes that there is no promise of an id, which saves the read that would say so.
func (t *txn) noPromise(ns, id string) {
	t.keepPromise(lastPromise{ns: ns, p: recovery.Promise{ID: id}, known: true, absent: true})
}

// keepPromise notes the promise of the last access.
func (t *txn) keepPromise(p lastPromise) {
	if last := &t.promise; last.p.ID != p.p.ID || last.ns != p.ns {
		t.formerPromise = *last
		t.formerPromise.born = false // see Promise
	}
	t.promise = p
}

// keepTask notes the task of the last access.
func (t *txn) keepTask(task lastTask) {
	if last := &t.task; last.task.ID != task.task.ID || last.ns != task.ns {
		t.formerTask = *last
	}
	t.task = task
}

// forgetLast forgets the promises and tasks of the last accesses. A rule that deletes one by its key calls it.
func (t *txn) forgetLast() {
	t.promise, t.formerPromise = lastPromise{}, lastPromise{}
	t.task, t.formerTask = lastTask{}, lastTask{}
}

// noneBelow reports that no promise has an id below another one's.
func (t *txn) noneBelow(ns, objectID string) (none bool) {
	below := string(id.PromiseID(objectID).Child(0))
	prefix := keys.Of(keys.Promise, ns, below[:len(below)-1])
	prefix = prefix[:len(prefix)-len(keys.AppendString(nil, ""))]
	none = true
	t.scan(prefix, keys.After(prefix), func(_, _ []byte) bool {
		none = false
		return false
	})
	return none
}

// PutPromise implements recovery.Store.
func (s store) PutPromise(p recovery.Promise) {
	if p.TimeoutAt != state.Never {
		deadline := s.t.deadlineOf(keys.DeadlinePromise, p.TimeoutAt, s.ns, p.ID)
		if !p.Awaitable() {
			// Nobody sees its deadline, unless something waits for it: AddListener.
			if _, armed := s.t.get(deadline); armed && p.State != recovery.PromisePending {
				s.t.remove(deadline)
			}
		} else if p.State == recovery.PromisePending {
			s.t.put(deadline, []byte{})
			s.t.fx.expiration(p.TimeoutAt)
		} else if old, ok := s.Promise(p.ID); ok && old.State == recovery.PromisePending {
			s.t.remove(deadline)
		}
	}
	last := &s.t.promise
	born := last.known && last.absent && last.p.ID == p.ID && last.ns == s.ns
	w := s.t.spare.next()
	w.key, w.value, w.object = s.t.of(keys.Promise, s.ns, p.ID), s.t.m.arena.close(recovery.AppendPromise(s.t.m.arena.open(), p)), &p
	w.fresh = born && s.t.m.feature >= state.LevelPromise // an early end removes it
	s.t.set(w)
	s.t.keepPromise(lastPromise{ns: s.ns, p: p, known: true, born: born})
	if p.State.Settled() {
		s.t.fx.Settled = append(s.t.fx.Settled, state.Ref{Namespace: s.ns, ID: p.ID})
	}
}

// find reads the promise or task of an id, decoded if it was written and not read.
func (s store) find(family keys.Family, id string) (cachedValue, bool) {
	key := keys.Append(s.t.m.arena.open(), family, s.ns, id)
	for _, l := range [...]*layer{s.t.layer, s.t.m.batch} {
		if w := l.find(key); w != nil {
			return cachedValue{value: w.value, object: w.object}, !w.removed
		}
	}
	v, err := s.t.m.reads.find(key)
	if err != nil {
		panic(state.Fault{Err: err})
	}
	return v, v.present
}

// Get and Scan make a value that was read a Reader that has only this, to decode it.
func (v cachedValue) Get([]byte) ([]byte, bool, error) { return v.value, true, nil }

func (v cachedValue) Scan(_, _ []byte, _ func(key, value []byte) bool) error { return nil } // see Get

// Task implements recovery.Store.
func (s store) Task(id string) (recovery.Task, bool) {
	if last := &s.t.task; last.known && last.task.ID == id && last.ns == s.ns {
		return last.task, true
	}
	if former := &s.t.formerTask; former.known && former.task.ID == id && former.ns == s.ns {
		s.t.task, *former = *former, s.t.task
		return s.t.task.task, true
	}
	if last := &s.t.promise; last.known && last.p.ID == id && last.ns == s.ns && !last.absent && last.p.Target == "" {
		return recovery.Task{}, false // a timer's promise, a node's, or a client's
	}
	found, ok := s.find(keys.Task, id)
	if !ok {
		return s.inlineTask(id)
	}
	var task recovery.Task
	if object, decoded := found.object.(*recovery.Task); decoded {
		task = *object
	} else {
		task, _ = state.Must{From: found}.Task(s.ns, id)
	}
	s.t.keepTask(lastTask{s.ns, task, true})
	return task, true
}

// PutTask implements recovery.Store.
func (s store) PutTask(task recovery.Task) {
	last := &s.t.promise
	born := last.born && last.p.ID == task.ID && last.ns == s.ns
	same := false // the deadline index has the task's deadline, or the task's place stands for it
	if born {
		last.born = false
	} else if old, ok := s.Task(task.ID); ok {
		oldAt, oldArmed := old.Deadline()
		newAt, newArmed := task.Deadline()
		same = oldArmed && newArmed && newAt == oldAt && old.State == task.State
		_, client := state.AddressOf(old.Target)
		timed := false
		if old.State == recovery.TaskPending && !same {
			place := s.t.m.arena.close(keys.AppendReady(s.t.m.arena.open(), s.ns, old.Target, old.RetryAt, old.ID))
			var queued bool
			if timed, queued = s.placeOf(old, place); queued {
				s.t.remove(place)
				if !client {
					s.t.queued(state.QueueOf(s.ns, old.Target), -1)
				}
			}
		}
		if oldArmed && !same && !timed {
			s.t.remove(s.t.deadlineOf(timerKind(old.State), oldAt, s.ns, old.ID))
		}
		if old.State == recovery.TaskHalted && task.State != recovery.TaskHalted && !client {
			s.t.unstick(s.ns, old)
		}
	}
	below := s.t.m.feature < state.LevelFunctions
	if at, armed := task.Deadline(); armed && (below || !same) {
		deadline := s.t.deadlineOf(timerKind(task.State), at, s.ns, task.ID)
		if !below {
			s.t.putFresh(deadline, []byte{}) // a place in a queue may replace it, or a grant of this entry remove it
		} else {
			s.t.put(deadline, []byte{})
		}
		s.t.fx.expiration(at)
	}
	w := s.t.spare.next()
	w.key, w.value, w.object = s.t.of(keys.Task, s.ns, task.ID), s.t.m.arena.close(recovery.AppendTask(s.t.m.arena.open(), task)), &task
	w.fresh = born && s.t.m.feature >= state.LevelInline // an early end removes it
	s.t.set(w)
	s.t.keepTask(lastTask{s.ns, task, true})
}

// placeOf reports whether a pending task is in its queue, at the key place, and whether that stands for its retry timer.
func (s store) placeOf(task recovery.Task, place []byte) (timed, queued bool) {
	if last := &s.t.place; last.known && last.ns == s.ns && last.id == task.ID && last.target == task.Target && last.order == task.RetryAt &&
		s.t.find(place) == nil {
		return last.timed, true
	}
	value, queued := s.t.get(place)
	return queued && state.RetryInPlace(value), queued
}

func timerKind(s recovery.TaskState) keys.DeadlineKind {
	if s == recovery.TaskAcquired {
		return keys.DeadlineLease
	}
	return keys.DeadlineRetry
}

// strings lists the last string part of the keys below a prefix.
func (s store) strings(prefix []byte) []string {
	if s.t.none(prefix) {
		return nil
	}
	var out []string
	s.t.scan(prefix, keys.After(prefix), func(key, _ []byte) bool {
		part, _, err := keys.CutString(key[len(prefix):])
		if err != nil {
			state.PanicCorrupt("set", key, err)
		}
		out = append(out, part)
		return true
	})
	return out
}

// callsBack returns the execution that a promise resumes without a row: the one whose operation it is, while that is
// Blocked. "" for none. What the journal says of the wait decides whether the execution is resumed: see wake.
func (s store) callsBack(awaited string) string {
	if s.t.m.feature < state.LevelFunctions {
		return ""
	}
	owner, ok := state.ParentOf(awaited)
	if !ok {
		return ""
	}
	if s.t.m.cache.get(s.ns, owner) == nil {
		if p, ok := s.Promise(owner); !ok || p.Target == "" {
			return "" // a graph run, one of its nodes, or nothing
		}
	}
	ex, ok := s.t.execution(s.ns, owner)
	if !ok || ex.h.Kind != state.KindFunction || ex.h.Status != journal.StatusBlocked {
		return ""
	}
	return owner
}

// Callbacks implements recovery.Store.
func (s store) Callbacks(awaited string) []string {
	out, owner := s.strings(s.t.of(keys.Callback, s.ns, awaited)), s.callsBack(awaited)
	if owner == "" {
		return out
	}
	if i, found := slices.BinarySearch(out, owner); !found {
		out = slices.Insert(out, i, owner)
	}
	return out
}

// AddCallback implements recovery.Store. An execution needs no row to be resumed by its own operation.
func (s store) AddCallback(awaited, awaiter string) {
	if owner, ok := state.ParentOf(awaited); ok && owner == awaiter && s.callsBack(awaited) == awaiter {
		return
	}
	s.t.put(s.t.of(keys.Callback, s.ns, awaited, awaiter), []byte{})
	s.t.put(s.t.of(keys.AwaitedBy, s.ns, awaiter, awaited), []byte{})
}

// RemoveCallback implements recovery.Store. Most callbacks of executions have no row.
func (s store) RemoveCallback(awaited, awaiter string) {
	key := s.t.of(keys.Callback, s.ns, awaited, awaiter)
	if s.t.m.feature >= state.LevelFunctions {
		if s.t.none(keys.Strings(key, 2)) {
			return
		}
		if _, there := s.t.get(key); !there {
			return
		}
	}
	s.t.remove(key)
	s.t.remove(s.t.of(keys.AwaitedBy, s.ns, awaiter, awaited))
}

// AwaitedBy implements recovery.Store: the callbacks with a row, since the others end with their execution's wait.
func (s store) AwaitedBy(awaiter string) []string {
	return s.strings(s.t.of(keys.AwaitedBy, s.ns, awaiter))
}

// Listeners implements recovery.Store: none, since the transaction notifies them in parts.
func (s store) Listeners(string) []string { return nil }

// AddListener implements recovery.Store. A promise that nobody else may await is settled by its deadline from then on.
func (s store) AddListener(id, address string) {
	s.t.put(s.t.of(keys.Listener, s.ns, id, address), []byte{})
	if p, ok := s.Promise(id); ok && !p.Awaitable() && p.State == recovery.PromisePending && p.TimeoutAt != state.Never {
		s.t.put(s.t.deadlineOf(keys.DeadlinePromise, p.TimeoutAt, s.ns, id), []byte{})
		s.t.fx.expiration(p.TimeoutAt)
	}
}

// ClearListeners implements recovery.Store: there is nothing to clear.
func (s store) ClearListeners(string) {}
