package machine

import (
	"errors"
	"slices"

	"perdure/fsm/histories"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/journal"
	"perdure/recovery"
)

// succession holds the parameters of the incarnation that follows another one under the same id.
type succession struct {
	function, digest string
	input            []byte
	tags             []recovery.Tag
	// deadlineMS is the end of the new incarnation, 0 for none. An open execution keeps its own.
	deadlineMS int64
	request    []byte
	// startInput is the header's StartInput.
	startInput []byte
	// prefix is what the new incarnation keeps of the journal; without one, that begins with input.
	prefix []journal.Entry
	// kept and attached are the header's Kept and Attached.
	kept     uint32
	attached uint64
	// signals are delivered to the new incarnation, in order.
	signals []journal.SignalDelivered
	// parentIncarnation replaces that of a child's parent; 0 keeps it.
	parentIncarnation uint64
	// lastCommit is the request of the commit that ended the former incarnation.
	lastCommit []byte
	// failedAttempts, begunAttempt and retryAt are those of the header. The task is announced at retryAt.
	failedAttempts, begunAttempt uint32
	retryAt                      int64
}

// succeed begins a new incarnation of a function's execution. If that is open, its promise stays, so all that
// await it get the new incarnation's result. The former incarnation's token is void at once. Its journal and
// operations are deleted in parts; the new incarnation's task is announced after the last part.
func (t *txn) succeed(old *execution, s succession) *execution {
	ns, h := old.ns, old.h
	t.level = max(t.level, state.LevelFunctions)
	first := t.firstEntry(old)
	t.leaveSection(old)
	t.dropHeartbeats(old)
	t.retire(old)
	own, target := t.store(ns), t.pinnedTarget(s.function, s.digest)
	pending := true
	if h.Status.Terminal() {
		timeout := s.deadlineMS
		if timeout == 0 {
			timeout = state.Never
		}
		own.remove(h.ID)
		made, _, err := recovery.Create(own, t.now, recovery.CreateRequest{
			ID: h.ID, Incarnation: t.index, Tags: s.tags, Target: target, TimeoutAt: timeout,
		}, retryMS)
		t.mustNot(old, err)
		pending = made.Promise.State == recovery.PromisePending
	} else {
		p, _ := own.Promise(h.ID)
		p.Incarnation, p.Target, p.DelayUntil = t.index, target, 0
		own.PutPromise(p)
		s.tags, s.deadlineMS = h.Tags, h.DeadlineMS
	}
	if pending {
		own.PutTask(recovery.Task{ID: h.ID, Incarnation: t.index, State: recovery.TaskPending, Target: target, RetryAt: t.now + sweepTimeoutMS})
	}
	next := state.Header{
		ID: h.ID, Incarnation: t.index, Function: s.function, Digest: s.digest, CreatedMS: t.now,
		DeadlineMS: s.deadlineMS, Tags: s.tags, Parent: h.Parent, ParentIncarnation: h.ParentIncarnation,
		ParentPromise: h.ParentPromise, StartRequest: s.request, Former: h.Incarnation, Generation: h.Generation + 1,
		Kept: s.kept, Attached: s.attached, StartInput: s.startInput, LastCommit: s.lastCommit,
		HeaderMore: state.HeaderMore{ClosePolicy: h.ClosePolicy},
	}
	next.Retry, next.FailedAttempts, next.BegunAttempt, next.RetryAt = h.Retry, s.failedAttempts, s.begunAttempt, s.retryAt
	if len(s.lastCommit) > 0 {
		next.LastState = recovery.TaskPending
	}
	if s.parentIncarnation != 0 {
		next.ParentIncarnation = s.parentIncarnation
	}
	if len(s.prefix) > 0 {
		next.CreatedMS = s.prefix[0].Time
	}
	ex := t.touch(&execution{ns: ns, h: next, j: newJournal(h.ID), born: true})
	if len(s.prefix) == 0 {
		first.ComponentDigest, first.Input = s.digest, s.input
		t.must(ex, first)
	}
	for _, e := range s.prefix {
		if started, ok := e.Event.(journal.ExecutionStarted); ok {
			started.ComponentDigest = s.digest
			e.Event = started
		}
		t.keepEntry(ex, e)
	}
	for _, signal := range s.signals {
		signal.DeliveryID = ex.j.Deliveries(signal.Name) + 1
		t.must(ex, signal)
	}
	t.put(keys.VisibilityOf(ns, keys.Open, next.CreatedMS, h.ID), state.ListingOpen(s.function))
	for _, young := range t.touched {
		if young.born && young != ex {
			t.put(keys.Of(keys.Header, young.ns, young.h.ID), young.h.Encode()) // where the sweep finds it
		}
	}
	ex.h.Sweep = sweepBegin
	t.sweep(ex)
	if !pending {
		// The deadline had expired before a message brought the start.
		p, _ := own.Promise(h.ID)
		t.ended(ns, recovery.Settlement{Promise: p, Changed: true})
	}
	return ex
}

