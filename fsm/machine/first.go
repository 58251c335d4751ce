package machine

import (
	"bytes"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/wire"
	"perdure/journal"
	"perdure/recovery"
)

// firstBytes bounds the input that a First holds: tasks may wait long in a worker's queue.
const firstBytes = 1 << 10

// First is an execution at the first acquisition of its task, when its journal has only the start. A leader that has it
// brings the task to its worker without a read of the state. It is immutable.
type First struct {
	function              string
	status                journal.Status
	createdMS, deadlineMS int64
	tags                  []recovery.Tag
	started               journal.Event
}

// Task returns what query.Read answers for the task of token, as of its acquisition.
func (f *First) Task(token *perdurev1.TaskToken) *perdurev1.Task {
	return &perdurev1.Task{Token: token, Function: f.function, Status: wire.EncodeStatus(f.status),
		Entries: []*perdurev1.JournalEntry{wire.EncodeEntry(journal.Entry{Time: f.createdMS, Event: f.started})}, NextSeq: 1,
		CreatedMs: f.createdMS, DeadlineMs: f.deadlineMS, Tags: wire.EncodeTags(f.tags)}
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
	out := t.m.firsts.Next()
	*out = First{function: h.Function, status: h.Status, createdMS: h.CreatedMS, deadlineMS: h.DeadlineMS, tags: h.Tags, started: started}
	return out
}
