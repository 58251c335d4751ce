package journal

import (
	"reflect"
	"testing"
)

// The numbers are stored: they stay for good.
func TestKindsArePinned(t *testing.T) {
	pinned := []Event{nil, ExecutionStarted{}, ExecutionCompleted{}, ExecutionFailed{}, CancelRequested{}, ExecutionCancelled{},
		InvokeScheduled{}, InvokeStarted{}, InvokeCompleted{}, InvokeRetrying{}, RandomGenerated{}, TimeRecorded{},
		TimerScheduled{}, TimerFired{}, SignalDelivered{}, SignalReceived{}, ExecutionAwaiting{}, ExecutionResumed{},
		JoinSetCreated{}, JoinSetSubmitted{}, JoinSetAwaited{}}
	if len(pinned) != 21 || len(kinds) != 21 {
		t.Fatalf("%d and %d kinds", len(pinned)-1, len(kinds)-1)
	}
	for number, ev := range pinned {
		k := Kind(number)
		if k.Valid() != (ev != nil) {
			t.Errorf("%v is valid: %v", k, k.Valid())
		}
		if ev == nil {
			continue
		}
		if ev.Kind() != k || k.String() != reflect.TypeOf(ev).Name() {
			t.Errorf("%T has kind %d and kind %d is %v", ev, ev.Kind(), k, k)
		}
	}
	if Kind(0).String() != "Kind(0)" || Kind(21).String() != "Kind(21)" || Kind(21).Valid() {
		t.Error("numbers beyond the vocabulary have names")
	}
}

func TestNamesArePinned(t *testing.T) {
	names := func(n int, name func(int) string) (all []string) {
		for i := range n {
			all = append(all, name(i))
		}
		return all
	}
	for _, c := range []struct{ got, want []string }{
		{names(7, func(i int) string { return InvokeKind(i).String() }),
			[]string{"InvokeKind(0)", "Function", "Http", "Step", "Send", "Signal", "InvokeKind(6)"}},
		{names(7, func(i int) string { return AwaitKind(i).String() }),
			[]string{"AwaitKind(0)", "Single", "Any", "All", "AwaitSignal", "AwaitJoinSet", "AwaitKind(6)"}},
		{names(8, func(i int) string { return Status(i).String() }),
			[]string{"None", "Running", "Blocked", "Cancelling", "Completed", "Failed", "Cancelled", "Status(7)"}},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
	for s := range Status(8) {
		if terminal := s == StatusCompleted || s == StatusFailed || s == StatusCancelled; s.Terminal() != terminal {
			t.Errorf("%v is terminal: %v", s, s.Terminal())
		}
	}
	if JoinSetID("a:0").String() != "a:0" {
		t.Error("a join set's text is its identifier")
	}
}
