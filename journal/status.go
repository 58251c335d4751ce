package journal

import "strconv"

// Status is an execution's status, derived from its journal.
type Status uint8

const (
	// StatusNone is the empty journal's: nothing has been started.
	StatusNone Status = 0
	// StatusRunning means that the program may continue.
	StatusRunning Status = 1
	// StatusBlocked means that the program waits: a result that it needs is missing.
	StatusBlocked Status = 2
	// StatusCancelling means that a cancel was accepted and only facts are still recorded.
	StatusCancelling Status = 3
	// StatusCompleted is terminal: the program returned a result.
	StatusCompleted Status = 4
	// StatusFailed is terminal: the program returned an error.
	StatusFailed Status = 5
	// StatusCancelled is terminal: the execution ended by its cancel.
	StatusCancelled Status = 6
)

var statusNames = [...]string{"None", "Running", "Blocked", "Cancelling", "Completed", "Failed", "Cancelled"}

// Terminal reports whether the journal accepts no further event.
func (s Status) Terminal() bool { return s >= StatusCompleted && s <= StatusCancelled }

// String returns the status's name as the journal spec writes it, or "Status(n)".
func (s Status) String() string {
	if int(s) >= len(statusNames) {
		return "Status(" + strconv.Itoa(int(s)) + ")"
	}
	return statusNames[s]
}

// StatusOf folds a journal into its status. Seven kinds of events change it; it is defined for any list
// of entries, valid or not.
func StatusOf(entries []Entry) Status {
	status := StatusNone
	for _, entry := range entries {
		status = foldStatus(status, entry.Event)
	}
	return status
}

func foldStatus(before Status, ev Event) Status {
	switch ev.(type) {
	case ExecutionStarted, ExecutionResumed:
		return StatusRunning
	case ExecutionAwaiting:
		return StatusBlocked
	case CancelRequested:
		return StatusCancelling
	case ExecutionCompleted:
		return StatusCompleted
	case ExecutionFailed:
		return StatusFailed
	case ExecutionCancelled:
		return StatusCancelled
	}
	return before
}
