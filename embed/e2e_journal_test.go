package embed_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/id"
	"perdure/journal"
	"perdure/recovery"
)

// journal reads a whole journal through the API.
func (w *world) journal(eid string) []*perdurev1.JournalEntry {
	w.t.Helper()
	var all []*perdurev1.JournalEntry
	for e, err := range w.Journal(soon(w.t), eid) {
		if err != nil {
			w.t.Fatalf("journal of %s: %v", eid, err)
		}
		all = append(all, e)
	}
	return all
}

// validJournal reads a journal and checks it by every rule. It returns how many events of each kind it has.
func (w *world) validJournal(eid string) map[string]int {
	w.t.Helper()
	entries := w.journal(eid)
	rules := make([]journal.Entry, len(entries))
	count := map[string]int{}
	for i, e := range entries {
		ev, err := eventOf(e.GetEvent())
		if err != nil {
			w.t.Fatalf("journal of %s, entry %d: %v", eid, i, err)
		}
		rules[i] = journal.Entry{Seq: e.GetSeq(), Time: e.GetTimeMs(), Event: ev}
		count[ev.Kind().String()]++
	}
	for _, v := range journal.Check(id.PromiseID(eid), rules, journal.WithRetryBound(retries)) {
		w.t.Errorf("journal of %s: %v", eid, &v)
	}
	if e := w.describe(eid); int(e.GetJournalEvents()) < len(entries) {
		w.t.Errorf("%s is said to have %d events, its journal has %d", eid, e.GetJournalEvents(), len(entries))
	}
	return count
}

// validJournals checks every journal of the namespace and returns them by execution.
func (w *world) validJournals() map[string][]*perdurev1.JournalEntry {
	w.t.Helper()
	all := map[string][]*perdurev1.JournalEntry{}
	for _, e := range w.list(client.ListOptions{}) {
		w.validJournal(e.GetId())
		all[e.GetId()] = w.journal(e.GetId())
	}
	return all
}

// sameJournals compares two readings of journals.
func sameJournals(t *testing.T, before, after map[string][]*perdurev1.JournalEntry) {
	t.Helper()
	if len(before) != len(after) {
		t.Errorf("%d executions before, %d after", len(before), len(after))
	}
	for eid, want := range before {
		got := after[eid]
		if !slices.EqualFunc(want, got, func(a, b *perdurev1.JournalEntry) bool { return proto.Equal(a, b) }) {
			t.Errorf("the journal of %s was %v and is %v", eid, want, got)
		}
	}
}

// retries reads the number of retries from a recorded policy, "attempts=N …".
func retries(policy string) int {
	first, _, _ := strings.Cut(policy, " ")
	n, err := strconv.Atoi(strings.TrimPrefix(first, "attempts="))
	if err != nil {
		return -1
	}
	return n - 1
}

func outcomeOf(o *perdurev1.Outcome) []byte {
	if f := o.GetFailure(); f != nil {
		return failureOf(f)
	}
	return recovery.AppendOutcome(nil, recovery.Outcome{Data: o.GetValue()})
}

func failureOf(f *perdurev1.Failure) []byte {
	return recovery.AppendOutcome(nil, recovery.Outcome{Failure: &recovery.Failure{
		Type: f.GetType(), Message: f.GetMessage(), Details: f.GetDetails(), NonRetryable: f.GetNonRetryable()}})
}

