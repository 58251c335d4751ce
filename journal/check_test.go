package journal

import (
	"reflect"
	"slices"
	"testing"

	"perdure/id"

	"pgregory.net/rapid"
)

// number makes entries of events.
func numbered(events ...Event) []Entry {
	entries := make([]Entry, len(events))
	for i, ev := range events {
		entries[i] = Entry{Seq: uint64(i), Event: ev}
	}
	return entries
}

type finding struct {
	Seq  uint64
	Rule string
}

func findings(found []Violation) []finding {
	var all []finding
	for _, v := range found {
		all = append(all, finding{v.Seq, v.Rule})
	}
	return all
}

// Check finds every broken rule of a journal, at the entry that breaks it.
func TestCheckFindsEverything(t *testing.T) {
	start := ExecutionStarted{}
	on := func(n ...uint32) Event { return awaiting(AwaitAny, n...) }
	for _, c := range []struct {
		name   string
		events []Event
		want   []finding
	}{
		{"an empty journal", nil, nil},
		{"nothing wrong", []Event{start, scheduled(0), attempted(0, 1), completed(0, 1, "r"), ExecutionCompleted{}}, nil},
		{"S-2", []Event{scheduled(0)}, []finding{{0, RuleStartsWithStarted}}},
		{"S-3 and S-4", []Event{start, ExecutionCompleted{}, ExecutionFailed{}, delivered("a", 1, "")},
			[]finding{{2, RuleSingleTerminal}, {2, RuleTerminalIsLast}, {2, RuleReturnsWhileRunning}, {3, RuleTerminalIsLast}}},
		{"S-5", []Event{start, ExecutionCancelled{}}, []finding{{1, RuleCancelledRequires}}},
		{"INV-6", []Event{start, scheduled(0), timer(0)}, []finding{{2, RulePromiseUnique}, {2, RuleNextChild}}},
		{"SE-1", []Event{start, timer(0), attempted(0, 1)}, []finding{{2, RuleStartedRequiresScheduled}}},
		{"SE-2", []Event{start, scheduled(0), completed(0, 1, "")},
			[]finding{{2, RuleCompletedRequiresStarted}, {2, RuleCompletesOpenAttempt}}},
		{"SE-3", []Event{start, scheduled(0), retrying(0, 1)},
			[]finding{{2, RuleRetryingRequiresStarted}, {2, RuleRetriesOpenAttempt}}},
		{"SE-4 started", []Event{start, scheduled(0), attempted(0, 1), completed(0, 1, ""), attempted(0, 1)},
			[]finding{{4, RuleNothingAfterCompleted}}},
		{"SE-4 retrying", []Event{start, scheduled(0), attempted(0, 1), completed(0, 1, ""), retrying(0, 1)},
			[]finding{{4, RuleNothingAfterCompleted}, {4, RuleRetriesOpenAttempt}}},
		{"SE-5", []Event{start, InvokeScheduled{Promise: kid(0), Invoke: InvokeStep, RetryPolicy: "once"},
			attempted(0, 1), retrying(0, 1), attempted(0, 2), retrying(0, 2)}, []finding{{5, RuleRetryBounded}}},
		{"CF-1", []Event{start, scheduled(0), TimerFired{kid(0)}}, []finding{{2, RuleFiredRequiresScheduled}}},
		{"CF-2", []Event{start, delivered("a", 1, "x"), received(0, "a", 1, "y")}, []finding{{2, RuleReceivedRequiresDelivered}}},
		{"CF-3", []Event{start, delivered("a", 1, "x"), received(0, "a", 1, "x"), received(1, "a", 1, "x")},
			[]finding{{3, RuleSignalConsumedOnce}, {3, RuleSignalFIFO}}},
		{"CF-4", []Event{start, ExecutionAwaiting{On: []id.PromiseID{kid(0), kid(1)}, Wait: AwaitSignal, Signal: "a"}},
			[]finding{{1, RuleAwaitSignalConsistent}}},
		{"JS-1", []Event{start, scheduled(0), submitted(1, 0)}, []finding{{2, RuleSubmitRequiresCreated}}},
		{"JS-2", []Event{start, JoinSetCreated{set(0)}, scheduled(1), scheduled(2), submitted(0, 1), attempted(1, 1),
			completed(1, 1, ""), awaited(0, 1, ""), submitted(0, 2)}, []finding{{8, RuleNoSubmitAfterAwait}}},
		{"JS-3, JS-4, JS-6", []Event{start, JoinSetCreated{set(0)}, scheduled(1), awaited(0, 1, "")},
			[]finding{{3, RuleAwaitedRequiresMember}, {3, RuleAwaitedRequiresCompleted}, {3, RuleConsumeBounded}}},
		{"JS-5", []Event{start, JoinSetCreated{set(0)}, scheduled(1), submitted(0, 1), scheduled(2), submitted(0, 2),
			attempted(1, 1), completed(1, 1, "r"), awaited(0, 1, "r"), awaited(0, 1, "r")}, []finding{{9, RuleNoDoubleConsume}}},
		{"JS-7", []Event{start, JoinSetCreated{set(0)}, JoinSetCreated{set(1)}, scheduled(2), submitted(0, 2), submitted(1, 2)},
			[]finding{{5, RuleSingleOwner}}},
		{"R1", []Event{start, timer(0), on(0), ExecutionFailed{}}, []finding{{3, RuleReturnsWhileRunning}}},
		{"R2", []Event{start, CancelRequested{}, CancelRequested{}}, []finding{{2, RuleCancelRequestedOnce}}},
		{"R4", []Event{start, timer(1)}, []finding{{1, RuleNextChild}}},
		{"R4 of a receipt", []Event{start, delivered("a", 1, ""), received(1, "a", 1, "")}, []finding{{2, RuleNextChild}}},
		{"R5 skipped", []Event{start, scheduled(0), attempted(0, 2)}, []finding{{2, RuleAttemptInOrder}}},
		{"R5 still open", []Event{start, scheduled(0), attempted(0, 1), attempted(0, 2)}, []finding{{3, RuleAttemptInOrder}}},
		{"R7", []Event{start, scheduled(0), scheduled(1), attempted(1, 1), CancelRequested{}, attempted(0, 1), retrying(1, 1)},
			[]finding{{5, RuleNoAttemptInCancelling}, {6, RuleNoAttemptInCancelling}}},
		{"R8", []Event{start, scheduled(0), attempted(0, 1), completed(0, 2, "")}, []finding{{3, RuleCompletesOpenAttempt}}},
		{"R9 and SE-3", []Event{start, scheduled(0), attempted(0, 1), retrying(0, 2)},
			[]finding{{3, RuleRetryingRequiresStarted}, {3, RuleRetriesOpenAttempt}}},
		{"R10", []Event{start, timer(0), TimerFired{kid(0)}, TimerFired{kid(0)}}, []finding{{3, RuleTimerFiresOnce}}},
		{"R11 blocked on work", []Event{start, delivered("a", 1, ""), timer(0), on(0), received(0, "a", 1, "")},
			[]finding{{4, RuleSignalWait}}},
		{"R11 answered twice", []Event{start, awaitingSignal(0, "a"), delivered("a", 1, ""), delivered("a", 2, ""),
			received(0, "a", 1, ""), received(0, "a", 2, "")}, []finding{{5, RuleSignalWait}}},
		{"R11 takes the next child", []Event{start, awaitingSignal(1, "a")}, []finding{{1, RuleSignalWait}}},
		{"R12", []Event{start, JoinSetCreated{set(0)}, on(0)}, []finding{{2, RuleWaitable}}},
		{"R12 in order", []Event{start, timer(0), timer(1), on(1, 0)}, []finding{{3, RuleWaitable}}},
		{"R12 on nothing", []Event{start, on()}, []finding{{1, RuleWaitable}}},
		{"R13", []Event{start, timer(0), TimerFired{kid(0)}, on(0)}, []finding{{3, RuleNeedlessWait}}},
		{"R13 of a signal", []Event{start, delivered("a", 1, ""), awaitingSignal(0, "a")}, []finding{{2, RuleNeedlessWait}}},
		{"R14", []Event{start, JoinSetCreated{set(1)}}, []finding{{1, RuleJoinSetNextChild}}},
		{"R15 no invocation", []Event{start, JoinSetCreated{set(0)}, timer(1), submitted(0, 1)}, []finding{{3, RuleSubmitOnce}}},
		{"R15 twice", []Event{start, JoinSetCreated{set(0)}, scheduled(1), submitted(0, 1), submitted(0, 1)},
			[]finding{{4, RuleSubmitOnce}}},
		{"R16", []Event{start, JoinSetCreated{set(0)}, scheduled(1), submitted(0, 1), attempted(1, 1), completed(1, 1, "r"),
			awaited(0, 1, "s")}, []finding{{6, RuleConsumedResult}}},
		{"K5", []Event{start, start}, []finding{{1, RuleStartedOnce}}},
		{"K8", []Event{start, CancelRequested{}, timer(0)}, []finding{{2, RuleCancellingAdmit}}},
		{"K9 blocked", []Event{start, timer(0), on(0), timer(1)}, []finding{{3, RuleBlocked}}},
		{"K9 resumed", []Event{start, ExecutionResumed{}, timer(0), on(0), ExecutionResumed{}},
			[]finding{{1, RuleResumable}, {4, RuleResumable}}},
		{"K12", []Event{start, delivered("a", 2, "")}, []finding{{1, RuleDeliveryID}}},
		{"K13", []Event{start, delivered("a", 1, ""), delivered("a", 2, ""), received(0, "a", 2, "")}, []finding{{3, RuleSignalFIFO}}},
		{"K15", []Event{start, nil, InvokeScheduled{Promise: kid(0), Invoke: 9}, awaiting(9, 0)},
			[]finding{{1, RuleVocabulary}, {2, RuleVocabulary}, {3, RuleVocabulary}}},
	} {
		if found := findings(Check(eid, numbered(c.events...), WithRetryBound(testBound))); !reflect.DeepEqual(found, c.want) {
			t.Errorf("%s:\n%v, want\n%v", c.name, found, c.want)
		}
	}
}

