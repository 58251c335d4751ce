package main

import (
	"bufio"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	perdurev1 "perdure/api/perdure/v1"
)

// testApp is an app that only prints.
func testApp(w io.Writer) *app {
	return &app{out: bufio.NewWriter(w), now: func() time.Time { return fakeNow }, zone: time.UTC}
}

// everyEvent is a journal, not a legal one, that has each of the 20 kinds, and some in two forms.
func everyEvent() []*perdurev1.JournalEntry {
	type e = perdurev1.Event
	value := func(s string) *perdurev1.Outcome { return valueOf([]byte(s)) }
	events := []*e{
		{Kind: &perdurev1.Event_ExecutionStarted{ExecutionStarted: &perdurev1.ExecutionStarted{ComponentDigest: "sha256:beef", Input: []byte(`{"amount": 5}`), ParentId: "cart-7:3", IdempotencyKey: "order-42"}}},
		{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{PromiseId: "order-42:0", Kind: perdurev1.InvokeKind_INVOKE_KIND_STEP, FunctionName: "reserve", RetryPolicy: "attempts=3"}}},
		{Kind: &perdurev1.Event_InvokeStarted{InvokeStarted: &perdurev1.InvokeStarted{PromiseId: "order-42:0", Attempt: 1}}},
		{Kind: &perdurev1.Event_InvokeRetrying{InvokeRetrying: &perdurev1.InvokeRetrying{PromiseId: "order-42:0", FailedAttempt: 1, Error: &perdurev1.Failure{Type: "http", Message: "503"}, RetryAtMs: at(time.Minute)}}},
		{Kind: &perdurev1.Event_InvokeCompleted{InvokeCompleted: &perdurev1.InvokeCompleted{PromiseId: "order-42:0", Attempt: 2, Result: value(`{"reservation":"r-1"}`)}}},
		{Kind: &perdurev1.Event_RandomGenerated{RandomGenerated: &perdurev1.RandomGenerated{PromiseId: "order-42:1", Value: []byte{0xde, 0xad, 0xbe, 0xef}}}},
		{Kind: &perdurev1.Event_TimeRecorded{TimeRecorded: &perdurev1.TimeRecorded{PromiseId: "order-42:2", TimeMs: at(3 * time.Minute)}}},
		{Kind: &perdurev1.Event_TimerScheduled{TimerScheduled: &perdurev1.TimerScheduled{PromiseId: "order-42:3", DurationMs: 1500, FireAtMs: at(2 * time.Minute)}}},
		{Kind: &perdurev1.Event_ExecutionAwaiting{ExecutionAwaiting: &perdurev1.ExecutionAwaiting{WaitingOn: []string{"order-42:3"}, Kind: perdurev1.AwaitKind_AWAIT_KIND_SINGLE}}},
		{Kind: &perdurev1.Event_TimerFired{TimerFired: &perdurev1.TimerFired{PromiseId: "order-42:3"}}},
		{Kind: &perdurev1.Event_ExecutionResumed{ExecutionResumed: &perdurev1.ExecutionResumed{}}},
		{Kind: &perdurev1.Event_SignalDelivered{SignalDelivered: &perdurev1.SignalDelivered{Name: "approved", Payload: value("yes, \x1b[1mdo"), DeliveryId: 1}}},
		{Kind: &perdurev1.Event_SignalReceived{SignalReceived: &perdurev1.SignalReceived{PromiseId: "order-42:4", Name: "approved", Payload: failureOf("timeout", ""), DeliveryId: 1}}},
		{Kind: &perdurev1.Event_JoinSetCreated{JoinSetCreated: &perdurev1.JoinSetCreated{JoinSetId: "order-42:5"}}},
		{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{PromiseId: "order-42:6", Kind: perdurev1.InvokeKind_INVOKE_KIND_FUNCTION, FunctionName: "ship", Input: []byte(`"` + strings.Repeat("long ", 30) + `"`), RetryPolicy: "attempts=1"}}},
		{Kind: &perdurev1.Event_JoinSetSubmitted{JoinSetSubmitted: &perdurev1.JoinSetSubmitted{JoinSetId: "order-42:5", PromiseId: "order-42:6"}}},
		{Kind: &perdurev1.Event_JoinSetAwaited{JoinSetAwaited: &perdurev1.JoinSetAwaited{JoinSetId: "order-42:5", PromiseId: "order-42:6", Result: failureOf("lost", "the parcel is gone")}}},
		{Kind: &perdurev1.Event_ExecutionAwaiting{ExecutionAwaiting: &perdurev1.ExecutionAwaiting{WaitingOn: []string{"order-42:7", "order-42:8"}, Kind: perdurev1.AwaitKind_AWAIT_KIND_ANY}}},
		{Kind: &perdurev1.Event_ExecutionAwaiting{ExecutionAwaiting: &perdurev1.ExecutionAwaiting{WaitingOn: []string{"order-42:9"}, Kind: perdurev1.AwaitKind_AWAIT_KIND_SIGNAL, SignalName: "approved"}}},
		{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{PromiseId: "order-42:10", Kind: perdurev1.InvokeKind_INVOKE_KIND_SEND, FunctionName: "paid", Input: []byte("bill-7"), RetryPolicy: "attempts=1"}}},
		{Kind: &perdurev1.Event_InvokeCompleted{InvokeCompleted: &perdurev1.InvokeCompleted{PromiseId: "order-42:10", Attempt: 1, Result: failureOf("target_not_found", `no execution "bill-7" in namespace "default"`)}}},
		{Kind: &perdurev1.Event_CancelRequested{CancelRequested: &perdurev1.CancelRequested{Reason: "customer withdrew"}}},
		{Kind: &perdurev1.Event_ExecutionCancelled{ExecutionCancelled: &perdurev1.ExecutionCancelled{}}},
		{Kind: &perdurev1.Event_ExecutionFailed{ExecutionFailed: &perdurev1.ExecutionFailed{Error: &perdurev1.Failure{Type: "declined", Message: "no", NonRetryable: true, Details: []byte("\x00\x01")}}}},
		{Kind: &perdurev1.Event_ExecutionCompleted{ExecutionCompleted: &perdurev1.ExecutionCompleted{Result: []byte("true")}}},
		{},
	}
	entries := make([]*perdurev1.JournalEntry, len(events))
	for i, event := range events {
		entries[i] = &perdurev1.JournalEntry{Seq: uint64(i), TimeMs: at(3*time.Minute) + int64(i)*7, Event: event}
	}
	return entries
}

