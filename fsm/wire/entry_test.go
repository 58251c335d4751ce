package wire

import (
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/id"
	"perdure/journal"
	"perdure/recovery"
)

// DecodeEntry reads back every kind of event in the API's form.
func TestEntryComesBack(t *testing.T) {
	value := recovery.AppendOutcome(nil, recovery.Outcome{Data: []byte("v")})
	failure := recovery.AppendOutcome(nil, recovery.Outcome{Failure: &recovery.Failure{
		Type: "t", Message: "m", Details: []byte{1, 2}, NonRetryable: true}})
	events := []journal.Event{
		journal.ExecutionStarted{ComponentDigest: "d", Input: []byte("in"), Parent: "p:0", IdempotencyKey: "k"},
		journal.ExecutionCompleted{Result: []byte("r")},
		journal.ExecutionFailed{Error: failure},
		journal.CancelRequested{Reason: "why"},
		journal.ExecutionCancelled{Reason: "so"},
		journal.InvokeScheduled{Promise: "e:0", Invoke: journal.InvokeSend, Function: "f", Input: []byte("in"), RetryPolicy: "attempts=3"},
		journal.InvokeStarted{Promise: "e:0", Attempt: 4},
		journal.InvokeCompleted{Promise: "e:0", Result: value, Attempt: 4},
		journal.InvokeCompleted{Promise: "e:0", Result: failure, Attempt: 4},
		journal.InvokeRetrying{Promise: "e:0", FailedAttempt: 3, Error: failure, RetryAt: 77},
		journal.RandomGenerated{Promise: "e:1", Value: []byte{0, 255}},
		journal.TimeRecorded{Promise: "e:2", Time: -5},
		journal.TimerScheduled{Promise: "e:3", Duration: 9, FireAt: 19},
		journal.TimerFired{Promise: "e:3"},
		journal.SignalDelivered{Name: "s", Payload: failure, DeliveryID: 2},
		journal.SignalReceived{Promise: "e:4", Name: "s", Payload: value, DeliveryID: 2},
		journal.ExecutionAwaiting{On: []id.PromiseID{"e:3", "e:5"}, Wait: journal.AwaitAny},
		journal.ExecutionAwaiting{On: []id.PromiseID{"e:4"}, Wait: journal.AwaitSignal, Signal: "s"},
		journal.ExecutionResumed{},
		journal.JoinSetCreated{Set: "e:6"},
		journal.JoinSetSubmitted{Set: "e:6", Promise: "e:0"},
		journal.JoinSetAwaited{Set: "e:6", Promise: "e:0", Result: value},
	}
	kinds := map[journal.Kind]bool{}
	for seq, ev := range events {
		kinds[ev.Kind()] = true
		want := journal.Entry{Seq: uint64(seq), Time: int64(1000 + seq), Event: ev}
		raw, err := proto.Marshal(EncodeEntry(want))
		if err != nil {
			t.Fatal(err)
		}
		w := &perdurev1.JournalEntry{}
		if err := proto.Unmarshal(raw, w); err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeEntry(w); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v comes back as %+v, %v", want, got, err)
		}
	}
	if len(kinds) != 20 {
		t.Errorf("%d kinds of events, there are 20", len(kinds))
	}
	for _, w := range []*perdurev1.JournalEntry{nil, {}, {Event: &perdurev1.Event{}}} {
		if got, err := DecodeEntry(w); err == nil {
			t.Errorf("%v is read as %+v", w, got)
		}
	}
}
