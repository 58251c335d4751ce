package machine

import (
	"bytes"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/wire"
	"perdure/journal"
	"perdure/recovery"
)

// firstBytes bounds the input that a First holds: tasks may wait long in a worker's queue.
const firstBytes = 1 << 10

// First is an execution at the acquisition of its task, with the journal entries that its worker lacks: the start at the
// first acquisition, when the journal has only that, and after a wait all of a short journal, or those since the commit that waits. A
// leader that has it brings the task to its worker without a read of the state. It is immutable.
type First struct {
	function                         string
	status                           journal.Status
	createdMS, deadlineMS, cleanupMS int64
	tags                             []recovery.Tag
	started                          journal.Event // nil after a wait
	waited                           *waited       // nil at the first acquisition, and of a short journal
	short                            shortJournal  // else without entries; nothing changes its bytes
}

// Task returns what query.Read answers for the task of token with the journal from an entry on, as of its acquisition. It is
// nil if that has entries which are not in memory.
func (f *First) Task(token *perdurev1.TaskToken, from uint64) *perdurev1.Task {
	out := &perdurev1.Task{Token: token, Function: f.function, Status: wire.EncodeStatus(f.status),
		CreatedMs: f.createdMS, DeadlineMs: f.deadlineMS, CleanupMs: f.cleanupMS, Tags: wire.EncodeTags(f.tags)}
	switch {
	case f.short.entries > 0:
		if from >= f.short.entries {
			return nil
		}
		for _, b := range f.short.from(from) {
			e, err := journal.DecodeEntry(b)
			if err != nil {
				return nil // the read of the state says it
			}
			out.Entries = append(out.Entries, wire.EncodeEntry(e))
		}
		out.NextSeq = f.short.entries
		return out
	case f.waited == nil:
		out.Entries, out.NextSeq = []*perdurev1.JournalEntry{wire.EncodeEntry(journal.Entry{Time: f.createdMS, Event: f.started})}, 1
		return out
	}
	if from < f.waited.from || from >= f.waited.next() {
		return nil
	}
	for _, e := range f.waited.entries[from-f.waited.from:] {
		out.Entries = append(out.Entries, wire.EncodeEntry(e))
	}
	out.NextSeq = f.waited.next()
	return out
}

// mayKeep returns the start of an execution as it may be kept in memory until its task is first acquired: with an input
// of its own. kept is false for a large one.
func mayKeep(started journal.ExecutionStarted) (_ journal.Event, kept bool) {
	if kept = len(started.Input) <= firstBytes; kept {
		started.Input = bytes.Clone(started.Input)
	}
	return started, kept
}

// first returns what the worker of an execution's first task needs, and forgets it. It is nil for an execution that has
// been evicted from memory since its start, has more than its start, or is a clean-up: that needs the execution that it
// cleans up.
func (t *txn) first(ns, objectID string) *First {
	ex, ok := t.execution(ns, objectID)
	if !ok || ex.started == nil {
		return nil
	}
	started, h := ex.started, &ex.h
	ex.started = nil
	if h.Events != 1 || h.IsCleanup() || h.CleanupMS != 0 || h.HeartbeatAt != 0 {
		return nil
	}
	out := t.acquired(h)
	out.started = started
	return out
}

// afterWait returns what the worker of a later task needs. It is nil unless all entries of the journal, or all since the commit that
// waits, are in memory.
func (t *txn) afterWait(ns, objectID string) *First {
	ex, ok := t.execution(ns, objectID)
	if !ok {
		return nil
	}
	waited, h := ex.waited, &ex.h
	ex.waited = nil
	whole := ex.short.whole(h)
	if !whole && (waited == nil || waited.next() != h.Events) || h.HeartbeatAt != 0 || h.IsCleanup() {
		return nil
	}
	out := t.acquired(h)
	if whole {
		out.short = ex.short
	} else {
		out.waited = waited
	}
	return out
}

func (t *txn) acquired(h *state.Header) *First {
	out := t.m.firsts.Next()
	*out = First{function: h.Function, status: h.Status, createdMS: h.CreatedMS, deadlineMS: h.DeadlineMS, cleanupMS: h.CleanupMS, tags: h.Tags}
	return out
}
