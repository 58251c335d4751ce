package journal

// ExecutionResumed records that a satisfied wait is over. Nothing else ends a wait, except a cancel (K9).
type ExecutionResumed struct{}

// Kind returns KindExecutionResumed.
func (ExecutionResumed) Kind() Kind { return KindExecutionResumed }

func (ExecutionResumed) guard(s *State) *Violation {
	switch {
	case s.status != StatusBlocked:
		return broken(RuleResumable, "", "the execution is "+s.status.String()+", not Blocked")
	case !s.WaitSatisfied():
		return broken(RuleResumable, "", num(s.waitResolved)+" of "+num(len(s.waitOn))+
			" promises are resolved, and the wait is of kind "+s.waitKind.String())
	}
	return nil
}

func (ExecutionResumed) apply(s *State) { s.unblock(StatusRunning) }

func (ExecutionResumed) encode(dst []byte) []byte { return dst }

func decodeExecutionResumed(*decoder) Event { return ExecutionResumed{} }
