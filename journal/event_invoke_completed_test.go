package journal

import "testing"

func TestInvokeCompleted(t *testing.T) {
	b := started(t, scheduled(0), timer(1), scheduled(2))
	b.refuse(RuleCompletedRequiresStarted, completed(0, 1, "r"))
	b.refuse(RuleCompletedRequiresStarted, completed(1, 1, "r"))
	b.refuse(RuleCompletedRequiresStarted, completed(3, 1, "r"))
	b.accept(attempted(0, 1))
	b.refuse(RuleCompletesOpenAttempt, completed(0, 0, "r"))
	b.refuse(RuleCompletesOpenAttempt, completed(0, 2, "r"))
	b.accept(retrying(0, 1))
	b.refuse(RuleCompletesOpenAttempt, completed(0, 1, "late"))
	b.refuse(RuleCompletesOpenAttempt, completed(0, 2, "early"))
	b.accept(attempted(0, 2))
	b.refuse(RuleCompletesOpenAttempt, completed(0, 1, "late"))
	b.accept(completed(0, 2, "r"))
	b.refuse(RuleCompletesOpenAttempt, completed(0, 2, "r"))
	unlessOpen(t, completed(0, 1, "r"))
}

// A fact is recorded whatever the program does meanwhile (K8), and never changes the status (K9).
func TestInvokeCompletedWhileNotRunning(t *testing.T) {
	b := started(t, scheduled(0), attempted(0, 1), scheduled(1), attempted(1, 1), awaiting(AwaitAll, 0, 1))
	b.accept(completed(1, 1, "r"))
	if b.state.Status() != StatusBlocked || b.state.WaitSatisfied() {
		t.Fatalf("one of two results: %v, %v", b.state.Status(), b.state.WaitSatisfied())
	}
	b.accept(CancelRequested{}, completed(0, 1, "r"))
	if b.state.Status() != StatusCancelling {
		t.Fatalf("a result while Cancelling: %v", b.state.Status())
	}
}
