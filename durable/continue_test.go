package durable

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/id"
)

// A refused ContinueAsNew is refused in the same way at every replay, and what the function did after it is
// its journal.
func TestRefusedContinueAsNewIsReplayed(t *testing.T) {
	for name, c := range map[string]struct {
		typ  string
		call func(ctx Context) error
		past func(f *fakeServer)
	}{
		"too large": {TypeTooLarge, func(ctx Context) error {
			return ContinueAsNew(ctx, strings.Repeat("x", id.MaxPayloadBytes))
		}, func(f *fakeServer) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.begin("e", "f", "", []byte("null"))
		}},
		"inside a critical section": {TypeEntity, func(ctx Context) error {
			if _, err := Lock(ctx, "room@1"); err != nil {
				return err
			}
			return ContinueAsNew(ctx, "again")
		}, func(f *fakeServer) {
			f.restore("e", "f", []*perdurev1.JournalEntry{
				{Event: &perdurev1.Event{Kind: &perdurev1.Event_ExecutionStarted{ExecutionStarted: &perdurev1.ExecutionStarted{Input: []byte("null")}}}},
				{Seq: 1, Event: &perdurev1.Event{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{
					PromiseId: "e:0", Kind: perdurev1.InvokeKind_INVOKE_KIND_SEND, FunctionName: "lock", Input: []byte("room@1"), RetryPolicy: "attempts=1"}}}},
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			fn := NewFunction("f", func(ctx Context, _ any) (string, error) {
				var refused *Error
				if err := c.call(ctx); !errors.As(err, &refused) {
					return "", err
				}
				if err := Sleep(ctx, 1); err != nil {
					return "", err
				}
				return refused.Type, nil
			})
			c.past(f)
			f.worker(WorkerOptions{StickyFunctions: -1}, fn)
			if !f.endsUnreleased("e") {
				t.Fatalf("released with %q", f.released(1).GetProblem())
			}
			var got string
			o := f.finished("e")
			if err := json.NewDecoder(bytes.NewReader(o.GetValue())).Decode(&got); err != nil || got != c.typ {
				t.Errorf("result %v, must be %q", o, c.typ)
			}
		})
	}
}
