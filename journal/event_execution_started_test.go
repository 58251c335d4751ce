package journal

import "testing"

func TestExecutionStarted(t *testing.T) {
	b := newBook(t)
	b.accept(ExecutionStarted{Parent: "elsewhere:1.2"})
	b.refuse(RuleStartedOnce, ExecutionStarted{})
	refusedIn(t, ExecutionStarted{}, map[Status]string{
		StatusRunning:    RuleStartedOnce,
		StatusBlocked:    RuleStartedOnce,
		StatusCancelling: RuleStartedOnce,
		StatusCompleted:  RuleTerminalIsLast,
		StatusFailed:     RuleTerminalIsLast,
		StatusCancelled:  RuleTerminalIsLast,
	})
}

// The guard does not check the parent: it may be any promise, even of the execution itself (K5).
func TestExecutionStartedByItself(t *testing.T) {
	newBook(t).accept(ExecutionStarted{Parent: eid})
}
