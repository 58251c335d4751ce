package journal

// ExecutionCompleted ends an execution whose program returned a result.
type ExecutionCompleted struct {
	Result []byte
}

// Kind returns KindExecutionCompleted.
func (ExecutionCompleted) Kind() Kind { return KindExecutionCompleted }

// Only running code returns (R1). Unfinished work may be left behind (K14).
func (ExecutionCompleted) guard(s *State) *Violation { return s.returning(KindExecutionCompleted) }

func (ExecutionCompleted) apply(s *State) { s.status = StatusCompleted }

func (e ExecutionCompleted) encode(dst []byte) []byte { return appendBytes(dst, e.Result) }

func decodeExecutionCompleted(d *decoder) Event { return ExecutionCompleted{Result: d.bytes()} }

// returning is the guard of the two ways a program returns.
func (s *State) returning(k Kind) *Violation {
	if s.status != StatusRunning {
		return broken(RuleReturnsWhileRunning, "", k.String()+" while "+s.status.String())
	}
	return nil
}
