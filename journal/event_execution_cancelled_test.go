package journal

import "testing"

func TestExecutionCancelled(t *testing.T) {
	started(t, CancelRequested{}).accept(ExecutionCancelled{Reason: "done"})
	refusedIn(t, ExecutionCancelled{}, map[Status]string{
		StatusNone:      RuleStartsWithStarted,
		StatusRunning:   RuleCancelledRequires,
		StatusBlocked:   RuleCancelledRequires,
		StatusCompleted: RuleSingleTerminal,
		StatusFailed:    RuleSingleTerminal,
		StatusCancelled: RuleSingleTerminal,
	})
}
