package journal

import "testing"

func TestInvokeStarted(t *testing.T) {
	b := started(t, scheduled(0), timer(1), JoinSetCreated{Set: set(2)})
	b.refuse(RuleAttemptInOrder, attempted(0, 0))
	b.refuse(RuleAttemptInOrder, attempted(0, 2))
	b.accept(attempted(0, 1))
	b.refuse(RuleAttemptInOrder, attempted(0, 1))
	b.refuse(RuleAttemptInOrder, attempted(0, 2))
	b.accept(retrying(0, 1))
	b.refuse(RuleAttemptInOrder, attempted(0, 1))
	b.refuse(RuleAttemptInOrder, attempted(0, 3))
	b.accept(attempted(0, 2), completed(0, 2, "r"))
	b.refuse(RuleNothingAfterCompleted, attempted(0, 3))
	for _, n := range []uint32{1, 2, 3, 4294967295} {
		b.refuse(RuleStartedRequiresScheduled, attempted(n, 1))
	}
	b.refuse(RuleStartedRequiresScheduled, InvokeStarted{Promise: eid, Attempt: 1})
	b.refuse(RuleStartedRequiresScheduled, InvokeStarted{Attempt: 1})
	unlessOpen(t, attempted(0, 1))
}

// Attempts start while the program waits, and none starts after a cancel (R7).
func TestInvokeStartedWhileNotRunning(t *testing.T) {
	b := started(t, scheduled(0), scheduled(1), awaiting(AwaitAll, 0, 1))
	b.accept(attempted(0, 1), CancelRequested{})
	b.refuse(RuleNoAttemptInCancelling, attempted(1, 1))
	b.refuse(RuleNoAttemptInCancelling, attempted(7, 1))
}
