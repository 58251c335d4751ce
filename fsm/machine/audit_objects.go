package machine

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"perdure/fsm/keys"
	"perdure/id"
	"perdure/recovery"
)

// Promises, tasks and the relations between them: their bytes are judged here, their sense by the recovery
// protocol's own invariants, to which a namespace is shown as a recovery.Snapshot.

// pair is one row of a relation, in the order of its key.
type pair struct{ first, second string }

func (a *auditor) promise(key, value []byte) {
	ns, more, _, ok := a.parts(key, 1)
	if !ok {
		return
	}
	a.report.Promises++
	objectID := more[0]
	p, err := recovery.DecodePromise(value)
	switch {
	case err != nil:
		a.damaged(ns, objectID, key, err.Error())
		return
	case !bytes.Equal(key, keys.Of(keys.Promise, ns, p.ID)):
		a.found(ns, objectID, RuleMisplaced, "its key has the promise of %q", p.ID)
		return
	}
	a.here(ns, p.ID)
	if p.Target != "" && !a.has(keys.Of(keys.Header, ns, p.ID)) {
		a.found(ns, p.ID, RuleOrphanExecution, "a promise that %q is to settle, and no execution", p.Target)
	}
	// An id with a ':' that is no path is anybody's.
	if promise, err := id.Parse(p.ID); err == nil {
		if parent, isOperation := promise.Parent(); isOperation && !a.has(keys.Of(keys.Header, ns, string(parent))) && !a.ofNode(ns, parent) {
			a.found(ns, p.ID, RuleOperation, "the promise of an operation of %q, which does not exist", parent)
		}
	}
}

func (a *auditor) task(key, value []byte) {
	ns, more, _, ok := a.parts(key, 1)
	if !ok {
		return
	}
	a.report.Tasks++
	objectID := more[0]
	t, err := recovery.DecodeTask(value)
	switch {
	case err != nil:
		a.damaged(ns, objectID, key, err.Error())
		return
	case !bytes.Equal(key, keys.Of(keys.Task, ns, t.ID)):
		a.found(ns, objectID, RuleMisplaced, "its key has the task of %q", t.ID)
		return
	}
	if !a.has(keys.Of(keys.Header, ns, t.ID)) {
		a.found(ns, t.ID, RuleOrphanExecution, "a task of %q, and no execution", t.Target)
	}
	a.queued(ns, t)
}

func (a *auditor) callback(key, value []byte) {
	if ns, p, ok := a.pair(key, value); ok {
		a.report.Callbacks++
		a.callbacks[ns] = append(a.callbacks[ns], p)
	}
}

func (a *auditor) awaited(key, value []byte) {
	if ns, p, ok := a.pair(key, value); ok {
		a.awaitedBy[ns] = append(a.awaitedBy[ns], p)
	}
}

func (a *auditor) listener(key, value []byte) {
	if ns, p, ok := a.pair(key, value); ok {
		a.report.Listeners++
		a.listeners[ns] = append(a.listeners[ns], p)
	}
}

func (a *auditor) pair(key, value []byte) (ns string, p pair, ok bool) {
	ns, more, _, ok := a.parts(key, 2)
	if !ok {
		return "", pair{}, false
	}
	p = pair{more[0], more[1]}
	return ns, p, a.canonical(ns, p.first, key, keys.Of(keys.Family(key[0]), ns, p.first, p.second), value)
}

// storedPromise reads a promise; ok is false for a damaged one too, which promise has reported.
func (a *auditor) storedPromise(ns, objectID string) (recovery.Promise, bool) {
	b, ok := a.get(keys.Of(keys.Promise, ns, objectID))
	if !ok {
		return recovery.Promise{}, false
	}
	p, err := recovery.DecodePromise(b)
	return p, err == nil && p.ID == objectID
}

// storedTask reads a task likewise.
func (a *auditor) storedTask(ns, objectID string) (recovery.Task, bool) {
	b, ok := a.get(keys.Of(keys.Task, ns, objectID))
	if !ok {
		return recovery.Task{}, false
	}
	t, err := recovery.DecodeTask(b)
	return t, err == nil && t.ID == objectID
}

// snapshot is one namespace as the recovery protocol's judge sees it. It reads promises and tasks from the
// state when they are asked for. It must not be taken before everything has been scanned.
type snapshot struct {
	a  *auditor
	ns string
	// promiseTimers and taskTimers are the deadline index by id.
	promiseTimers []deadline
	taskTimers    []recovery.TaskTimer
}

