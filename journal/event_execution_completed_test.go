package journal

import "testing"

// A blocked function has trapped and a cancelled one is past returning (R1).
func TestExecutionCompleted(t *testing.T) {
	started(t).accept(ExecutionCompleted{Result: []byte("r")})
	refusedIn(t, ExecutionCompleted{}, returningRules)
}

var returningRules = map[Status]string{
	StatusNone:       RuleStartsWithStarted,
	StatusBlocked:    RuleReturnsWhileRunning,
	StatusCancelling: RuleReturnsWhileRunning,
	StatusCompleted:  RuleSingleTerminal,
	StatusFailed:     RuleSingleTerminal,
	StatusCancelled:  RuleSingleTerminal,
}

// Any leaves losers behind: unfinished work does not hold an execution back (K14), and its late result is
// refused (S-4).
func TestExecutionCompletedWithUnfinishedWork(t *testing.T) {
	b := started(t, scheduled(0), attempted(0, 1), timer(1), JoinSetCreated{Set: set(2)}, submitted(2, 0), delivered("s", 1, "x"))
	b.accept(ExecutionCompleted{})
	b.refuse(RuleTerminalIsLast, completed(0, 1, "late"))
}
