package machine

import (
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
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

func (t *txn) store(ns string) store { return store{t, ns} }

// lastPromise and lastTask hold one decoded object each; a cache of the transaction's writes.
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
)

// Promise implements recovery.Store.
func (s store) Promise(id string) (recovery.Promise, bool) {
	if last := &s.t.promise; last.known && last.p.ID == id && last.ns == s.ns {
		if last.absent {
			return recovery.Promise{}, false
		}
		return last.p, true
	}
	p, ok := s.t.stored().Promise(s.ns, id)
	if !ok {
		s.t.promise = lastPromise{ns: s.ns, p: recovery.Promise{ID: id}, known: true, absent: true}
		return p, false
	}
	s.t.promise = lastPromise{ns: s.ns, p: p, known: true}
	return p, true
}

// PutPromise implements recovery.Store.
func (s store) PutPromise(p recovery.Promise) {
	if p.TimeoutAt != state.Never {
		deadline := s.t.deadlineOf(keys.DeadlinePromise, p.TimeoutAt, s.ns, p.ID)
		if p.State == recovery.PromisePending {
			s.t.put(deadline, []byte{})
			s.t.fx.expiration(p.TimeoutAt)
		} else if old, ok := s.Promise(p.ID); ok && old.State == recovery.PromisePending {
			s.t.remove(deadline)
		}
	}
	s.t.put(s.t.of(keys.Promise, s.ns, p.ID), s.t.m.arena.close(recovery.AppendPromise(s.t.m.arena.open(), p)))
	last := &s.t.promise
	born := last.known && last.absent && last.p.ID == p.ID && last.ns == s.ns
	s.t.promise = lastPromise{ns: s.ns, p: p, known: true, born: born}
	if p.State.Settled() {
		s.t.fx.Settled = append(s.t.fx.Settled, state.Ref{Namespace: s.ns, ID: p.ID})
	}
}

// Task implements recovery.Store.
func (s store) Task(id string) (recovery.Task, bool) {
	if last := &s.t.task; last.known && last.task.ID == id && last.ns == s.ns {
		return last.task, true
	}
	task, ok := s.t.stored().Task(s.ns, id)
	if !ok {
		return task, false
	}
	s.t.task = lastTask{s.ns, task, true}
	return task, true
}

// PutTask implements recovery.Store.
func (s store) PutTask(task recovery.Task) {
	last := &s.t.promise
	if last.born && last.p.ID == task.ID && last.ns == s.ns {
		last.born = false
	} else if old, ok := s.Task(task.ID); ok {
		oldAt, oldArmed := old.Deadline()
		newAt, newArmed := task.Deadline()
		if oldArmed && !(newArmed && newAt == oldAt && old.State == task.State) {
			s.t.remove(s.t.deadlineOf(timerKind(old.State), oldAt, s.ns, old.ID))
		}
		if old.State == recovery.TaskPending && !(task.State == recovery.TaskPending && task.RetryAt == old.RetryAt) {
			place := s.t.m.arena.close(keys.AppendReady(s.t.m.arena.open(), s.ns, old.Target, old.RetryAt, old.ID))
			if _, queued := s.t.get(place); queued {
				s.t.remove(place)
				s.t.ready = append(s.t.ready, readyChange{state.QueueOf(s.ns, old.Target), -1})
			}
		}
		if old.State == recovery.TaskHalted && task.State != recovery.TaskHalted {
			s.t.unstick(s.ns, old)
		}
	}
	if at, armed := task.Deadline(); armed {
		s.t.put(s.t.deadlineOf(timerKind(task.State), at, s.ns, task.ID), []byte{})
		s.t.fx.expiration(at)
	}
	s.t.put(s.t.of(keys.Task, s.ns, task.ID), s.t.m.arena.close(recovery.AppendTask(s.t.m.arena.open(), task)))
	s.t.task = lastTask{s.ns, task, true}
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

// Callbacks implements recovery.Store.
func (s store) Callbacks(awaited string) []string {
	return s.strings(s.t.of(keys.Callback, s.ns, awaited))
}

// AddCallback implements recovery.Store.
func (s store) AddCallback(awaited, awaiter string) {
	s.t.put(s.t.of(keys.Callback, s.ns, awaited, awaiter), []byte{})
	s.t.put(s.t.of(keys.AwaitedBy, s.ns, awaiter, awaited), []byte{})
}

// RemoveCallback implements recovery.Store.
func (s store) RemoveCallback(awaited, awaiter string) {
	s.t.remove(s.t.of(keys.Callback, s.ns, awaited, awaiter))
	s.t.remove(s.t.of(keys.AwaitedBy, s.ns, awaiter, awaited))
}

// AwaitedBy implements recovery.Store.
func (s store) AwaitedBy(awaiter string) []string {
	return s.strings(s.t.of(keys.AwaitedBy, s.ns, awaiter))
}

// Listeners implements recovery.Store.
func (s store) Listeners(id string) []string {
	return s.strings(s.t.of(keys.Listener, s.ns, id))
}

// AddListener implements recovery.Store.
func (s store) AddListener(id, address string) {
	s.t.put(s.t.of(keys.Listener, s.ns, id, address), []byte{})
}

// ClearListeners implements recovery.Store.
func (s store) ClearListeners(id string) {
	for _, address := range s.Listeners(id) {
		s.t.remove(s.t.of(keys.Listener, s.ns, id, address))
	}
}
