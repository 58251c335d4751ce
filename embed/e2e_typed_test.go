package embed_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"perdure/client"
	"perdure/durable"
)

// A client uses an entity by its types, and by its codec: nobody else can read the values.
func TestTypedEntity(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	list := durable.NewEntity("list",
		durable.Op("add", func(_ *durable.EntityContext, things *[]string, thing string) (int, error) {
			*things = append(*things, thing)
			return len(*things), nil
		}),
		durable.Op("refuse", func(_ *durable.EntityContext, _ *[]string, why string) (int, error) {
			return 0, &durable.Error{Type: "refused", Message: why, NonRetryable: true}
		})).WithCodec(newVault(t))
	w.work(durable.WorkerOptions{}, list)
	ctx := soon(t)
	if _, exists, err := list.Get(ctx, w.Client, "a"); exists || err != nil {
		t.Fatalf("before its first use: %t, %v", exists, err)
	}
	if err := list.Signal(ctx, w.Client, "a", "add", "book"); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := list.Call(ctx, w.Client, "a", "add", "pen", &n); err != nil || n != 2 {
		t.Fatalf("add answers %d, %v", n, err)
	}
	if err := list.Signal(ctx, w.Client, "a", "add", "later", durable.SignalDelay(time.Hour)); err != nil {
		t.Fatal(err)
	}
	err := list.Call(ctx, w.Client, "a", "refuse", "not today", nil)
	var failed *client.ExecutionError
	var typed *durable.Error
	if !errors.As(err, &failed) || !errors.As(err, &typed) || typed.Type != "refused" || typed.Message != "not today" {
		t.Errorf("refuse answers %v", err)
	}
	if things, exists, err := list.Get(ctx, w.Client, "a"); err != nil || !exists || !slices.Equal(things, []string{"book", "pen"}) {
		t.Errorf("the value is %q, %t, %v", things, exists, err)
	}
	if e, err := w.GetEntity(ctx, string(list.ID("a"))); err != nil || e.GetScheduled() != 1 || slices.Contains(e.GetValue(), '[') && string(e.GetValue()) == `["book","pen"]` {
		t.Errorf("the cluster has %v, %v", e, err)
	}
	if err := list.Signal(ctx, w.Client, "", "add", "book"); err == nil {
		t.Error("an entity without a key was signalled")
	}
	if err := list.Call(ctx, w.Client, "a", "add", make(chan int), nil); !errors.As(err, &typed) || typed.Type != durable.TypeEncoding {
		t.Errorf("a channel as an input: %v", err)
	}
}
