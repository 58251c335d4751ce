package machine

import (
	"bytes"
	"fmt"

	"perdure/fsm/keys"
	"perdure/id"
	"perdure/recovery"
)

// Promises, tasks and the relations between them: their bytes are judged here, their sense by the recovery
// protocol's own invariants, to which a namespace is shown as recovery.Objects.

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
	a.broken(ns, recovery.CheckPromise(objects{a: a, ns: ns}, p))
	a.promiseValue(ns, p)
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
	a.broken(ns, recovery.CheckTask(objects{a: a, ns: ns}, t, a.report.ClockMS))
	a.resumes(ns, t)
	a.queued(ns, t)
}

func (a *auditor) callback(key, value []byte) {
	if ns, p, ok := a.pair(key, value); ok {
		a.report.Callbacks++
		a.broken(ns, recovery.CheckCallback(objects{a: a, ns: ns}, p.first, p.second))
		a.awaitedOperation(ns, p.first, p.second)
	}
}

func (a *auditor) awaited(key, value []byte) {
	if ns, p, ok := a.pair(key, value); ok {
		a.broken(ns, recovery.CheckAwaitedBy(objects{a: a, ns: ns}, p.first, p.second))
	}
}

func (a *auditor) listener(key, value []byte) {
	if ns, p, ok := a.pair(key, value); ok {
		a.report.Listeners++
		a.broken(ns, recovery.CheckListener(objects{a: a, ns: ns}, p.first, p.second))
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

// objects is one namespace as the recovery protocol's invariants see it: read from the state as it is asked for.
type objects struct {
	a  *auditor
	ns string
	// most bounds what is listed of a relation; 0 for all of it.
	most int
	// awaits, if not nil, is what is listed of what a task awaits.
	awaits func(awaiter string) []string
}

// Promise implements recovery.Objects.
func (o objects) Promise(objectID string) (recovery.Promise, bool) {
	return o.a.storedPromise(o.ns, objectID)
}

// Task implements recovery.Objects.
func (o objects) Task(objectID string) (recovery.Task, bool) { return o.a.storedTask(o.ns, objectID) }

// Callbacks implements recovery.Objects.
func (o objects) Callbacks(awaited string) []string { return o.seconds(keys.Callback, awaited) }

// AwaitedBy implements recovery.Objects.
func (o objects) AwaitedBy(awaiter string) []string {
	if o.awaits != nil {
		return o.awaits(awaiter)
	}
	return o.seconds(keys.AwaitedBy, awaiter)
}

// Listeners implements recovery.Objects.
func (o objects) Listeners(objectID string) []string { return o.seconds(keys.Listener, objectID) }

// seconds lists what a relation has for one first. A key that cannot be read is reported where it stands.
func (o objects) seconds(family keys.Family, first string) (out []string) {
	prefix := keys.Of(family, o.ns, first)
	o.a.scan(prefix, keys.After(prefix), func(key, _ []byte) bool {
		if second, _, err := keys.CutString(key[len(prefix):]); err == nil {
			out = append(out, second)
		}
		return o.most == 0 || len(out) < o.most
	})
	return out
}

// HasCallback implements recovery.Objects.
func (o objects) HasCallback(awaited, awaiter string) bool {
	return o.a.has(keys.Of(keys.Callback, o.ns, awaited, awaiter))
}

// HasAwaitedBy implements recovery.Objects.
func (o objects) HasAwaitedBy(awaiter, awaited string) bool {
	return o.a.has(keys.Of(keys.AwaitedBy, o.ns, awaiter, awaited))
}

// TimersOfPromise implements recovery.Objects: the one that the promise asks for. Of a deadline at Never the index
// holds nothing; others than the promise's own are judged where they stand.
func (o objects) TimersOfPromise(p recovery.Promise) []int64 {
	if p.TimeoutAt == Never || o.a.has(keys.DeadlineOf(keys.DuePromise, p.TimeoutAt, o.ns, p.ID)) {
		return []int64{p.TimeoutAt}
	}
	return nil
}

// TimersOfTask implements recovery.Objects likewise.
func (o objects) TimersOfTask(t recovery.Task) []recovery.TaskTimer {
	at, armed := t.Deadline()
	if !armed || !o.a.has(keys.DeadlineOf(dueKind(t.State), at, o.ns, t.ID)) {
		return nil
	}
	kind := recovery.RetryTimer
	if t.State == recovery.TaskAcquired {
		kind = recovery.LeaseTimer
	}
	return []recovery.TaskTimer{{ID: t.ID, Kind: kind, At: at}}
}

// describeTask is a task's state for a violation's detail.
func describeTask(t recovery.Task, ok bool) string {
	if !ok {
		return "there is no task"
	}
	return fmt.Sprintf("the task is %s", t.State)
}
