package audit

import (
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
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
	return o.seconds(keys.AwaitedBy, awaiter)
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

// TimersOfTask implements recovery.Objects likewise.
func (o objects) TimersOfTask(t recovery.Task) []recovery.TaskTimer {
	kind, deadline := recovery.RetryTimer, keys.DeadlineRetry
	if t.State == recovery.TaskAcquired {
		kind, deadline = recovery.LeaseTimer, keys.DeadlineLease
	}
	at, armed := t.Deadline()
	if !armed || !(state.Must{From: o.from}).Has(keys.DeadlineOf(deadline, at, o.ns, t.ID)) {
		return nil
	}
	return []recovery.TaskTimer{{ID: t.ID, Kind: kind, At: at}}
}
