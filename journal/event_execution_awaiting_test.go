package journal

import (
	"testing"

	"perdure/id"
)

// A wait names only operations of this journal that resolve (R12).
func TestExecutionAwaitingMembers(t *testing.T) {
	history := []Event{scheduled(0), timer(1), RandomGenerated{Promise: kid(2)}, TimeRecorded{Promise: kid(3)},
		JoinSetCreated{Set: set(4)}, delivered("a", 1, "x"), received(5, "a", 1, "x"), scheduled(6)}
	b := started(t, history...)
	for _, ev := range []Event{
		awaiting(AwaitSingle), awaiting(AwaitAny), awaiting(AwaitAll),
		awaiting(AwaitSingle, 0, 1),
		awaiting(AwaitSingle, 2), awaiting(AwaitAny, 3), awaiting(AwaitAll, 0, 4), awaiting(AwaitAny, 0, 5),
		awaiting(AwaitSingle, 7), awaiting(AwaitAll, 0, 9),
		awaiting(AwaitAny, 1, 0), awaiting(AwaitAll, 0, 0),
		ExecutionAwaiting{On: []id.PromiseID{eid}, Wait: AwaitSingle},
		ExecutionAwaiting{On: []id.PromiseID{""}, Wait: AwaitAny},
		ExecutionAwaiting{On: []id.PromiseID{"order-4:0"}, Wait: AwaitAll},
	} {
		b.refuse(RuleWaitable, ev)
	}
	b.refuse(RuleVocabulary, awaiting(0, 0))
	b.refuse(RuleVocabulary, awaiting(6, 0))
	b.refuse(RuleVocabulary, ExecutionAwaiting{On: []id.PromiseID{kid(0)}, Wait: AwaitSingle, Signal: "a"})
	for _, ev := range []Event{awaiting(AwaitSingle, 1), awaiting(AwaitAny, 0, 1, 6), awaiting(AwaitAll, 0, 6)} {
		started(t, history...).accept(ev)
	}
	unlessRunning(t, awaiting(AwaitSingle, 0))
}

// Blocked means that a result is missing (R13).
func TestExecutionAwaitingNeedless(t *testing.T) {
	b := started(t, scheduled(0), attempted(0, 1), completed(0, 1, "r"), scheduled(1), timer(2))
	b.refuse(RuleNeedlessWait, awaiting(AwaitSingle, 0))
	b.refuse(RuleNeedlessWait, awaiting(AwaitAny, 0, 1))
	b.refuse(RuleNeedlessWait, awaiting(AwaitAll, 0))
	b.accept(awaiting(AwaitAll, 0, 1, 2), TimerFired{Promise: kid(2)})
	b.refuse(RuleResumable, ExecutionResumed{})
	b.accept(attempted(1, 1), completed(1, 1, "r"), ExecutionResumed{})
	b.refuse(RuleNeedlessWait, awaiting(AwaitAll, 0, 1, 2))
}

// A signal wait takes its number, is on that alone (CF-4, R11), and finds nothing buffered (R13).
func TestExecutionAwaitingSignal(t *testing.T) {
	b := started(t, scheduled(0), delivered("a", 1, "x"))
	b.refuse(RuleAwaitSignalConsistent, ExecutionAwaiting{Wait: AwaitSignal, Signal: "b"})
	b.refuse(RuleAwaitSignalConsistent, ExecutionAwaiting{On: []id.PromiseID{kid(1), kid(2)}, Wait: AwaitSignal, Signal: "b"})
	b.refuse(RuleSignalWait, awaitingSignal(0, "b"))
	b.refuse(RuleSignalWait, awaitingSignal(2, "b"))
	b.refuse(RuleNeedlessWait, awaitingSignal(1, "a"))
	for _, on := range [][]id.PromiseID{nil, {kid(1)}} {
		if !b.state.Satisfied(AwaitSignal, on, "a") || b.state.Satisfied(AwaitSignal, on, "b") {
			t.Errorf("on %v: a buffered signal satisfies its own wait only", on)
		}
	}
	b.accept(awaitingSignal(1, "b"))
	if b.state.NextChild() != 2 {
		t.Errorf("next child %d", b.state.NextChild())
	}
	b.refuse(RuleBlocked, awaitingSignal(2, "c"))
	b.accept(delivered("b", 1, ""), received(1, "b", 1, ""), ExecutionResumed{})
	b.refuse(RuleWaitable, awaiting(AwaitSingle, 1))
	b.accept(awaitingSignal(2, ""))
}

// Resolving a promise counts for the wait that names it, not for a later one it is not part of.
func TestExecutionAwaitingCountsItsOwnMembers(t *testing.T) {
	b := started(t, timer(0), timer(1), timer(2), awaiting(AwaitAny, 0, 1), TimerFired{Promise: kid(0)}, ExecutionResumed{})
	b.accept(awaiting(AwaitSingle, 2), TimerFired{Promise: kid(1)})
	b.refuse(RuleResumable, ExecutionResumed{})
	b.accept(TimerFired{Promise: kid(2)}, ExecutionResumed{})
}

// A wait for a join set names one member and ends with any, whose result was not consumed. Its cost and its
// bytes do not depend on how many there are.
func TestExecutionAwaitingJoinSet(t *testing.T) {
	wait := func(s, p uint32) Event {
		return ExecutionAwaiting{On: []id.PromiseID{kid(p)}, Wait: AwaitJoinSet, Set: set(s)}
	}
	b := started(t, JoinSetCreated{Set: set(0)}, JoinSetCreated{Set: set(1)}, scheduled(2), scheduled(3), scheduled(4), scheduled(5))
	for n := uint32(2); n <= 5; n++ {
		b.accept(attempted(n, 1))
	}
	b.refuse(RuleWaitable, wait(0, 2))
	b.accept(completed(4, 1, "r4"), submitted(0, 2), submitted(0, 3), submitted(0, 4), submitted(1, 5))
	b.refuse(RuleWaitable, wait(9, 2))
	b.refuse(RuleWaitable, wait(2, 2))
	b.refuse(RuleWaitable, wait(0, 5))
	b.refuse(RuleWaitable, ExecutionAwaiting{Wait: AwaitJoinSet, Set: set(0)})
	b.refuse(RuleWaitable, ExecutionAwaiting{On: []id.PromiseID{kid(2), kid(3)}, Wait: AwaitJoinSet, Set: set(0)})
	b.refuse(RuleVocabulary, ExecutionAwaiting{On: []id.PromiseID{kid(2)}, Wait: AwaitJoinSet, Set: set(0), Signal: "s"})
	b.refuse(RuleVocabulary, ExecutionAwaiting{On: []id.PromiseID{kid(2)}, Wait: AwaitAny, Set: set(0)})
	b.refuse(RuleNeedlessWait, wait(0, 2)) // the result of 4, recorded before its submission
	b.accept(awaited(0, 4, "r4"))
	b.refuse(RuleWaitable, wait(0, 4))
	b.accept(wait(0, 2))
	b.refuse(RuleResumable, ExecutionResumed{})
	b.accept(completed(5, 1, "")) // a member of the other set
	b.refuse(RuleResumable, ExecutionResumed{})
	b.accept(completed(3, 1, "r3"), ExecutionResumed{}) // not the one that the wait names
	b.refuse(RuleNeedlessWait, wait(0, 2))
	b.accept(awaited(0, 3, "r3"), wait(0, 2), completed(2, 1, "r2"), ExecutionResumed{}, awaited(0, 2, "r2"))
	b.refuse(RuleWaitable, wait(0, 2))
	unlessRunning(t, wait(0, 1))
}
