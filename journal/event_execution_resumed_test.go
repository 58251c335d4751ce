package journal

import "testing"

func TestExecutionResumed(t *testing.T) {
	refusedIn(t, ExecutionResumed{}, map[Status]string{
		StatusNone:       RuleStartsWithStarted,
		StatusRunning:    RuleResumable,
		StatusBlocked:    RuleResumable,
		StatusCancelling: RuleResumable,
		StatusCompleted:  RuleTerminalIsLast,
		StatusFailed:     RuleTerminalIsLast,
		StatusCancelled:  RuleTerminalIsLast,
	})
	for _, c := range []struct {
		wait   Event
		enough []uint32
	}{
		{awaiting(AwaitSingle, 1), []uint32{1}},
		{awaiting(AwaitAny, 0, 1, 2), []uint32{2}},
		{awaiting(AwaitAll, 0, 1, 2), []uint32{2, 0, 1}},
	} {
		b := started(t, timer(0), timer(1), timer(2), timer(3), c.wait, TimerFired{Promise: kid(3)})
		for _, n := range c.enough {
			b.refuse(RuleResumable, ExecutionResumed{})
			b.accept(TimerFired{Promise: kid(n)})
		}
		b.accept(ExecutionResumed{})
		b.refuse(RuleResumable, ExecutionResumed{})
	}
}