func TestCheckFindsWrongNumbers(t *testing.T) {
	entries := numbered(ExecutionStarted{}, timer(0), timer(1))
	entries[1].Seq, entries[2].Seq = 2, 1
	want := []finding{{1, RuleSequence}, {2, RuleSequence}}
	if found := findings(Check(eid, entries)); !reflect.DeepEqual(found, want) {
		t.Errorf("%v, want %v", found, want)
	}
}

// Of any list of entries whatever, Check's first finding is at the entry that State refuses first, and there
// is none if State takes them all.
func TestCheckBeginsWhereStateRefuses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opts := []Option{WithRetryBound(testBound)}
		guide := New(eid, opts...)
		var entries []Entry
		for range 2 + even(t, 30) {
			e := Entry{Seq: uint64(len(entries)), Event: drawEvent(t, guide)}
			if oneIn(t, 60) {
				e.Event = nil
			}
			if oneIn(t, 60) {
				e.Seq++
			}
			_ = guide.Append(guide.NextSeq(), e.Event)
			entries = append(entries, e)
		}
		s := New(eid, opts...)
		refused := slices.IndexFunc(entries, func(e Entry) bool { return s.Append(e.Seq, e.Event) != nil })
		found := Check(eid, entries, opts...)
		switch {
		case refused < 0 && len(found) > 0:
			t.Fatalf("State took all of %#v, Check finds %v", entries, found)
		case refused >= 0 && (len(found) == 0 || found[0].Seq != uint64(refused)):
			t.Fatalf("State refused entry %d of %#v, Check finds %v", refused, entries, found)
		}
		if _, err := NewReplay(eid, entries, opts...); (err != nil) != (refused >= 0) {
			t.Fatalf("State refused entry %d, the replay says %v", refused, err)
		}
	})
}