func (a *auditor) snapshot(ns string) *snapshot {
	s := &snapshot{a: a, ns: ns}
	for _, d := range a.deadlines[ns] {
		switch d.kind {
		case keys.DuePromise:
			s.promiseTimers = append(s.promiseTimers, d)
		case keys.DueLease:
			s.taskTimers = append(s.taskTimers, recovery.TaskTimer{ID: d.id, Kind: recovery.LeaseTimer, At: d.at})
		case keys.DueRetry:
			s.taskTimers = append(s.taskTimers, recovery.TaskTimer{ID: d.id, Kind: recovery.RetryTimer, At: d.at})
		}
	}
	slices.SortStableFunc(s.promiseTimers, func(x, y deadline) int { return strings.Compare(x.id, y.id) })
	slices.SortStableFunc(s.taskTimers, func(x, y recovery.TaskTimer) int { return strings.Compare(x.ID, y.ID) })
	return s
}

// Promise implements recovery.Snapshot.
func (s *snapshot) Promise(objectID string) (recovery.Promise, bool) {
	return s.a.storedPromise(s.ns, objectID)
}

// Task implements recovery.Snapshot.
func (s *snapshot) Task(objectID string) (recovery.Task, bool) { return s.a.storedTask(s.ns, objectID) }

// Callbacks implements recovery.Snapshot.
func (s *snapshot) Callbacks(awaited string) []string { return secondsOf(s.a.callbacks[s.ns], awaited) }

// AwaitedBy implements recovery.Snapshot.
func (s *snapshot) AwaitedBy(awaiter string) []string { return secondsOf(s.a.awaitedBy[s.ns], awaiter) }

// Listeners implements recovery.Snapshot.
func (s *snapshot) Listeners(objectID string) []string {
	return secondsOf(s.a.listeners[s.ns], objectID)
}

// Promises implements recovery.Snapshot.
func (s *snapshot) Promises() iter.Seq[recovery.Promise] {
	return func(yield func(recovery.Promise) bool) {
		prefix := keys.Of(keys.Promise, s.ns)
		s.a.scan(prefix, keys.After(prefix), func(_, value []byte) bool {
			p, err := recovery.DecodePromise(value)
			return err != nil || yield(p)
		})
	}
}

// Tasks implements recovery.Snapshot.
func (s *snapshot) Tasks() iter.Seq[recovery.Task] {
	return func(yield func(recovery.Task) bool) {
		prefix := keys.Of(keys.Task, s.ns)
		s.a.scan(prefix, keys.After(prefix), func(_, value []byte) bool {
			t, err := recovery.DecodeTask(value)
			return err != nil || yield(t)
		})
	}
}

// AllCallbacks implements recovery.Snapshot.
func (s *snapshot) AllCallbacks() iter.Seq2[string, string] { return eachPair(s.a.callbacks[s.ns]) }

// AllAwaitedBy implements recovery.Snapshot.
func (s *snapshot) AllAwaitedBy() iter.Seq2[string, string] { return eachPair(s.a.awaitedBy[s.ns]) }

// AllListeners implements recovery.Snapshot.
func (s *snapshot) AllListeners() iter.Seq2[string, string] { return eachPair(s.a.listeners[s.ns]) }

// PromiseTimers implements recovery.Snapshot: those of the index, and those at Never, which the index
// leaves out.
func (s *snapshot) PromiseTimers() iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		rest, going := s.promiseTimers, true
		before := func(objectID string, all bool) {
			for going && len(rest) > 0 && (all || rest[0].id <= objectID) {
				going = yield(rest[0].id, rest[0].at)
				rest = rest[1:]
			}
		}
		for p := range s.Promises() {
			if p.State == recovery.PromisePending && p.TimeoutAt == Never {
				before(p.ID, false)
				going = going && yield(p.ID, Never)
			}
			if !going {
				return
			}
		}
		before("", true)
	}
}

// TaskTimers implements recovery.Snapshot.
func (s *snapshot) TaskTimers() iter.Seq[recovery.TaskTimer] { return slices.Values(s.taskTimers) }

// secondsOf lists what a relation has for one first.
func secondsOf(pairs []pair, first string) (out []string) {
	at, _ := slices.BinarySearchFunc(pairs, first, func(p pair, f string) int { return cmp.Compare(p.first, f) })
	for ; at < len(pairs) && pairs[at].first == first; at++ {
		out = append(out, pairs[at].second)
	}
	return out
}

func eachPair(pairs []pair) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, p := range pairs {
			if !yield(p.first, p.second) {
				return
			}
		}
	}
}

// describeTask is a task's state for a violation's detail.
func describeTask(t recovery.Task, ok bool) string {
	if !ok {
		return "there is no task"
	}
	return fmt.Sprintf("the task is %s", t.State)
}
