package machine

import (
	"slices"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/id"
	"perdure/journal"
)

// rulePurge is the rule of purges.
const rulePurge = "purge"

// purgeStages are the parts of what is below a purged execution, in the order of their deletion. The first pass
// deletes nothing: it looks for executions that are open. Executions come before what belongs to them, as in a sweep.
var purgeStages = []struct {
	family keys.Family
	// looks: the pass that looks for open executions.
	looks bool
}{
	{family: keys.Header, looks: true}, {family: keys.Header}, {family: keys.Promise},
	{family: keys.Journal}, {family: keys.Graph}, {family: keys.Node}, {family: keys.Latch}, {family: keys.Heartbeat},
}

// rowFamilies hold the rows of an execution by its incarnation.
var rowFamilies = []keys.Family{keys.Journal, keys.Graph, keys.Node, keys.Latch, keys.Heartbeat}

// purgeBegin is the first position of a purge: its stage, and no key.
const purgeBegin = "\x00"

// applyPurge deletes an execution that has ended, with all that is below it, or a settled promise of no execution. What
// is more than one command may read is deleted in parts, by ticks: what is below at first, then the execution, whose id is free
// from then on, then its rows. The command is idempotent: what is gone is answered as absent.
func applyPurge(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	req, ns := cmd.GetPurge(), cmd.Namespace
	if err := id.ValidateRoot(req.Id); err != nil && !t.ofClient(ns, req.Id) {
		return nil, badID(ns, err)
	}
	t.level = max(t.level, state.LevelFunctions)
	ex, ok := t.execution(ns, req.Id)
	if !ok {
		s, refused := t.purgePromise(ns, req)
		return purged(s), refused
	}
	if req.Incarnation != 0 && req.Incarnation != ex.h.Incarnation {
		return purged(perdurev1.PurgeState_PURGE_STATE_ABSENT), nil
	}
	if ex.h.Purge != "" {
		return purged(perdurev1.PurgeState_PURGE_STATE_BEGUN), nil
	}
	if err := t.mayPurge(ex, req); err != nil {
		return nil, err
	}
	if t.purgeLeaf(ex, inlinedOf(&ex.h)) {
		return purged(perdurev1.PurgeState_PURGE_STATE_DELETED), nil
	}
	ex.h.Purge = purgeBegin
	if ex.h.Leaf {
		ex.h.Leaf = false // a purge of many, which trusts the listing, leaves it alone
		t.listEnd(ex)
	}
	switch done, open := t.purge(ex); {
	case open != "":
		return nil, refusePurge(ns, req.Id, "execution %q, which is part of %q, has not ended", open, req.Id)
	case done:
		return purged(perdurev1.PurgeState_PURGE_STATE_DELETED), nil
	}
	return purged(perdurev1.PurgeState_PURGE_STATE_BEGUN), nil
}

func purged(s perdurev1.PurgeState) *commandv1.Reply {
	return &commandv1.Reply{Kind: &commandv1.Reply_Purge{Purge: &perdurev1.PurgeResponse{State: s}}}
}

func refusePurge(ns, objectID, format string, args ...any) *api.Error {
	return api.Errorf(perdurev1.Reason_REASON_RULE_BROKEN, format, args...).
		With("namespace", ns).With("id", objectID).With("rule", rulePurge)
}

// beingPurged refuses what would begin a new incarnation of an execution that is being deleted.
func beingPurged(ex *execution) *api.Error {
	return api.Errorf(perdurev1.Reason_REASON_TRY_LATER, "execution %q is being purged", ex.h.ID).
		With("namespace", ex.ns).With("id", ex.h.ID)
}

