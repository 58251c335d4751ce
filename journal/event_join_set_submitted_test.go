package journal

import "testing"

func TestJoinSetSubmitted(t *testing.T) {
	b := started(t, JoinSetCreated{Set: set(0)}, JoinSetCreated{Set: set(1)},
		scheduled(2), scheduled(3), attempted(3, 1), completed(3, 1, "r"), timer(4), scheduled(5), scheduled(6))
	b.refuse(RuleSubmitRequiresCreated, submitted(7, 2))
	b.refuse(RuleSubmitRequiresCreated, submitted(2, 2))
	b.refuse(RuleSubmitRequiresCreated, JoinSetSubmitted{Promise: kid(2)})
	b.refuse(RuleSubmitOnce, submitted(0, 4))
	b.refuse(RuleSubmitOnce, submitted(0, 1))
	b.refuse(RuleSubmitOnce, submitted(0, 7))
	b.accept(submitted(0, 2), submitted(0, 3))
	b.refuse(RuleSubmitOnce, submitted(0, 2))
	b.refuse(RuleSingleOwner, submitted(1, 2))
	b.accept(awaited(0, 3, "r"))
	v := b.refuse(RuleNoSubmitAfterAwait, submitted(0, 5))
	if want := "execution \"order-42\", event 13: join set order-42:0 (JS-2 no_submit_after_await)"; v.Error() != want {
		t.Errorf("%s, want %s", v, want)
	}
	b.accept(submitted(1, 5), awaiting(AwaitAny, 2, 5))
	b.refuse(RuleBlocked, submitted(1, 6))
	unlessRunning(t, submitted(0, 1))
}

// A wait that names the members does not close the set (K11).
func TestJoinSetSubmittedAfterWait(t *testing.T) {
	started(t, JoinSetCreated{Set: set(0)}, scheduled(1), attempted(1, 1), submitted(0, 1), scheduled(2),
		awaiting(AwaitAny, 1), completed(1, 1, "r"), ExecutionResumed{}).accept(submitted(0, 2))
}
