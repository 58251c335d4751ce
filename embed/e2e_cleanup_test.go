package embed_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/durable"
)

// A cancelled execution is undone by a clean-up execution, though its worker is gone when it is cancelled and
// another one comes only after the end. The reason of the cancel, the clean-up and its result are shown.
func TestCleanupOnANode(t *testing.T) {
	w := newWorld(t)
	var mu sync.Mutex
	var undone []string
	book := durable.NewFunction("book", func(ctx durable.Context, who string) (string, error) {
		saga := durable.NewSaga(ctx)
		seat, err := durable.Do(ctx, saga, "reserve",
			func(context.Context) (string, error) { return "seat 7 of " + who, nil },
			func(_ context.Context, done durable.Done[string]) error {
				mu.Lock()
				defer mu.Unlock()
				undone = append(undone, done.Result+" ("+done.PromiseID+")")
				return nil
			})
		if err != nil {
			return "", err
		}
		_, err = durable.WaitSignal[string](ctx, "paid")
		return seat, err
	})
	first := w.work(durable.WorkerOptions{}, book)
	begin(w, book, "trip", "ann")
	w.reaches("trip", perdurev1.ExecutionStatus_EXECUTION_STATUS_BLOCKED)
	first.stop()
	if _, err := w.Cancel(soon(t), "trip", "the fair is off", 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if ended := w.ending("trip"); ended.Failure.GetMessage() != "the fair is off: the grace period ended" {
		t.Errorf("ended with %v", ended)
	}
	e := w.describe("trip")
	if e.GetCancelReason() != "the fair is off" || e.GetCleanup().GetId() != "trip:4294967295" {
		t.Fatalf("described as %v", e)
	}
	w.work(durable.WorkerOptions{}, book)
	if _, err := w.Result(soon(t), e.GetCleanup().GetId()); err != nil {
		t.Errorf("the clean-up: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"seat 7 of ann (trip:0)"}; !slices.Equal(undone, want) {
		t.Errorf("undone: %q", undone)
	}
}