// purgeAge refuses to delete what ended at a time, if that is too late for the request.
func (t *txn) purgeAge(ns string, req *perdurev1.PurgeRequest, ended int64) *api.Error {
	switch {
	case req.EndedBeforeMs != 0 && ended >= req.EndedBeforeMs:
		return refusePurge(ns, req.Id, "%q ended at %d, not before %d", req.Id, ended, req.EndedBeforeMs)
	case !req.Force && ended > t.now-replyRetentionMS:
		return refusePurge(ns, req.Id, "%q ended less than ten minutes ago: a start that is still repeated would start it again", req.Id)
	}
	return nil
}

// mayPurge refuses a purge of an execution that is not over with all that it caused here.
func (t *txn) mayPurge(ex *execution, req *perdurev1.PurgeRequest) *api.Error {
	h := &ex.h
	if !h.Status.Terminal() {
		return refusePurge(ex.ns, h.ID, "execution %q has not ended: it is %s", h.ID, h.Status)
	}
	if err := t.purgeAge(ex.ns, req, h.ClosedMS); err != nil {
		return err
	}
	later := ""
	switch {
	case h.Incarnation == t.index:
		later = "began in this very entry"
	case h.ChildrenAt != 0:
		later = "still ends its children"
	case h.SweepAt != 0:
		later = "still deletes a former incarnation"
	case t.notifying(ex.ns, h.ID):
		later = "still answers those that wait for it"
	default:
		return nil
	}
	return api.Errorf(perdurev1.Reason_REASON_TRY_LATER, "execution %q %s", h.ID, later).With("namespace", ex.ns).With("id", h.ID)
}

// purgePromise deletes a settled promise of no execution.
func (t *txn) purgePromise(ns string, req *perdurev1.PurgeRequest) (perdurev1.PurgeState, *api.Error) {
	p, ok := t.store(ns).Promise(req.Id)
	switch {
	case !ok || req.Incarnation != 0 && req.Incarnation != p.Incarnation:
		return perdurev1.PurgeState_PURGE_STATE_ABSENT, nil
	case !p.State.Settled():
		return 0, refusePurge(ns, req.Id, "promise %q is not settled", req.Id)
	}
	if err := t.purgeAge(ns, req, p.SettledAt); err != nil {
		return 0, err
	}
	if t.notifying(ns, req.Id) {
		return 0, api.Errorf(perdurev1.Reason_REASON_TRY_LATER, "promise %q still answers those that wait for it", req.Id).
			With("namespace", ns).With("id", req.Id)
	}
	t.store(ns).remove(req.Id)
	return perdurev1.PurgeState_PURGE_STATE_DELETED, nil
}

// purge deletes the next part of what is below an execution, and after the last part the execution. open is an execution
// below that has not ended: then nothing has been deleted, and the purge is over.
func (t *txn) purge(ex *execution) (done bool, open string) {
	if t.sweepLeft == 0 {
		t.sweepLeft = sweepBudget + 1
	}
	if ex.h.PurgeAt != 0 {
		t.remove(keys.DeadlineOf(keys.DeadlinePurge, ex.h.PurgeAt, ex.ns, ex.h.ID))
	}
	ex.dirty = true
	stage, from := int(ex.h.Purge[0]), []byte(ex.h.Purge[1:])
	for ; stage < len(purgeStages) && t.sweepLeft > 1; stage++ {
		if from, open = t.purgeStage(ex, stage, from); open != "" {
			ex.h.Purge, ex.h.PurgeAt = "", 0
			return false, open
		}
		if from != nil {
			break
		}
	}
	if stage < len(purgeStages) {
		ex.h.Purge, ex.h.PurgeAt = string(append([]byte{byte(stage)}, from...)), t.now
		t.put(keys.DeadlineOf(keys.DeadlinePurge, t.now, ex.ns, ex.h.ID), []byte{})
		t.fx.expiration(t.now)
		return false, ""
	}
	ns, h := ex.ns, ex.h
	if !t.released(ns, h.ID, erased) {
		ex.h.Purge, ex.h.PurgeAt = string([]byte{byte(len(purgeStages) - 1)}), t.now
		t.put(keys.DeadlineOf(keys.DeadlinePurge, t.now, ns, h.ID), []byte{})
		t.fx.expiration(t.now)
		return false, ""
	}
	ex.h.Purge, ex.h.PurgeAt = "", 0
	t.erase(ns, h.ID)
	t.purgeRows(ns, h.ID, h.Incarnation)
	return true, ""
}

