package audit

import (
	"bytes"
	"fmt"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/id"
	"perdure/recovery"
)

// This file checks the bytes of promises, tasks and the relations between them. The recovery protocol's
// invariants check their meaning, over a namespace presented as recovery.Objects.

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
	a.promiseItself(ns, p)
	if a.clientPromise(ns, p) {
		return
	}
	a.clientCall(ns, p)
	if entityID, ok := id.EntityOfTask(p.ID); ok {
		if !a.Has(keys.Of(keys.Entity, ns, entityID)) {
			a.found(ns, p.ID, RuleOrphanExecution, "the promise of an entity's task, and no entity")
		}
		return
	}
	if p.Target != "" && !a.Has(keys.Of(keys.Header, ns, p.ID)) {
		a.found(ns, p.ID, RuleOrphanExecution, "a promise that %q is to settle, and no execution", p.Target)
	}
	// An id with a ':' that is no path is anybody's.
	if promise, err := id.Parse(p.ID); err == nil {
		if parent, isOperation := promise.Parent(); isOperation && !a.Has(keys.Of(keys.Header, ns, string(parent))) && !a.ofNode(ns, parent) && !a.swept(ns, p.ID, state.Header{}, false) {
			a.found(ns, p.ID, RuleOperation, "the promise of an operation of %q, which does not exist", parent)
		}
	}
}

// promiseItself checks what must hold of any promise.
func (a *auditor) promiseItself(ns string, p recovery.Promise) {
	a.broken(ns, recovery.CheckPromise(objects{from: a.From, ns: ns}, p))
	a.promiseValue(ns, p)
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
	_, client := state.AddressOf(t.Target)
	if _, ok := id.EntityOfTask(t.ID); !ok && !client && !a.Has(keys.Of(keys.Header, ns, t.ID)) {
		a.found(ns, t.ID, RuleOrphanExecution, "a task of %q, and no execution", t.Target)
	}
	a.broken(ns, recovery.CheckTask(objects{from: a.From, ns: ns}, t, a.report.ClockMS))
	a.resumes(ns, t)
	a.queued(ns, t)
	if !client {
		a.halted(ns, t)
	}
}

func (a *auditor) callback(key, value []byte) {
	if ns, p, ok := a.pair(key, value); ok {
		a.report.Callbacks++
		a.broken(ns, recovery.CheckCallback(objects{from: a.From, ns: ns}, p.first, p.second))
		a.awaitedOperation(ns, p.first, p.second)
	}
}

func (a *auditor) awaited(key, value []byte) {
	if ns, p, ok := a.pair(key, value); ok {
		a.broken(ns, recovery.CheckAwaitedBy(objects{from: a.From, ns: ns}, p.first, p.second))
	}
}

func (a *auditor) listener(key, value []byte) {
	if ns, p, ok := a.pair(key, value); ok {
		a.report.Listeners++
		a.broken(ns, recovery.CheckListener(objects{from: a.From, ns: ns}, p.first, p.second))
	}
}

// notification checks what is left of a settled promise's listeners: recovery.CheckPromise checks that there are some.
func (a *auditor) notification(key, value []byte) {
	ns, more, _, ok := a.parts(key, 1)
	if !ok {
		return
	}
	objectID := more[0]
	n, err := state.DecodeNotification(value)
	if err != nil {
		a.damaged(ns, objectID, key, err.Error())
		return
	}
	if !a.canonical(ns, objectID, key, keys.Of(keys.Notify, ns, objectID), nil) {
		return
	}
	if _, ok := a.storedPromise(ns, objectID); !ok {
		a.found(ns, objectID, recovery.ListenerForSettledPromise, "listeners are to be notified at %d, and there is no promise", n.AtMS)
	}
	if !a.Has(keys.DeadlineOf(keys.DeadlineNotify, n.AtMS, ns, objectID)) {
		a.found(ns, objectID, RuleDeadline, "its listeners are notified at %d, which is not in the index", n.AtMS)
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
	return readable(state.ReadPromise(a.From, ns, objectID))
}

// storedTask reads a task likewise.
func (a *auditor) storedTask(ns, objectID string) (recovery.Task, bool) {
	return readable(state.ReadTask(a.From, ns, objectID))
}

// describeTask is a task's state for a violation's detail.
func describeTask(t recovery.Task, ok bool) string {
	if !ok {
		return "there is no task"
	}
	return fmt.Sprintf("the task is %s", t.State)
}
