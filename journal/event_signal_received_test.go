package journal

import "testing"

// A buffered signal is consumed at once, oldest first, and takes the next child number.
func TestSignalReceivedBuffered(t *testing.T) {
	b := started(t, delivered("a", 1, "x"), delivered("a", 2, "y"), delivered("b", 1, "z"))
	b.refuse(RuleNextChild, received(1, "a", 1, "x"))
	b.refuse(RuleReceivedRequiresDelivered, received(0, "a", 0, "x"))
	b.refuse(RuleReceivedRequiresDelivered, received(0, "a", 3, "x"))
	b.refuse(RuleReceivedRequiresDelivered, received(0, "c", 1, "x"))
	b.refuse(RuleReceivedRequiresDelivered, received(0, "a", 1, "y"))
	b.refuse(RuleReceivedRequiresDelivered, received(0, "a", 1, ""))
	b.refuse(RuleSignalFIFO, received(0, "a", 2, "y"))
	b.accept(received(0, "a", 1, "x"))
	b.refuse(RuleNextChild, received(0, "a", 2, "y"))
	b.refuse(RuleSignalConsumedOnce, received(1, "a", 1, "x"))
	if n, seq, ok := b.state.NextReceipt("a"); n != 2 || seq != 2 || !ok {
		t.Errorf("the next receipt is %d, delivered by entry %d, %v", n, seq, ok)
	}
	b.accept(received(1, "b", 1, "z"), received(2, "a", 2, "y"))
	b.refuse(RuleSignalConsumedOnce, received(3, "a", 2, "y"))
	if n, seq, ok := b.state.NextReceipt("a"); n != 0 || seq != 0 || ok {
		t.Errorf("the next receipt is %d, delivered by entry %d, %v", n, seq, ok)
	}
	if _, _, ok := b.state.NextReceipt("none"); ok {
		t.Error("a receipt of a name that never came")
	}
	refusedIn(t, received(0, "a", 1, "x"), map[Status]string{
		StatusNone:       RuleStartsWithStarted,
		StatusBlocked:    RuleSignalWait,
		StatusCancelling: RuleCancellingAdmit,
		StatusCompleted:  RuleTerminalIsLast,
		StatusFailed:     RuleTerminalIsLast,
		StatusCancelled:  RuleTerminalIsLast,
	})
}

// The answer to a blocked wait uses the number that the wait took, once (R11).
func TestSignalReceivedBlocked(t *testing.T) {
	b := started(t, delivered("b", 1, "z"), awaitingSignal(0, "a"))
	b.refuse(RuleReceivedRequiresDelivered, received(0, "a", 1, "x"))
	b.accept(delivered("a", 1, "x"), delivered("a", 2, "y"))
	b.refuse(RuleSignalWait, received(1, "a", 1, "x"))
	b.refuse(RuleSignalWait, received(0, "b", 1, "z"))
	b.refuse(RuleSignalFIFO, received(0, "a", 2, "y"))
	b.accept(received(0, "a", 1, "x"))
	b.refuse(RuleSignalWait, received(0, "a", 2, "y"))
	if b.state.Status() != StatusBlocked || b.state.NextChild() != 1 {
		t.Fatalf("answered: %v, next child %d", b.state.Status(), b.state.NextChild())
	}
	b.accept(ExecutionResumed{}, received(1, "a", 2, "y"))
	if b.state.NextChild() != 2 {
		t.Fatalf("next child %d", b.state.NextChild())
	}
}

// While blocked on anything else, no signal is received.
func TestSignalReceivedBlockedOnWork(t *testing.T) {
	b := started(t, delivered("a", 1, "x"), scheduled(0), awaiting(AwaitSingle, 0))
	b.refuse(RuleSignalWait, received(1, "a", 1, "x"))
	b.refuse(RuleSignalWait, received(0, "a", 1, "x"))
}
