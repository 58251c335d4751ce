package journal

// ExecutionCancelled ends an execution whose cancel was requested.
type ExecutionCancelled struct {
	Reason string
}

// Kind returns KindExecutionCancelled.
func (ExecutionCancelled) Kind() Kind { return KindExecutionCancelled }

// Only Cancelling leads here, and only CancelRequested leads to Cancelling (S-5, K7).
func (ExecutionCancelled) guard(s *State) *Violation {
	if s.status != StatusCancelling {
		return broken(RuleCancelledRequires, "", "no cancel was requested; the execution is "+s.status.String())
	}
	return nil
}

func (ExecutionCancelled) apply(s *State) { s.status = StatusCancelled }

func (e ExecutionCancelled) encode(dst []byte) []byte { return appendText(dst, e.Reason) }

func decodeExecutionCancelled(d *decoder) Event { return ExecutionCancelled{Reason: d.text()} }
