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
)

// sweepBegin is the first position of a sweep: its stage, and no key.
var sweepBegin = []byte{0}

// sweepStages are the parts of a former incarnation in the order of their deletion. Executions come first, each with
// its promise and task, so that none is left without them between two commands.
var sweepStages = []struct {
	family keys.Family
	// former: the journals of the execution's own former incarnations; else what belongs to its operations.
	former bool
}{{family: keys.Header}, {family: keys.Promise}, {family: keys.Journal, former: true}, {family: keys.Journal}}

// sweep deletes the next part of an execution's former incarnations. After the last part it announces the task of
// the current one, or sets its retry timer; else the deadline index leads to the next part.
func (t *txn) sweep(ex *execution) {
	if t.sweepLeft == 0 {
		t.sweepLeft = sweepBudget + 1
	}
	stage, from := int(ex.h.Sweep[0]), ex.h.Sweep[1:]
	for ; stage < len(sweepStages) && t.sweepLeft > 1; stage++ {
		if from = t.sweepStage(ex, stage, from); from != nil {
			break
		}
	}
	ex.dirty = true
	if ex.h.SweepAt != 0 {
		t.remove(keys.DeadlineOf(keys.DeadlineSweep, ex.h.SweepAt, ex.ns, ex.h.ID))
	}
	if stage < len(sweepStages) {
		ex.h.Sweep, ex.h.SweepAt = append([]byte{byte(stage)}, from...), t.now
		t.put(keys.DeadlineOf(keys.DeadlineSweep, t.now, ex.ns, ex.h.ID), []byte{})
		t.fx.expiration(t.now)
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

// sweepStage deletes a part of one stage, and returns the key to continue from; nil when the stage is done.
func (t *txn) sweepStage(ex *execution, stage int, from []byte) (next []byte) {
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
			t.erase(ex.ns, idOfKey(key))
		case keys.Promise:
			t.endSwept(ex.ns, idOfKey(key))
			t.erasePromise(ex.ns, idOfKey(key))
		default:
			t.remove(key)
		}
	}
	return next
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
	if _, err := id.Parse(objectID); err != nil {
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
		t.task = lastTask{}
	}
	t.remove(keys.Of(keys.Header, ns, objectID))
}

// erasePromise settles a promise whose caller was deleted, and deletes it. It notifies all other waiters.
func (t *txn) erasePromise(ns, objectID string) {
	s := t.store(ns)
	st := recovery.TimeoutPromise(s, t.now, recovery.Ref{ID: objectID})
	if p, ok := s.Promise(objectID); ok && p.State == recovery.PromisePending {
		var err error
		st, err = recovery.Settle(s, t.now, recovery.Ref{ID: objectID}, recovery.PromiseRejectedCanceled,
			state.EncodeFailure(state.FailureCancelled, "a new incarnation of its caller has begun"))
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
