package audit

import (
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/id"
	"perdure/recovery"
)

// queued checks that a pending task is in its function's queue. A delayed task (released or created with a
// delay, or a child's next attempt) is queued only once its retry timer has fired; one of an execution that
// is swept, at the end of that.
func (a *auditor) queued(ns string, t recovery.Task) {
	if t.State != recovery.TaskPending || a.Has(keys.ReadyOf(ns, t.Target, t.RetryAt, t.ID)) {
		return
	}
	if _, client := state.AddressOf(t.Target); client && t.Releases > 0 && t.ReleasedAt == t.RetryAt {
		return
	}
	if h, ok := a.storedHeader(ns, t.ID); ok && (h.Releases > 0 || h.SweepAt != 0 || h.RetryAt != 0 && h.RetryAt == t.RetryAt && t.Version == 0) {
		return
	}
	if entityID, ok := id.EntityOfTask(t.ID); ok {
		if e, ok := readable(state.ReadEntityHead(a.From, ns, entityID)); ok && e.Failures > 0 {
			return
		}
	}
	if p, ok := a.storedPromise(ns, t.ID); ok && p.DelayUntil > 0 {
		return
	}
	a.found(ns, t.ID, RuleReady, "a pending task that is not in the queue of %q", t.Target)
}

// place checks an entry of a queue: its task is pending, and the entry is the task's.
func (a *auditor) place(key, value []byte) {
	ns, more, _, ok := a.parts(key, 1)
	if !ok {
		return
	}
	fn := more[0]
	at, objectID, err := keys.ParseReady(key, keys.Of(keys.Ready, ns, fn))
	if err != nil {
		a.damaged(ns, "", key, err.Error())
		return
	}
	if _, client := state.AddressOf(fn); !client && state.RetryInPlace(value) {
		value = nil
	}
	if !a.canonical(ns, objectID, key, keys.ReadyOf(ns, fn, at, objectID), value) {
		return
	}
	t, ok := a.storedTask(ns, objectID)
	switch {
	case !ok || t.State != recovery.TaskPending:
		a.found(ns, objectID, RuleReady, "in the queue of %q, and %s", fn, describeTask(t, ok))
	case t.Target != fn || t.RetryAt != at:
		a.found(ns, objectID, RuleReady, "in the queue of %q at %d, and its place is in that of %q at %d", fn, at, t.Target, t.RetryAt)
	}
}
