package audit

import (
	"bytes"
	"fmt"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/journal"
)

// classOfStatus is where an execution of a status is listed; 0 for no status of a stored execution.
func classOfStatus(s journal.Status) keys.VisibilityClass {
	switch s {
	case journal.StatusRunning, journal.StatusBlocked, journal.StatusCancelling:
		return keys.Open
	case journal.StatusCompleted:
		return keys.Completed
	case journal.StatusFailed:
		return keys.Failed
	case journal.StatusCancelled:
		return keys.Cancelled
	}
	return 0
}

// listing is the value of an execution's listing entry.
func listing(h state.Header) []byte {
	if !h.Status.Terminal() {
		return state.ListingOpen(h.Function)
	}
	return state.ListingClosed(&h)
}

// listed checks a listing entry: its execution exists, and the entry is that execution's. execution checks
// that every execution has one.
func (a *auditor) listed(key, value []byte) {
	ns, _, rest, ok := a.parts(key, 0)
	if !ok {
		return
	}
	if len(rest) == 0 {
		a.damaged(ns, "", key, "it names no class")
		return
	}
	class := keys.VisibilityClass(rest[0])
	created, objectID, err := keys.ParseVisibility(key, keys.VisibilityPrefix(ns, class))
	if err != nil {
		a.damaged(ns, "", key, err.Error())
		return
	}
	if !a.canonical(ns, objectID, key, keys.VisibilityOf(ns, class, created, objectID), nil) {
		return
	}
	h, ok := a.storedHeader(ns, objectID)
	switch {
	case !ok:
		a.found(ns, objectID, RuleListing, "listed, and no execution")
	case classOfStatus(h.Status) != class || h.CreatedMS != created:
		a.found(ns, objectID, RuleListing, "listed in class %d as of %d, and it is %s since %d", class, created, h.Status, h.CreatedMS)
	case !bytes.Equal(value, listing(h)):
		a.found(ns, objectID, RuleListing, "listed with %q, and its header says %q", value, fmt.Sprintf("%s closed %d", h.Function, h.ClosedMS))
	}
}
