package audit

import (
	"perdure/fsm/state"
	"perdure/id"
	"perdure/journal"
)

// cleanup checks a cancelled execution against its clean-up, from either side, and the reason of the cancel against the
// journal.
func (a *auditor) cleanup(ns string, h state.Header, entries []journal.Entry) {
	bad := func(format string, args ...any) { a.found(ns, h.ID, RuleCleanup, format, args...) }
	if h.CancelReason != "" && !cancelledFor(entries, h.CancelReason) {
		a.found(ns, h.ID, RuleHeader, "it was cancelled because of %q, which the journal does not say", h.CancelReason)
	}
	cancelled := h.Status == journal.StatusCancelled
	switch {
	case h.CleanupMS < 0 || h.CleanupMS > 0 && h.Kind != state.KindFunction:
		bad("its clean-up may take %d ms", h.CleanupMS)
	case h.CleanupChild != 0 && (!cancelled || h.CleanupMS == 0 || h.CleanupChild < state.FirstCleanup):
		bad("it is %s, and has the clean-up %q, for %d ms", h.Status, h.CleanupID(), h.CleanupMS)
	case cancelled && h.CleanupMS > 0 && h.CleanupChild == 0:
		bad("it was cancelled, and has no clean-up, which may take %d ms", h.CleanupMS)
	case h.CleanupChild != 0:
		c, ok := a.storedHeader(ns, h.CleanupID())
		if !ok || !c.IsCleanup() || c.ParentIncarnation != h.Incarnation || c.Function != state.FunctionCleanup+h.Function ||
			c.Digest != h.Digest || c.CreatedMS != h.ClosedMS || c.DeadlineMS != 0 && c.DeadlineMS != c.CreatedMS+h.CleanupMS {
			bad("its clean-up %q runs %q of digest %q for incarnation %d, from %d until %d", h.CleanupID(), c.Function, c.Digest,
				c.ParentIncarnation, c.CreatedMS, c.DeadlineMS)
		}
	}
	if n, ok := id.PromiseID(h.ID).Last(); h.IsCleanup() {
		of, there := a.storedHeader(ns, h.Parent)
		if !ok || n < state.FirstCleanup || !there || of.Incarnation == h.ParentIncarnation && of.CleanupID() != h.ID {
			bad("it cleans up after %q of incarnation %d, whose clean-up is %q", h.Parent, h.ParentIncarnation, of.CleanupID())
		}
	}
}

// cancelledFor reports whether a journal has a cancel for a reason.
func cancelledFor(entries []journal.Entry, reason string) bool {
	for _, e := range entries {
		switch ev := e.Event.(type) {
		case journal.CancelRequested:
			if ev.Reason == reason {
				return true
			}
		case journal.ExecutionCancelled:
			if ev.Reason == reason {
				return true
			}
		}
	}
	return false
}
