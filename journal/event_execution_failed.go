package journal

// ExecutionFailed ends an execution whose program returned an error or trapped for good.
type ExecutionFailed struct {
	Error []byte
}

// Kind returns KindExecutionFailed.
func (ExecutionFailed) Kind() Kind { return KindExecutionFailed }

// Only running code returns (R1).
func (ExecutionFailed) guard(s *State) *Violation { return s.returning(KindExecutionFailed) }

func (ExecutionFailed) apply(s *State) { s.status = StatusFailed }

func (e ExecutionFailed) encode(dst []byte) []byte { return appendBytes(dst, e.Error) }

func decodeExecutionFailed(d *decoder) Event { return ExecutionFailed{Error: d.bytes()} }
