package machine

import (
	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/id"
	"perdure/journal"
)

// arm records whether the execution gets a clean-up when it is cancelled. A commit that comes after the cancel request
// registers nothing: its events are not recorded either.
func (c *commit) arm() *api.Error {
	h := &c.ex.h
	switch {
	case c.req.CleanupMs == 0, h.Status != journal.StatusRunning:
		return nil
	case h.IsCleanup() && c.req.CleanupMs > 0:
		return api.Errorf(perdurev1.Reason_REASON_RULE_BROKEN, "%q is a clean-up, which has none of its own", h.ID).
			With("namespace", c.ex.ns).With("id", h.ID).With("rule", "cleanup")
	}
	h.CleanupMS, c.ex.dirty = max(c.req.CleanupMs, 0), true
	return nil
}

// startCleanup starts the clean-up of an execution in the apply that cancels it. Its journal is the cancelled one's
// child in the same partition; its worker reads the cancelled journal. It ends at its deadline, by which alone it is
// bounded: its retries and its waits are its own.
func (t *txn) startCleanup(ex *execution) {
	if ex.h.Status != journal.StatusCancelled || ex.h.CleanupMS == 0 {
		return
	}
	if t.terminating == ex {
		ex.h.CleanupMS = 0
		return
	}
	child := uint32(state.LastCleanup)
	for taken := true; taken; {
		if _, taken = t.store(ex.ns).Promise(string(id.PromiseID(ex.h.ID).Child(child))); taken {
			child--
		}
		if child < state.FirstCleanup {
			ex.h.CleanupMS = 0
			return
		}
	}
	ex.h.CleanupChild, ex.dirty = child, true
	_, err := t.start(ex.ns, birth{
		id: ex.h.CleanupID(), function: state.FunctionCleanup + ex.h.Function, digest: ex.h.Digest, tags: ex.h.Tags,
		deadlineMS: t.deadline(ex.h.CleanupMS), parent: ex.h.ID, parentIncarnation: ex.h.Incarnation, parentPromise: ex.h.CleanupID(),
	})
	t.mustNot(ex, err)
}

// endReason is the reason with which a cancelled execution ends: its caller's, or else another one.
func (ex *execution) endReason(otherwise string) string {
	if ex.h.CancelReason != "" {
		return ex.h.CancelReason
	}
	return otherwise
}

// noteReason keeps the reason of a cancel for readers.
func (t *txn) noteReason(ex *execution, reason string) {
	if t.m.feature >= state.LevelFunctions {
		ex.h.CancelReason, ex.dirty = reason, true
	}
}
