package reduction

import "strconv"

// StatusKind is a Status without its signal. The numbers are stored and never change; 0 is no status.
type StatusKind uint8

const (
	// StatusPending: not started, or started and taken back.
	StatusPending StatusKind = 1
	// StatusRunning: handed to a worker. Volatile: every reader of a state reads it as pending.
	StatusRunning StatusKind = 2
	// StatusCompleted: it has an output.
	StatusCompleted StatusKind = 3
	// StatusFailed: by its own result, or because a node before it has failed.
	StatusFailed StatusKind = 4
	// StatusSkipped: it decided not to do anything; what comes after it may start.
	StatusSkipped StatusKind = 5
	// StatusWaiting: it needs a signal to complete.
	StatusWaiting StatusKind = 6
)

var statusNames = [...]string{"absent", "Pending", "Running", "Completed", "Failed", "Skipped", "Waiting"}

// String returns the name as the papers write it, "absent" for 0, or "StatusKind(n)".
func (k StatusKind) String() string {
	if int(k) >= len(statusNames) {
		return "StatusKind(" + strconv.Itoa(int(k)) + ")"
	}
	return statusNames[k]
}

// Valid reports whether k is one of the six.
func (k StatusKind) Valid() bool { return k >= StatusPending && k <= StatusWaiting }

// Terminal reports whether the node is done for good: completed, failed or skipped.
func (k StatusKind) Terminal() bool {
	return k == StatusCompleted || k == StatusFailed || k == StatusSkipped
}

// satisfies reports whether a node of this status lets what comes after it start.
func (k StatusKind) satisfies() bool { return k == StatusCompleted || k == StatusSkipped }

// open reports whether the node counts as pending in the normalised view.
func (k StatusKind) open() bool { return k == StatusPending || k == StatusRunning }

// yields reports whether closure fails a node of this status when one before it has failed.
func (k StatusKind) yields() bool { return k == StatusPending || k == StatusWaiting }

// Status is the state of one node (staged reduction, 2.2). The zero value means an unknown status, which no
// well-formed state contains.
type Status struct {
	Kind StatusKind
	// Signal is what a waiting node waits for, and "" for every other status.
	Signal string
}

// Waiting is the status of a node that waits for the named signal.
func Waiting(signal string) Status { return Status{StatusWaiting, signal} }

// Valid reports whether s is one of the six with a signal exactly if it waits for one.
func (s Status) Valid() bool {
	return s.Kind.Valid() && (s.Signal != "") == (s.Kind == StatusWaiting)
}

// String returns the kind's name, with the signal if it waits for one.
func (s Status) String() string {
	if s.Kind == StatusWaiting {
		return "Waiting(" + quoted(s.Signal) + ")"
	}
	return s.Kind.String()
}

// AtMost is the order of the forward fragment (algebraic foundations, 4.1): pending below running, running
// below completed, failed, skipped and every waiting, of which no two are comparable. Forward outcomes move
// up in it. Resets do not, and neither does closure where it takes a waiting node to failed.
func (s Status) AtMost(t Status) bool {
	return s == t || rank(s.Kind) < rank(t.Kind)
}

func rank(k StatusKind) int { return min(int(k), int(StatusCompleted)) }
