package machine

import (
	"strconv"
	"strings"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/id"
	"perdure/recovery"
)

const (
	// sweepBudget bounds what one command deletes of former incarnations, in keys read.
	sweepBudget = 512
	// sweepTimeoutMS is the retry timer of a task that waits for a sweep, which announces it at its end.
	sweepTimeoutMS = 24 * 60 * 60 * 1000
	// sweepHoldMS is after what time a sweep that waits for a clean-up looks again; the clean-up's end wakes it before.
	sweepHoldMS = 10_000
)

// sweepBegin is the first position of a sweep: its stage, and no key.
var sweepBegin = []byte{0}

// sweepStages are the parts of a former incarnation in the order of their deletion. Executions come first, each with
// its promise and task, so that none is left without them between two commands. Executions that are being cleaned up
// after stay at first, with their operations, and the first stage that does not pass them waits for their clean-ups,
// which need their journals.
var sweepStages = []struct {
	family keys.Family
	// former: the journals of the execution's own former incarnations; else what belongs to its operations.
	former bool
	// passes: skips what is being cleaned up after, instead of waiting.
	passes bool
}{
	{family: keys.Header, passes: true}, {family: keys.Promise, passes: true}, {family: keys.Header}, {family: keys.Promise},
	{family: keys.Journal, former: true}, {family: keys.Journal},
}

// sweep deletes the next part of an execution's former incarnations. After the last part it announces the task of
// the current one, or sets its retry timer; else the deadline index leads to the next part.
func (t *txn) sweep(ex *execution) {
	if t.sweepLeft == 0 {
		t.sweepLeft = sweepBudget + 1
	}
	stage, from, next := int(ex.h.Sweep[0]), ex.h.Sweep[1:], t.now
	for ; stage < len(sweepStages) && t.sweepLeft > 1; stage++ {
		held := false
		if from, held = t.sweepStage(ex, stage, from); held {
			next += sweepHoldMS
		}
		if from != nil {
			break
		}
	}
	ex.dirty = true
	if ex.h.SweepAt != 0 {
		t.remove(keys.DeadlineOf(keys.DeadlineSweep, ex.h.SweepAt, ex.ns, ex.h.ID))
	}
	if stage < len(sweepStages) {
		ex.h.Sweep, ex.h.SweepAt = append([]byte{byte(stage)}, from...), next
		t.put(keys.DeadlineOf(keys.DeadlineSweep, next, ex.ns, ex.h.ID), []byte{})
		t.fx.expiration(next)
		return
	}
	ex.h.Sweep, ex.h.SweepAt = nil, 0
	s := t.store(ex.ns)
	task, ok := s.Task(ex.h.ID)
	if !ok || task.State != recovery.TaskPending {
		return // ended meanwhile
	}
	if ex.h.RetryAt > t.now {
		task.RetryAt = ex.h.RetryAt
		s.PutTask(task)
		return
	}
	task.RetryAt = t.now + retryMS
	s.PutTask(task)
	t.effects(ex.ns, recovery.Effects{Executes: []recovery.Execute{{ID: task.ID, Incarnation: task.Incarnation, Version: task.Version, Target: task.Target}}})
}

// sweepStage deletes a part of one stage, and returns the key to continue from; nil when the stage is done. held: the
// execution at that key is being cleaned up after.
func (t *txn) sweepStage(ex *execution, stage int, from []byte) (next []byte, held bool) {
	st := sweepStages[stage]
	lower := keys.Of(st.family, ex.ns, operations(ex.h.ID))
	lower = lower[:len(lower)-2] // without the string's terminator: every id with this prefix
	upper := keys.After(lower)
	if st.former {
		lower, upper = keys.JournalPrefix(ex.ns, ex.h.ID, 0), keys.JournalPrefix(ex.ns, ex.h.ID, ex.h.Incarnation)
	}
	if len(from) > 0 {
		lower = from
	}
	var found [][]byte
	t.scan(lower, upper, func(key, _ []byte) bool {
		if t.sweepLeft == 1 {
			next = append([]byte(nil), key...)
			return false
		}
		t.sweepLeft--
		if st.former || t.leftOver(ex, key) {
			found = append(found, append([]byte(nil), key...))
		}
		return true
	})
	for _, key := range found {
		switch st.family {
		case keys.Header:
			switch objectID := idOfKey(key); {
			case !t.beingCleanedUp(ex, objectID):
				if !t.released(ex.ns, objectID, erased) || !t.reached(ex.ns, objectID) {
					return key, false
				}
				t.erase(ex.ns, objectID)
			case !st.passes:
				return key, true
			}
		case keys.Promise:
			if objectID := idOfKey(key); !st.passes || !t.beingCleanedUp(ex, objectID) {
				if !t.released(ex.ns, objectID, erased) {
					return key, false
				}
				t.endSwept(ex.ns, objectID)
			}
		default:
			t.remove(key)
		}
	}
	return next, false
}

// reached lets an execution's end reach its open children before its deletion; false if some are left for later. A spread
// child has no other way to learn of the end.
func (t *txn) reached(ns, objectID string) bool {
	if h, ok := t.headerOf(ns, objectID); !ok || h.ChildrenAt == 0 {
		return true
	}
	t.reachMoreChildren(ns, objectID)
	h, ok := t.headerOf(ns, objectID)
	return !ok || h.ChildrenAt == 0
}

