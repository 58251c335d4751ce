package audit

import (
	"crypto/sha256"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/id"
)

// incarnation checks what a header says of former incarnations, and that a sweep in progress has its deadline.
func (a *auditor) incarnation(ns string, h state.Header) {
	bad := func(format string, args ...any) { a.found(ns, h.ID, RuleIncarnation, format, args...) }
	if (h.Former != 0) != (h.Generation != 0) || h.Former >= h.Incarnation && h.Former != 0 {
		bad("incarnation %d follows %d, after %d others", h.Incarnation, h.Former, h.Generation)
	}
	if h.Kind != state.KindFunction {
		return
	}
	if (h.Kept != 0) != (h.Attached != 0) || h.Attached > h.Former {
		bad("it keeps %d child numbers of incarnation %d and later, its former incarnation is %d", h.Kept, h.Attached, h.Former)
	}
	if (h.SweepAt != 0) != (len(h.Sweep) > 0) {
		bad("it is swept at %d from %x", h.SweepAt, h.Sweep)
	}
	if h.SweepAt != 0 && !a.Has(keys.DeadlineOf(keys.DeadlineSweep, h.SweepAt, ns, h.ID)) {
		a.found(ns, h.ID, RuleDeadline, "its sweep at %d is not in the index", h.SweepAt)
	}
	if n := len(h.StartInput); n != 0 && n != sha256.Size {
		bad("the digest of its first input has %d bytes", n)
	}
}

// swept reports whether a sweep in progress is to delete an object: h is its execution's header, if there is one
// (ok), and the object of a former incarnation of that, or of an operation of an execution that is swept.
func (a *auditor) swept(ns, objectID string, h state.Header, ok bool) bool {
	if ok {
		return h.SweepAt != 0
	}
	for promise, is := id.PromiseID(objectID).Parent(); is; promise, is = promise.Parent() {
		if above, ok := a.storedHeader(ns, string(promise)); ok && (above.SweepAt != 0 || above.Purge != "") {
			return true
		}
	}
	return false
}

// erased reports whether a sweep or a purge may have deleted an execution: one above it has had a former incarnation, is being
// purged, or is gone.
func (a *auditor) erased(ns, objectID string) bool {
	for promise, is := id.PromiseID(objectID).Parent(); is; promise, is = promise.Parent() {
		if above, ok := a.storedHeader(ns, string(promise)); ok && (above.Generation > 0 || above.Purge != "") {
			return true
		}
	}
	root := id.PromiseID(objectID).Root()
	return !a.Has(keys.Of(keys.Header, ns, root)) && a.number(state.MetaFeature) >= state.LevelFunctions
}