// retire removes what only the current incarnation of an execution has, except its promise and its task, and
// forgets the execution in memory. It frees its callbacks on other promises.
func (t *txn) retire(old *execution) {
	ns, h := old.ns, &old.h
	class := keys.Open
	if h.Status.Terminal() {
		class = closedClass(h.Status)
	}
	t.remove(keys.VisibilityOf(ns, class, h.CreatedMS, h.ID))
	t.dropDeadlines(ns, h)
	for _, awaited := range t.store(ns).AwaitedBy(h.ID) {
		t.store(ns).RemoveCallback(awaited, h.ID)
	}
	t.detach(old)
}

// dropDeadlines removes the deadlines that a function's header names.
func (t *txn) dropDeadlines(ns string, h *state.Header) {
	if h.GraceAt != 0 {
		t.remove(keys.DeadlineOf(keys.DeadlineGrace, h.GraceAt, ns, h.ID))
	}
	if h.SweepAt != 0 {
		t.remove(keys.DeadlineOf(keys.DeadlineSweep, h.SweepAt, ns, h.ID))
	}
	t.dropChildrenDeadline(ns, h)
}

// detach drops an execution from memory, with what this transaction has changed in its header.
func (t *txn) detach(old *execution) {
	if i := slices.Index(t.touched, old); i >= 0 {
		t.touched, t.headers = slices.Delete(t.touched, i, i+1), slices.Delete(t.headers, i, i+1)
	}
	old.touched = false
	t.m.cache.drop(old)
}

// keepEntry copies an entry of a former incarnation's journal, with its time.
func (t *txn) keepEntry(ex *execution, e journal.Entry) {
	e.Seq = ex.j.NextSeq()
	t.mustNot(ex, ex.j.Append(e.Seq, e.Event))
	t.put(keys.JournalEntry(ex.ns, ex.h.ID, ex.h.Incarnation, e.Seq), journal.AppendEntry(nil, e))
	ex.h.Events, ex.h.Status, ex.dirty = ex.j.NextSeq(), ex.j.Status(), true
}

// firstEntry reads the first entry of an execution's journal.
func (t *txn) firstEntry(ex *execution) journal.ExecutionStarted {
	key := keys.JournalEntry(ex.ns, ex.h.ID, ex.h.Incarnation, 0)
	b, ok := state.Must{From: t}.Entry(ex.ns, &ex.h, 0)
	if !ok {
		state.PanicCorrupt("journal", key, &state.CorruptError{What: "journal", Key: key, Detail: "no first entry"})
	}
	entry, err := journal.DecodeEntry(append([]byte(nil), b...))
	if err != nil {
		state.PanicCorrupt("journal", key, err)
	}
	started, ok := entry.Event.(journal.ExecutionStarted)
	if !ok {
		state.PanicCorrupt("journal", key, errors.New("the first entry is "+entry.Event.Kind().String()))
	}
	return started
}

// operations returns the prefix that the ids of an execution's operations have, at any depth.
func operations(objectID string) string { return histories.Below(objectID) }