// purgeStage deletes a part of one stage, and returns the key to continue from; nil when the stage is done. In the pass
// that looks, open is the first execution that has not ended.
func (t *txn) purgeStage(ex *execution, stage int, from []byte) (next []byte, open string) {
	st := purgeStages[stage]
	lower := keys.Of(st.family, ex.ns, operations(ex.h.ID))
	lower = lower[:len(lower)-2] // without the string's terminator: every id with this prefix
	upper := keys.After(lower)
	if len(from) > 0 {
		lower = from
	}
	found, next := t.keysWithin(lower, upper, func(key []byte) bool {
		_, err := id.Parse(idOfKey(key))
		// Else a promise of a client that is named like an operation, and is none.
		return err == nil && !(st.family == keys.Promise && t.ofClient(ex.ns, idOfKey(key)))
	})
	for _, key := range found {
		if deletes := !st.looks && (st.family == keys.Header || st.family == keys.Promise); deletes && !t.released(ex.ns, idOfKey(key), erased) {
			return key, ""
		}
		switch {
		case st.looks:
			// The deletion asks nobody: an end reaches what the execution called, here and elsewhere, before it.
			if !t.reached(ex.ns, idOfKey(key)) {
				return key, ""
			}
			if h, ok := t.headerOf(ex.ns, idOfKey(key)); ok && !h.Status.Terminal() {
				return nil, h.ID
			}
		case st.family == keys.Header:
			t.erase(ex.ns, idOfKey(key))
		case st.family == keys.Promise:
			t.endSwept(ex.ns, idOfKey(key))
		default:
			t.remove(key)
		}
	}
	return next, ""
}

// purgeLeaf deletes an execution of which the state has nothing but its own objects and its journal: the journal names no operation
// that has rows of its own. The header says so, or one pass over the journal. It does what purge does, with at most one read of a
// range instead of a read for each family. false: nothing was deleted.
func (t *txn) purgeLeaf(ex *execution, in inlined) bool {
	ns, h := ex.ns, ex.h
	if h.Kind != state.KindFunction || h.Generation != 0 || h.CleanupChild != 0 || h.Events > sweepBudget {
		return false
	}
	found, a := make([][]byte, 0, h.Events), &t.m.arena
	switch {
	case in.journal && (h.Leaf || allRecords(&h)):
		return t.eraseLeaf(ex, nil, in)
	case in.journal:
		return false
	case h.Leaf:
		for seq := range h.Events {
			found = append(found, a.close(keys.AppendJournalEntry(a.open(), ns, h.ID, h.Incarnation, seq)))
		}
		return t.eraseLeaf(ex, found, in)
	}
	t.scan(t.of(keys.Journal, ns, h.ID), keys.After(keys.JournalPrefix(ns, h.ID, h.Incarnation)), func(key, value []byte) bool {
		if !isRecord(key, value) {
			found = nil
			return false
		}
		found = append(found, a.close(append(a.open(), key...)))
		return true
	})
	return uint64(len(found)) == h.Events && t.eraseLeaf(ex, found, in)
}

// eraseLeaf deletes a leaf with its journal, unless more than one command may notify waits for its end: then it returns false.
func (t *txn) eraseLeaf(ex *execution, entries [][]byte, in inlined) bool {
	if !t.released(ex.ns, ex.h.ID, erased) {
		return false
	}
	t.eraseEnded(ex, in)
	for _, key := range entries {
		t.remove(key)
	}
	return true
}