// eventOf turns an event of the API back into the rules' own.
func eventOf(e *perdurev1.Event) (journal.Event, error) {
	p := func(s string) id.PromiseID { return id.PromiseID(s) }
	switch k := e.GetKind().(type) {
	case *perdurev1.Event_ExecutionStarted:
		x := k.ExecutionStarted
		return journal.ExecutionStarted{ComponentDigest: x.GetComponentDigest(), Input: x.GetInput(), Parent: p(x.GetParentId()), IdempotencyKey: x.GetIdempotencyKey()}, nil
	case *perdurev1.Event_ExecutionCompleted:
		return journal.ExecutionCompleted{Result: k.ExecutionCompleted.GetResult()}, nil
	case *perdurev1.Event_ExecutionFailed:
		return journal.ExecutionFailed{Error: failureOf(k.ExecutionFailed.GetError())}, nil
	case *perdurev1.Event_CancelRequested:
		return journal.CancelRequested{Reason: k.CancelRequested.GetReason()}, nil
	case *perdurev1.Event_ExecutionCancelled:
		return journal.ExecutionCancelled{Reason: k.ExecutionCancelled.GetReason()}, nil
	case *perdurev1.Event_InvokeScheduled:
		x := k.InvokeScheduled
		return journal.InvokeScheduled{Promise: p(x.GetPromiseId()), Invoke: journal.InvokeKind(x.GetKind()), Function: x.GetFunctionName(),
			Input: x.GetInput(), RetryPolicy: x.GetRetryPolicy()}, nil
	case *perdurev1.Event_InvokeStarted:
		return journal.InvokeStarted{Promise: p(k.InvokeStarted.GetPromiseId()), Attempt: k.InvokeStarted.GetAttempt()}, nil
	case *perdurev1.Event_InvokeCompleted:
		x := k.InvokeCompleted
		return journal.InvokeCompleted{Promise: p(x.GetPromiseId()), Result: outcomeOf(x.GetResult()), Attempt: x.GetAttempt()}, nil
	case *perdurev1.Event_InvokeRetrying:
		x := k.InvokeRetrying
		return journal.InvokeRetrying{Promise: p(x.GetPromiseId()), FailedAttempt: x.GetFailedAttempt(), Error: failureOf(x.GetError()), RetryAt: x.GetRetryAtMs()}, nil
	case *perdurev1.Event_RandomGenerated:
		return journal.RandomGenerated{Promise: p(k.RandomGenerated.GetPromiseId()), Value: k.RandomGenerated.GetValue()}, nil
	case *perdurev1.Event_TimeRecorded:
		return journal.TimeRecorded{Promise: p(k.TimeRecorded.GetPromiseId()), Time: k.TimeRecorded.GetTimeMs()}, nil
	case *perdurev1.Event_TimerScheduled:
		x := k.TimerScheduled
		return journal.TimerScheduled{Promise: p(x.GetPromiseId()), Duration: x.GetDurationMs(), FireAt: x.GetFireAtMs()}, nil
	case *perdurev1.Event_TimerFired:
		return journal.TimerFired{Promise: p(k.TimerFired.GetPromiseId())}, nil
	case *perdurev1.Event_SignalDelivered:
		x := k.SignalDelivered
		return journal.SignalDelivered{Name: x.GetName(), Payload: outcomeOf(x.GetPayload()), DeliveryID: x.GetDeliveryId()}, nil
	case *perdurev1.Event_SignalReceived:
		x := k.SignalReceived
		return journal.SignalReceived{Promise: p(x.GetPromiseId()), Name: x.GetName(), Payload: outcomeOf(x.GetPayload()), DeliveryID: x.GetDeliveryId()}, nil
	case *perdurev1.Event_ExecutionAwaiting:
		x := k.ExecutionAwaiting
		on := make([]id.PromiseID, len(x.GetWaitingOn()))
		for i, s := range x.GetWaitingOn() {
			on[i] = p(s)
		}
		return journal.ExecutionAwaiting{On: on, Wait: journal.AwaitKind(x.GetKind()), Signal: x.GetSignalName()}, nil
	case *perdurev1.Event_ExecutionResumed:
		return journal.ExecutionResumed{}, nil
	case *perdurev1.Event_JoinSetCreated:
		return journal.JoinSetCreated{Set: journal.JoinSetID(k.JoinSetCreated.GetJoinSetId())}, nil
	case *perdurev1.Event_JoinSetSubmitted:
		x := k.JoinSetSubmitted
		return journal.JoinSetSubmitted{Set: journal.JoinSetID(x.GetJoinSetId()), Promise: p(x.GetPromiseId())}, nil
	case *perdurev1.Event_JoinSetAwaited:
		x := k.JoinSetAwaited
		return journal.JoinSetAwaited{Set: journal.JoinSetID(x.GetJoinSetId()), Promise: p(x.GetPromiseId()), Result: outcomeOf(x.GetResult())}, nil
	}
	return nil, fmt.Errorf("an event of the unknown kind %T", e.GetKind())
}
