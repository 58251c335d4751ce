package journal

import "testing"

func TestInvokeRetrying(t *testing.T) {
	b := started(t, scheduled(0), timer(1), scheduled(2))
	b.refuse(RuleRetryingRequiresStarted, retrying(0, 1))
	b.refuse(RuleRetryingRequiresStarted, retrying(1, 1))
	b.refuse(RuleRetryingRequiresStarted, retrying(9, 1))
	b.accept(attempted(0, 1))
	b.refuse(RuleRetriesOpenAttempt, retrying(0, 2))
	b.refuse(RuleRetriesOpenAttempt, retrying(0, 0))
	b.accept(retrying(0, 1))
	b.refuse(RuleRetriesOpenAttempt, retrying(0, 1))
	b.refuse(RuleRetriesOpenAttempt, retrying(0, 2))
	b.accept(attempted(0, 2), completed(0, 2, "r"))
	b.refuse(RuleNothingAfterCompleted, retrying(0, 2))
	unlessOpen(t, retrying(0, 1))
}

// Three retries unless the policy says otherwise, hence attempts 1 to 4 (K4, SE-5).
func TestInvokeRetryingBound(t *testing.T) {
	for policy, bound := range map[string]uint32{"p": 3, "": 3, "never": 0, "once": 1, "negative": 0} {
		b := started(t, InvokeScheduled{Promise: kid(0), Invoke: InvokeStep, RetryPolicy: policy})
		if info, _ := b.state.Invoke(kid(0)); info.Bound != bound {
			t.Errorf("policy %q allows %d retries, want %d", policy, info.Bound, bound)
		}
		for attempt := uint32(1); attempt <= bound; attempt++ {
			b.accept(attempted(0, attempt), retrying(0, attempt))
		}
		b.accept(attempted(0, bound+1))
		b.refuse(RuleRetryBounded, retrying(0, bound+1))
		b.accept(completed(0, bound+1, "gave up"))
	}
	b := started(t, InvokeScheduled{Promise: kid(0), Invoke: InvokeStep, RetryPolicy: "forever"})
	if info, _ := b.state.Invoke(kid(0)); info.Bound != 1<<32-2 {
		t.Errorf("an unbounded policy allows %d retries", info.Bound)
	}
	plain := New(eid)
	for seq, ev := range []Event{ExecutionStarted{}, InvokeScheduled{Promise: kid(0), Invoke: InvokeHTTP, RetryPolicy: "never"}} {
		if err := plain.Append(uint64(seq), ev); err != nil {
			t.Fatal(err)
		}
	}
	if info, _ := plain.Invoke(kid(0)); info.Bound != DefaultRetryBound {
		t.Errorf("without an option %d retries", info.Bound)
	}
}

func TestInvokeRetryingWhileNotRunning(t *testing.T) {
	b := started(t, scheduled(0), attempted(0, 1), awaiting(AwaitAny, 0))
	b.accept(retrying(0, 1), attempted(0, 2), CancelRequested{})
	b.refuse(RuleNoAttemptInCancelling, retrying(0, 2))
}