// eraseEnded deletes an ended execution of a function, except its journal. It does what erase does, without reading the promise,
// which is settled, and the task, which every function has, both in rows unless they are inline.
func (t *txn) eraseEnded(ex *execution, in inlined) {
	ns, h := ex.ns, ex.h
	t.detach(ex)
	t.remove(t.visibilityOf(ns, closedClass(h.Status), h.CreatedMS, h.ID))
	t.dropDeadlines(ns, &h)
	t.dropNotification(ns, h.ID)
	if !in.journal {
		t.remove(t.of(keys.Task, ns, h.ID))
	}
	if in.promise {
		t.m.reads.absences.removed++
	} else {
		t.remove(t.of(keys.Promise, ns, h.ID))
	}
	t.remove(t.of(keys.Header, ns, h.ID))
	t.forgetLast()
}

// allRecords reports whether the entries of a journal that is inline are all that the state has of them.
func allRecords(h *state.Header) bool {
	return !slices.ContainsFunc(h.InlineEntries(), func(value []byte) bool { return !isRecord(keys.Of(keys.Header, "", h.ID), value) })
}

// isRecord reports whether a journal entry is all that the state has of it.
func isRecord(key, value []byte) bool {
	kind, err := journal.KindOf(value)
	var entry journal.Entry
	if err == nil && kind == journal.KindInvokeScheduled {
		entry, err = journal.DecodeEntry(value)
	}
	if err != nil {
		state.PanicCorrupt("journal", key, err)
	}
	if kind == journal.KindInvokeScheduled {
		return state.RunsLocally(entry.Event.(journal.InvokeScheduled).Invoke)
	}
	return state.IsRecordKind(kind)
}

// keysWithin lists keys of a range that fit, as long as the command may read more; next is the key to continue from.
func (t *txn) keysWithin(lower, upper []byte, fits func(key []byte) bool) (found [][]byte, next []byte) {
	t.scan(lower, upper, func(key, _ []byte) bool {
		if t.sweepLeft == 1 {
			next = append([]byte(nil), key...)
			return false
		}
		t.sweepLeft--
		if fits(key) {
			found = append(found, append([]byte(nil), key...))
		}
		return true
	})
	return found, next
}

// purgeRows deletes rows of a purged execution's incarnations up to one. Those that are left are named by Remains; the
// deadline index leads to them. A later incarnation of the id has rows of its own.
func (t *txn) purgeRows(ns, objectID string, through uint64) {
	more := false
	for _, family := range rowFamilies {
		if more = t.sweepLeft <= 1; more {
			break
		}
		lower := keys.Of(family, ns, objectID)
		found, next := t.keysWithin(lower, keys.AppendUint64(keys.Of(family, ns, objectID), through+1), func([]byte) bool { return true })
		for _, key := range found {
			t.remove(key)
		}
		if more = next != nil; more {
			break
		}
	}
	remains, deadline := keys.Of(keys.Remains, ns, objectID), keys.DeadlineOf(keys.DeadlinePurge, state.RemainsAt, ns, objectID)
	switch _, begun := t.get(remains); {
	case more:
		t.put(remains, keys.AppendUint64(nil, through))
		t.put(deadline, []byte{})
		t.fx.expiration(state.RemainsAt)
	case begun:
		t.remove(remains)
		t.remove(deadline)
	}
}

// continuePurge continues a purge whose deadline has expired.
func (t *txn) continuePurge(ns, objectID string) {
	if h, ok := t.headerOf(ns, objectID); ok && h.Purge != "" && h.PurgeAt <= t.now {
		if ex, ok := t.execution(ns, objectID); ok {
			t.purge(ex)
		}
	}
	key := keys.Of(keys.Remains, ns, objectID)
	b, ok := t.get(key)
	if !ok {
		return
	}
	through, rest, err := keys.CutUint64(b)
	if err != nil || len(rest) > 0 {
		state.PanicCorrupt("remains", key, err)
	}
	if t.sweepLeft == 0 {
		t.sweepLeft = sweepBudget + 1
	}
	t.purgeRows(ns, objectID, through)
}
