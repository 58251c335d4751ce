package journal

import "perdure/id"

// ExecutionStarted is the first entry of every journal.
type ExecutionStarted struct {
	// ComponentDigest pins the execution to the code it started with.
	ComponentDigest string
	Input           []byte
	// Parent is the promise of the caller, "" for a root. The journal does not check that it exists.
	Parent id.PromiseID
	// IdempotencyKey is the key the start was made under.
	IdempotencyKey string
}

// Kind returns KindExecutionStarted.
func (ExecutionStarted) Kind() Kind { return KindExecutionStarted }

// The guard admits the event on an empty journal; on any other it is a second start (K5).
func (ExecutionStarted) guard(s *State) *Violation {
	if s.status != StatusNone {
		return broken(RuleStartedOnce, "", "the execution has been started")
	}
	return nil
}

func (ExecutionStarted) apply(s *State) { s.status = StatusRunning }

func (e ExecutionStarted) encode(dst []byte) []byte {
	dst = appendText(dst, e.ComponentDigest)
	dst = appendBytes(dst, e.Input)
	dst = appendText(dst, e.Parent)
	return appendText(dst, e.IdempotencyKey)
}

func decodeExecutionStarted(d *decoder) Event {
	return ExecutionStarted{ComponentDigest: d.text(), Input: d.bytes(), Parent: d.optionalPromise(), IdempotencyKey: d.text()}
}