// beingCleanedUp reports whether an execution below ex, or one between the two, was cancelled and has a
// clean-up that is still open.
func (t *txn) beingCleanedUp(ex *execution, objectID string) bool {
	for objectID != ex.h.ID {
		if h, ok := t.headerOf(ex.ns, objectID); ok && t.cleanupOpen(ex.ns, &h) {
			return true
		}
		parent, ok := id.PromiseID(objectID).Parent()
		if !ok {
			return false
		}
		objectID = string(parent)
	}
	return false
}

// cleanupOpen reports whether a cancelled execution's clean-up has not ended.
func (t *txn) cleanupOpen(ns string, h *state.Header) bool {
	if h.CleanupChild == 0 {
		return false
	}
	cleanup, ok := t.headerOf(ns, h.CleanupID())
	return ok && !cleanup.Status.Terminal()
}

// headerOf reads an execution's header without its journal.
func (t *txn) headerOf(ns, objectID string) (state.Header, bool) {
	if ex := t.m.cache.get(ns, objectID); ex != nil {
		return ex.h, true
	}
	return state.Must{From: t}.Header(ns, objectID)
}

// cleanedUp wakes the sweep that waits for an ended clean-up.
func (t *txn) cleanedUp(cleanup *execution) {
	for promise, ok := id.PromiseID(cleanup.h.ID).Parent(); ok; promise, ok = promise.Parent() {
		above := string(promise)
		if h, ok := t.headerOf(cleanup.ns, above); !ok || h.SweepAt <= t.now {
			continue
		}
		if ex, ok := t.execution(cleanup.ns, above); ok {
			t.remove(keys.DeadlineOf(keys.DeadlineSweep, ex.h.SweepAt, ex.ns, ex.h.ID))
			ex.h.SweepAt, ex.dirty = t.now, true
			t.put(keys.DeadlineOf(keys.DeadlineSweep, t.now, ex.ns, ex.h.ID), []byte{})
			t.fx.expiration(t.now)
		}
	}
}

// idOfKey reads the id in a key whose second part it is.
func idOfKey(key []byte) string {
	_, rest, err := keys.CutString(key[1:])
	if err == nil {
		var objectID string
		if objectID, _, err = keys.CutString(rest); err == nil {
			return objectID
		}
	}
	state.PanicCorrupt("key", key, err)
	return ""
}

// leftOver reports whether a key belongs to an operation that only a former incarnation had.
func (t *txn) leftOver(ex *execution, key []byte) bool {
	objectID := idOfKey(key)
	if _, err := id.Parse(objectID); err != nil || keys.Family(key[0]) == keys.Promise && t.ofClient(ex.ns, objectID) {
		return false // a promise of a client that is named like an operation, and is none
	}
	n, _, _ := strings.Cut(objectID[len(operations(ex.h.ID)):], ".")
	number, err := strconv.ParseUint(n, 10, 32)
	return err == nil && uint32(number) >= ex.h.Kept
}

// erase ends an operation's execution if it is open, without its caller, and deletes it except its journal.
func (t *txn) erase(ns, objectID string) {
	ex := t.m.cache.get(ns, objectID)
	if ex == nil {
		ex = &execution{ns: ns}
		ex.h, _ = state.Must{From: t}.Header(ns, objectID)
	}
	h := ex.h
	if !h.Status.Terminal() {
		t.leaveSection(ex)
		t.dropHeartbeats(ex)
	}
	t.detach(ex)
	class := keys.Open
	if h.Status.Terminal() {
		class = closedClass(h.Status)
	}
	t.remove(keys.VisibilityOf(ns, class, h.CreatedMS, objectID))
	t.dropDeadlines(ns, &h)
	t.erasePromise(ns, objectID)
	if _, ok := t.store(ns).Task(objectID); ok {
		t.remove(keys.Of(keys.Task, ns, objectID))
		t.forgetLast()
	}
	t.remove(keys.Of(keys.Header, ns, objectID))
}

// erased is the outcome of a promise that is deleted while it is pending.
var erased = state.EncodeFailure(state.FailureCancelled, "a new incarnation of its caller has begun")

// erasePromise settles a promise whose caller was deleted, and deletes it. It notifies its listeners as far as the
// budget allows: a sweep has notified all before, and any others wait for the promise that the caller's new incarnation
// gives the same id.
func (t *txn) erasePromise(ns, objectID string) {
	s := t.store(ns)
	st := recovery.TimeoutPromise(s, t.now, recovery.Ref{ID: objectID})
	if p, ok := s.Promise(objectID); ok && p.State == recovery.PromisePending {
		var err error
		st, err = recovery.Settle(s, t.now, recovery.Ref{ID: objectID}, recovery.PromiseRejectedCanceled, erased)
		if err != nil {
			panic(state.Fault{Err: err})
		}
	}
	t.notify(ns, st)
	s.remove(objectID)
}

// continueSweep continues a sweep whose deadline has expired.
func (t *txn) continueSweep(ns, objectID string) {
	h, ok := state.Must{From: t}.Header(ns, objectID)
	if ok && h.SweepAt != 0 && h.SweepAt <= t.now {
		if ex, ok := t.execution(ns, objectID); ok && ex.h.SweepAt != 0 {
			t.sweep(ex)
		}
	}
}

// sweeping reports whether an execution's task waits for the end of a sweep, and postpones its retry timer.
func (t *txn) sweeping(ns, objectID string) bool {
	h, ok := state.Must{From: t}.Header(ns, objectID)
	if !ok || h.SweepAt == 0 {
		return false
	}
	if task, ok := t.store(ns).Task(objectID); ok && task.State == recovery.TaskPending && task.RetryAt <= t.now {
		task.RetryAt = t.now + sweepTimeoutMS
		t.store(ns).PutTask(task)
	}
	return true
}
