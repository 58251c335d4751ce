package journal

// CancelRequested records a request to stop the execution. From here on the journal records only facts (K8),
// until ExecutionCancelled.
type CancelRequested struct {
	Reason string
}

// Kind returns KindCancelRequested.
func (CancelRequested) Kind() Kind { return KindCancelRequested }

// One intent, one record (R2).
func (CancelRequested) guard(s *State) *Violation {
	if s.status == StatusCancelling {
		return broken(RuleCancelRequestedOnce, "", "cancel was requested before")
	}
	return nil
}

// The open wait, if any, is over: Cancelling never returns to Running.
func (CancelRequested) apply(s *State) { s.unblock(StatusCancelling) }

func (e CancelRequested) encode(dst []byte) []byte { return appendText(dst, e.Reason) }

func decodeCancelRequested(d *decoder) Event { return CancelRequested{Reason: d.text()} }
