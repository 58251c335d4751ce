package audit

import (
	"encoding/binary"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/id"
)

// purge checks that an execution that is being purged has ended, and has its deadline.
func (a *auditor) purge(ns string, h state.Header) {
	switch {
	case h.Purge == "":
	case !h.Status.Terminal():
		a.found(ns, h.ID, RulePurge, "it is %s, and is being purged", h.Status)
	case !a.Has(keys.DeadlineOf(keys.DeadlinePurge, h.PurgeAt, ns, h.ID)):
		a.found(ns, h.ID, RuleDeadline, "its purge at %d is not in the index", h.PurgeAt)
	}
}

// remains checks what says that rows of a purged execution are left: a later incarnation has other rows.
func (a *auditor) remains(key, value []byte) {
	ns, more, rest, ok := a.parts(key, 1)
	if !ok {
		return
	}
	objectID := more[0]
	if len(rest) != 0 || len(value) != 8 {
		a.damaged(ns, objectID, key, "the remains of no execution have this form")
		return
	}
	a.here(ns, objectID)
	through := binary.BigEndian.Uint64(value)
	switch h, there := a.storedHeader(ns, objectID); {
	case there && h.Incarnation <= through:
		a.found(ns, objectID, RulePurge, "rows of incarnations up to %d are being deleted, and the execution is incarnation %d", through, h.Incarnation)
	case !a.Has(keys.DeadlineOf(keys.DeadlinePurge, state.RemainsAt, ns, objectID)):
		a.found(ns, objectID, RuleDeadline, "its remains are not in the index")
	}
}

// ofPurged reports whether rows of an incarnation are what is left of a purged execution.
func (a *auditor) ofPurged(ns, objectID string, incarnation uint64) bool {
	b, ok := a.Get(keys.Of(keys.Remains, ns, objectID))
	return ok && len(b) == 8 && incarnation <= binary.BigEndian.Uint64(b)
}

// belowPurge reports whether an execution, or one above it, is being purged: then parts of what is below it are deleted.
func (a *auditor) belowPurge(ns string, h state.Header) bool {
	if h.Purge != "" {
		return true
	}
	for promise, is := id.PromiseID(h.ID).Parent(); is; promise, is = promise.Parent() {
		if above, ok := a.storedHeader(ns, string(promise)); ok && above.Purge != "" {
			return true
		}
	}
	return false
}
