package state

import "perdure/journal"

// RunsLocally reports whether the worker itself runs an invocation; the server runs the others.
func RunsLocally(k journal.InvokeKind) bool {
	return k == journal.InvokeStep || k == journal.InvokeHTTP
}

// IsRecord reports whether an event has no rows beside its journal entry.
func IsRecord(ev journal.Event) bool {
	if s, ok := ev.(journal.InvokeScheduled); ok {
		return RunsLocally(s.Invoke)
	}
	return IsRecordKind(ev.Kind())
}

// IsRecordKind reports whether all events of a kind are records. That is undecided for KindInvokeScheduled: see IsRecord.
func IsRecordKind(k journal.Kind) bool {
	switch k {
	case journal.KindExecutionStarted, journal.KindExecutionCompleted, journal.KindExecutionFailed, journal.KindCancelRequested,
		journal.KindExecutionCancelled, journal.KindInvokeStarted, journal.KindInvokeCompleted, journal.KindRandomGenerated,
		journal.KindTimeRecorded, journal.KindSignalDelivered:
		return true
	}
	return false
}
