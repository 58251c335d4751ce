package journal

import "testing"

func TestCancelRequested(t *testing.T) {
	b := started(t).accept(CancelRequested{Reason: "enough"})
	b.refuse(RuleCancelRequestedOnce, CancelRequested{Reason: "enough"})
	unlessOpenOrTerminal := map[Status]string{
		StatusNone:      RuleStartsWithStarted,
		StatusCompleted: RuleTerminalIsLast,
		StatusFailed:    RuleTerminalIsLast,
		StatusCancelled: RuleTerminalIsLast,
	}
	refusedIn(t, CancelRequested{}, unlessOpenOrTerminal)
}

// A cancel ends the open wait: what arrives later is recorded, and resumes nothing.
func TestCancelRequestedWhileBlocked(t *testing.T) {
	b := started(t, scheduled(0), attempted(0, 1), awaiting(AwaitSingle, 0), CancelRequested{})
	b.refuse(RuleResumable, ExecutionResumed{})
	b.accept(completed(0, 1, "r"))
	b.refuse(RuleResumable, ExecutionResumed{})
	b.accept(ExecutionCancelled{})
}
