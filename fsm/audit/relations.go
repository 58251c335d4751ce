package audit

import (
	"slices"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/id"
	"perdure/recovery"
)

// objects is one namespace as the recovery protocol's invariants see it: read from the state as it is asked for.
type objects struct {
	from state.Reader
	ns   string
	// most bounds what is listed of a relation; 0 for all of it.
	most int
	// awaits, if not nil, is what is listed of what a task awaits.
	awaits func(awaiter string) []string
}

// Promise implements recovery.Objects.
func (o objects) Promise(objectID string) (recovery.Promise, bool) {
	return readable(state.ReadPromise(o.from, o.ns, objectID))
}

// Task implements recovery.Objects.
func (o objects) Task(objectID string) (recovery.Task, bool) {
	return readable(state.ReadTask(o.from, o.ns, objectID))
}

// Callbacks implements recovery.Objects.
func (o objects) Callbacks(awaited string) []string { return o.seconds(keys.Callback, awaited) }

// AwaitedBy implements recovery.Objects.
func (o objects) AwaitedBy(awaiter string) []string {
	if o.awaits != nil {
		return o.awaits(awaiter)
	}
	out := o.seconds(keys.AwaitedBy, awaiter)
	if own, ok := o.pendingOperation(awaiter, ""); ok && !slices.Contains(out, own) {
		out = append(out, own)
	}
	return out
}

// pendingOperation returns a pending promise of an execution's own operations, from the id after on. Such a promise
// resumes the execution without a row, so a suspended execution waits for one of them at least.
func (o objects) pendingOperation(execution, after string) (awaited string, ok bool) {
	t, ok := o.Task(execution)
	if _, client := state.AddressOf(t.Target); !ok || client || !resumesWithoutRow(o.from) {
		return "", false
	}
	prefix := operations(o.ns, execution)
	lower := prefix
	if after != "" {
		lower = keys.Of(keys.Promise, o.ns, after)
	}
	state.Must{From: o.from}.Scan(lower, keys.After(prefix), func(_, value []byte) bool {
		if p, err := recovery.DecodePromise(value); err == nil && p.State == recovery.PromisePending && p.Awaitable() {
			if owner, direct := state.ParentOf(p.ID); direct && owner == execution {
				awaited = p.ID
			}
		}
		return awaited == ""
	})
	return awaited, awaited != ""
}

// resumesWithoutRow reports whether operations resume their executions without a row of the callback relation.
func resumesWithoutRow(r state.Reader) bool {
	level, err := state.Level(r)
	level, _ = readable(level, err == nil, err)
	return level >= state.LevelFunctions
}

// operations is the prefix of the promises with an id below an execution's.
func operations(ns, execution string) []byte {
	first := string(id.PromiseID(execution).Child(0))
	prefix := keys.Of(keys.Promise, ns, first[:len(first)-1])
	return prefix[:len(prefix)-2] // without the string's terminator: every id with this prefix
}

// Listeners implements recovery.Objects.
func (o objects) Listeners(objectID string) []string { return o.seconds(keys.Listener, objectID) }

// Notifies implements recovery.Objects.
func (o objects) Notifies(objectID string) bool {
	return state.Must{From: o.from}.Has(keys.Of(keys.Notify, o.ns, objectID))
}

// seconds lists the second parts of a relation's pairs with a given first part. It skips unreadable keys,
// which are reported at their own position.
func (o objects) seconds(family keys.Family, first string) (out []string) {
	prefix := keys.Of(family, o.ns, first)
	state.Must{From: o.from}.Scan(prefix, keys.After(prefix), func(key, _ []byte) bool {
		if second, _, err := keys.CutString(key[len(prefix):]); err == nil {
			out = append(out, second)
		}
		return o.most == 0 || len(out) < o.most
	})
	return out
}

// HasCallback implements recovery.Objects.
func (o objects) HasCallback(awaited, awaiter string) bool {
	return state.Must{From: o.from}.Has(keys.Of(keys.Callback, o.ns, awaited, awaiter))
}

// HasAwaitedBy implements recovery.Objects.
func (o objects) HasAwaitedBy(awaiter, awaited string) bool {
	return state.Must{From: o.from}.Has(keys.Of(keys.AwaitedBy, o.ns, awaiter, awaited))
}

// TimersOfPromise implements recovery.Objects: it lists the timer that the promise needs, if the index
// has it. The index holds no deadline at Never; deadline checks all other entries.
func (o objects) TimersOfPromise(p recovery.Promise) []int64 {
	if p.TimeoutAt == state.Never || (state.Must{From: o.from}).Has(keys.DeadlineOf(keys.DeadlinePromise, p.TimeoutAt, o.ns, p.ID)) {
		return []int64{p.TimeoutAt}
	}
	return nil
}

// TimersOfTask implements recovery.Objects likewise. A place in a queue may stand for the retry timer.
func (o objects) TimersOfTask(t recovery.Task) (timers []recovery.TaskTimer) {
	at, armed := t.Deadline()
	if !armed {
		return nil
	}
	kind, deadline := recovery.RetryTimer, keys.DeadlineRetry
	if t.State == recovery.TaskAcquired {
		kind, deadline = recovery.LeaseTimer, keys.DeadlineLease
	} else if place, _ := (state.Must{From: o.from}).Get(keys.ReadyOf(o.ns, t.Target, at, t.ID)); state.RetryInPlace(place) {
		timers = append(timers, recovery.TaskTimer{ID: t.ID, Kind: kind, At: at})
	}
	if (state.Must{From: o.from}).Has(keys.DeadlineOf(deadline, at, o.ns, t.ID)) {
		timers = append(timers, recovery.TaskTimer{ID: t.ID, Kind: kind, At: at})
	}
	return timers
}