func TestJournal(t *testing.T) {
	s := shop()
	s.journals["order-42"] = everyEvent()
	s.add(&perdurev1.Execution{Id: "check", Function: "charge"})
	s.journals["check"] = everyEvent()[:1]
	sh := &shell{addr: s.serve(t)}
	sh.story(t, "journal",
		"# Every kind of event, for people and for programs.",
		"journal order-42",
		"journal order-42 --json",
		"# A part of it.",
		"journal order-42 --from 23",
		"journal order-42 --from 99",
		"journal missing",
		"journal",
		"# An execution whose id is that of a command.",
		"journal -- check",
	)
}

// A kind of event that is added to the wire needs a text here.
func TestEveryKindHasAText(t *testing.T) {
	kinds := (&perdurev1.Event{}).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
	shown := map[string]bool{}
	a := testApp(io.Discard)
	for _, entry := range everyEvent() {
		kind := eventKind(entry.Event)
		_, details := a.eventText(entry.Event)
		if kind != "Unknown" && strings.Contains(details, "does not know") {
			t.Errorf("%s has no text", kind)
		}
		shown[kind] = true
	}
	for i := range kinds.Len() {
		if name := string(kinds.Get(i).Message().Name()); !shown[name] {
			t.Errorf("%s is in no test", name)
		}
	}
}

// Every field of every message that is printed is of a kind that has a JSON form; a new one of another
// kind fails here and not on a user's screen.
func TestEveryFieldHasAForm(t *testing.T) {
	seen := map[protoreflect.FullName]bool{}
	var walk func(d protoreflect.MessageDescriptor)
	walk = func(d protoreflect.MessageDescriptor) {
		if seen[d.FullName()] {
			return
		}
		seen[d.FullName()] = true
		for i := range d.Fields().Len() {
			f := d.Fields().Get(i)
			if f.IsMap() {
				if f.MapValue().Kind() != protoreflect.StringKind {
					t.Errorf("%s: a map of %s", f.FullName(), f.MapValue().Kind())
				}
				continue
			}
			switch f.Kind() {
			case protoreflect.MessageKind:
				walk(f.Message())
			case protoreflect.BytesKind:
				if f.IsList() {
					t.Errorf("%s: a list of bytes", f.FullName())
				}
			case protoreflect.EnumKind, protoreflect.StringKind, protoreflect.BoolKind,
				protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Int32Kind, protoreflect.Int64Kind:
			default:
				t.Errorf("%s: %s", f.FullName(), f.Kind())
			}
		}
	}
	for _, m := range []protoreflect.ProtoMessage{&perdurev1.Execution{}, &perdurev1.ExecutionSummary{}, &perdurev1.JournalEntry{}, &perdurev1.Promise{}} {
		walk(m.ProtoReflect().Descriptor())
	}
}

func TestJournalCheck(t *testing.T) {
	sh := &shell{addr: "127.0.0.1:1"} // no node is asked
	started := `{"type": "ExecutionStarted", "component_digest": "d", "input": "", "parent_id": [], "idempotency_key": "k"}`
	sh.story(t, "journal_check",
		`<{"id": "good", "eid": [1], "journal": [], "append": {"seq": 0, "ts": 1, "event": `+started+`}}
{"id": "twice", "eid": [1], "journal": [{"ts": 0, "event": `+started+`}], "append": {"seq": 1, "ts": 1, "event": `+started+`}}
`,
		"journal check",
		"journal check now",
	)
}
