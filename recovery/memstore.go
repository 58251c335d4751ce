package recovery

import (
	"cmp"
	"iter"
	"maps"
	"slices"
)

// MemStore is a [Store] and a [Snapshot] in memory, for tests and simulations. It keeps an index of
// deadlines as a real store would: by the rule of [Promise.Deadline] and [Task.Deadline], at every
// write. Everything it lists is in ascending order. Not safe for concurrent use.
type MemStore struct {
	promises map[string]Promise
	tasks    map[string]Task
	// The three relations hold sorted slices that are replaced, never modified, so that returned slices and
	// clones never change.
	callbacks relation // awaited → awaiters
	awaitedBy relation // awaiter → awaited
	listeners relation // promise → addresses

	promiseTimers map[string]int64
	taskTimers    map[string]TaskTimer
}

var (
	_ Store    = (*MemStore)(nil)
	_ Snapshot = (*MemStore)(nil)
)

// NewMemStore returns an empty store.
func NewMemStore() *MemStore {
	return &MemStore{
		promises:      map[string]Promise{},
		tasks:         map[string]Task{},
		callbacks:     relation{},
		awaitedBy:     relation{},
		listeners:     relation{},
		promiseTimers: map[string]int64{},
		taskTimers:    map[string]TaskTimer{},
	}
}

// Clone returns an independent copy.
func (m *MemStore) Clone() *MemStore {
	return &MemStore{
		promises:      maps.Clone(m.promises),
		tasks:         maps.Clone(m.tasks),
		callbacks:     maps.Clone(m.callbacks),
		awaitedBy:     maps.Clone(m.awaitedBy),
		listeners:     maps.Clone(m.listeners),
		promiseTimers: maps.Clone(m.promiseTimers),
		taskTimers:    maps.Clone(m.taskTimers),
	}
}

// relation is a set of pairs, by the first.
type relation map[string][]string

func (r relation) add(a, b string) {
	i, found := slices.BinarySearch(r[a], b)
	if !found {
		r[a] = slices.Insert(slices.Clone(r[a]), i, b)
	}
}

func (r relation) remove(a, b string) {
	i, found := slices.BinarySearch(r[a], b)
	switch {
	case !found:
	case len(r[a]) == 1:
		delete(r, a)
	default:
		r[a] = slices.Delete(slices.Clone(r[a]), i, i+1)
	}
}

func (r relation) all() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, a := range slices.Sorted(maps.Keys(r)) {
			for _, b := range r[a] {
				if !yield(a, b) {
					return
				}
			}
		}
	}
}

// Promise implements [Store].
func (m *MemStore) Promise(id string) (Promise, bool) {
	p, ok := m.promises[id]
	return p, ok
}

// PutPromise implements [Store].
func (m *MemStore) PutPromise(p Promise) {
	m.promises[p.ID] = p
	m.armPromise(p.ID)
}

// Task implements [Store].
func (m *MemStore) Task(id string) (Task, bool) {
	t, ok := m.tasks[id]
	return t, ok
}

// PutTask implements [Store].
func (m *MemStore) PutTask(t Task) {
	m.tasks[t.ID] = t
	at, armed := t.Deadline()
	if !armed {
		delete(m.taskTimers, t.ID)
		return
	}
	kind := RetryTimer
	if t.State == TaskAcquired {
		kind = LeaseTimer
	}
	m.taskTimers[t.ID] = TaskTimer{ID: t.ID, Kind: kind, At: at}
}

// Callbacks implements [Store].
func (m *MemStore) Callbacks(awaited string) []string { return m.callbacks[awaited] }

// AddCallback implements [Store].
func (m *MemStore) AddCallback(awaited, awaiter string) {
	m.callbacks.add(awaited, awaiter)
	m.awaitedBy.add(awaiter, awaited)
	m.armPromise(awaited)
}

// RemoveCallback implements [Store].
func (m *MemStore) RemoveCallback(awaited, awaiter string) {
	m.callbacks.remove(awaited, awaiter)
	m.awaitedBy.remove(awaiter, awaited)
	m.armPromise(awaited)
}

// AwaitedBy implements [Store].
func (m *MemStore) AwaitedBy(awaiter string) []string { return m.awaitedBy[awaiter] }

// Listeners implements [Store].
func (m *MemStore) Listeners(id string) []string { return m.listeners[id] }

// AddListener implements [Store].
func (m *MemStore) AddListener(id, address string) {
	m.listeners.add(id, address)
	m.armPromise(id)
}

// ClearListeners implements [Store].
func (m *MemStore) ClearListeners(id string) {
	delete(m.listeners, id)
	m.armPromise(id)
}

func (m *MemStore) armPromise(id string) {
	awaited := len(m.callbacks[id]) > 0 || len(m.listeners[id]) > 0
	if at, armed := m.promises[id].Deadline(awaited); armed {
		m.promiseTimers[id] = at
	} else {
		delete(m.promiseTimers, id)
	}
}

// Expired returns the ids of the promises and tasks whose timers have expired at now, each in order of time, then
// id. The caller runs [TimeoutPromise] for all promises, then the second halves of their chains, then
// [ExpireLease] and [ExpireRetry] for the tasks.
func (m *MemStore) Expired(now int64) (promises, tasks []string) {
	var ps, ts []TaskTimer
	for id, at := range m.PromiseTimers() {
		if at <= now {
			ps = append(ps, TaskTimer{ID: id, At: at})
		}
	}
	for t := range m.TaskTimers() {
		if t.At <= now {
			ts = append(ts, t)
		}
	}
	return inTime(ps), inTime(ts)
}

func inTime(timers []TaskTimer) []string {
	// They come ascending by id, and a stable sort keeps that among equals.
	slices.SortStableFunc(timers, func(a, b TaskTimer) int { return cmp.Compare(a.At, b.At) })
	ids := make([]string, len(timers))
	for i, t := range timers {
		ids[i] = t.ID
	}
	return ids
}

// Promises implements [Snapshot].
func (m *MemStore) Promises() iter.Seq[Promise] { return values(m.promises) }

// Tasks implements [Snapshot].
func (m *MemStore) Tasks() iter.Seq[Task] { return values(m.tasks) }

// AllCallbacks implements [Snapshot].
func (m *MemStore) AllCallbacks() iter.Seq2[string, string] { return m.callbacks.all() }

// AllAwaitedBy implements [Snapshot].
func (m *MemStore) AllAwaitedBy() iter.Seq2[string, string] { return m.awaitedBy.all() }

// Notifies implements [Snapshot]: all listeners are notified at the settlement.
func (m *MemStore) Notifies(string) bool { return false }

// AllListeners implements [Snapshot].
func (m *MemStore) AllListeners() iter.Seq2[string, string] { return m.listeners.all() }

// PromiseTimers implements [Snapshot].
func (m *MemStore) PromiseTimers() iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		for _, id := range slices.Sorted(maps.Keys(m.promiseTimers)) {
			if !yield(id, m.promiseTimers[id]) {
				return
			}
		}
	}
}

// TaskTimers implements [Snapshot].
func (m *MemStore) TaskTimers() iter.Seq[TaskTimer] { return values(m.taskTimers) }

func values[V any](m map[string]V) iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, id := range slices.Sorted(maps.Keys(m)) {
			if !yield(m[id]) {
				return
			}
		}
	}
}
