package audit

import (
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/journal"
	"perdure/recovery"
)

// deadline checks that an object needs this entry of the index. The reverse, that each object has its entry,
// is checked by recovery.Invariants for promises and tasks, and by execution for graces.
func (a *auditor) deadline(key, value []byte) {
	kind, at, ns, objectID, err := keys.ParseDeadline(key)
	if err != nil {
		a.damaged("", "", key, err.Error())
		return
	}
	a.namespaces[ns] = true
	if !a.canonical(ns, objectID, key, keys.DeadlineOf(kind, at, ns, objectID), value) {
		return
	}
	objects := objects{from: a.From, ns: ns}
	stray := func(format string, args ...any) {
		a.found(ns, objectID, RuleDeadline, "a deadline at %d, and "+format, append([]any{at}, args...)...)
	}
	switch kind {
	case keys.DeadlinePromise:
		a.broken(ns, recovery.CheckPromiseTimer(objects, objectID, at))
		if p, ok := a.storedPromise(ns, objectID); !ok || p.State != recovery.PromisePending || p.TimeoutAt != at {
			stray("no pending promise with it")
		}
	case keys.DeadlineLease:
		a.broken(ns, recovery.CheckTaskTimer(objects, recovery.TaskTimer{ID: objectID, Kind: recovery.LeaseTimer, At: at}))
		if t, ok := a.storedTask(ns, objectID); !ok || t.State != recovery.TaskAcquired || t.LeaseAt != at {
			stray("no acquired task with a lease until then: %s", describeTask(t, ok))
		}
	case keys.DeadlineRetry:
		a.broken(ns, recovery.CheckTaskTimer(objects, recovery.TaskTimer{ID: objectID, Kind: recovery.RetryTimer, At: at}))
		if t, ok := a.storedTask(ns, objectID); !ok || t.State != recovery.TaskPending || t.RetryAt != at {
			stray("no pending task to announce then: %s", describeTask(t, ok))
		}
	case keys.DeadlineGrace:
		if h, ok := a.storedHeader(ns, objectID); !ok || h.Status != journal.StatusCancelling || h.GraceAt != at {
			stray("no cancelling execution with a grace until then")
		}
	case keys.DeadlineSweep:
		if h, ok := a.storedHeader(ns, objectID); !ok || h.SweepAt != at {
			stray("no execution that is to be swept then")
		}
	case keys.DeadlineChildren:
		if h, ok := a.storedHeader(ns, objectID); !ok || h.ChildrenAt != at {
			stray("no execution whose children are reached then")
		}
	case keys.DeadlinePurge:
		if h, ok := a.storedHeader(ns, objectID); at != state.RemainsAt && (!ok || h.Purge == "" || h.PurgeAt != at) || at == state.RemainsAt && !a.Has(keys.Of(keys.Remains, ns, objectID)) {
			stray("nothing that is to be purged then")
		}
	case keys.DeadlineNotify:
		if n, ok := readable(state.ReadNotification(a.From, ns, objectID)); !ok || n.AtMS != at {
			stray("no settled promise whose listeners are notified then")
		}
	case keys.DeadlineUnblock:
		if until, ok := a.unblockUntil(ns, objectID); !ok || until != at {
			promise, address := state.CutUnblockID(objectID)
			a.found(ns, promise, RuleDeadline, "a deadline at %d, and no unblock for %q that is given up then", at, address)
		}
	case keys.DeadlineGraph:
		h, ok := a.storedHeader(ns, objectID)
		if (!ok || h.GraphAt != at) && a.nodeRetry(ns, objectID) != at {
			stray("no graph run that continues then, and no node with a retry then")
		}
	case keys.DeadlineEntity:
		if e, ok := readable(state.ReadEntityHead(a.From, ns, objectID)); !ok || e.DueAt != at {
			stray("no entity with a scheduled signal then")
		}
	case keys.DeadlineAnswer:
		if p, ok := a.storedPromise(ns, objectID); !ok || !p.State.Settled() || p.SettledAt+state.AnswerRetentionMS != at {
			stray("no result of a client's call that is deleted then")
		}
	default:
		a.damaged(ns, objectID, key, "a deadline of an unknown kind")
	}
}
