package embed_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/durable"
)

func value(s string) *perdurev1.Outcome {
	return &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: []byte(s)}}
}

func failure(kind string) *perdurev1.Outcome {
	return &perdurev1.Outcome{Result: &perdurev1.Outcome_Failure{Failure: &perdurev1.Failure{Type: kind, Message: "because"}}}
}

// create makes a promise.
func (w *world) create(id string, o client.PromiseOptions) *perdurev1.Promise {
	w.t.Helper()
	p, err := w.CreatePromise(soon(w.t), id, o)
	if err != nil {
		w.t.Fatalf("create %s: %v", id, err)
	}
	return p
}

// TestPromises creates, settles and awaits standalone promises.
func TestPromises(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.create("p", client.PromiseOptions{Param: []byte("what"), Tags: map[string]string{"k": "v"}, Timeout: time.Hour})
	if p.GetState() != pending || string(p.GetParam()) != "what" || p.GetTags()["k"] != "v" || p.GetId() != "p" || p.GetNamespace() != t.Name() ||
		p.GetTimeoutAtMs()-p.GetCreatedAtMs() != time.Hour.Milliseconds() || p.GetSettledAtMs() != 0 || p.GetValue() != nil {
		t.Errorf("created %v", p)
	}
	// Idempotent by id, for any arguments.
	if again := w.create("p", client.PromiseOptions{Param: []byte("other"), Timeout: time.Minute}); !proto.Equal(again, p) {
		t.Errorf("created again: %v", again)
	}
	if got, err := w.GetPromise(soon(t), "p"); err != nil || !proto.Equal(got, p) {
		t.Errorf("get: %v, %v", got, err)
	}

	// Many wait, one settles.
	const waiters = 20
	var wg sync.WaitGroup
	seen := make([]*perdurev1.Promise, waiters)
	for i := range waiters {
		wg.Add(1)
		go func() {
			defer wg.Done()
			var err error
			if seen[i], err = w.AwaitPromise(soon(t), "p"); err != nil {
				t.Errorf("await: %v", err)
			}
		}()
	}
	settled, err := w.SettlePromise(soon(t), "p", resolved, value("this"))
	if err != nil || settled.GetState() != resolved || string(settled.GetValue().GetValue()) != "this" || settled.GetSettledAtMs() < p.GetCreatedAtMs() {
		t.Errorf("settle: %v, %v", settled, err)
	}
	wg.Wait()
	for _, got := range seen {
		if !proto.Equal(got, settled) {
			t.Errorf("a waiter saw %v", got)
		}
	}

	// It settles once: a later settlement gets the outcome.
	for _, late := range []struct {
		state perdurev1.PromiseState
		value *perdurev1.Outcome
	}{{resolved, value("that")}, {rejected, failure("late")}, {canceled, nil}} {
		if got, err := w.SettlePromise(soon(t), "p", late.state, late.value); err != nil || !proto.Equal(got, settled) {
			t.Errorf("settled again: %v, %v", got, err)
		}
	}
	if again := w.create("p", client.PromiseOptions{Timeout: time.Minute}); !proto.Equal(again, settled) {
		t.Errorf("created again: %v", again)
	}

	w.create("rejected", client.PromiseOptions{Timeout: time.Hour})
	if got, err := w.SettlePromise(soon(t), "rejected", rejected, failure("broken")); err != nil || got.GetState() != rejected || got.GetValue().GetFailure().GetType() != "broken" {
		t.Errorf("reject: %v, %v", got, err)
	}
	w.create("canceled", client.PromiseOptions{Timeout: time.Hour})
	if got, err := w.SettlePromise(soon(t), "canceled", canceled, nil); err != nil || got.GetState() != canceled || got.GetValue().GetFailure().GetType() != "cancelled" {
		t.Errorf("cancel: %v, %v", got, err)
	}
	w.create("unsaid", client.PromiseOptions{Timeout: time.Hour})
	for _, c := range []struct {
		state perdurev1.PromiseState
		value *perdurev1.Outcome
	}{{resolved, failure("broken")}, {rejected, value("v")}, {canceled, value("v")}, {pending, nil}, {timedOut, nil}, {0, nil}, {77, nil}} {
		_, err := w.SettlePromise(soon(t), "unsaid", c.state, c.value)
		wantReason(t, fmt.Sprintf("settling to %v with %v", c.state, c.value), err, "BAD_REQUEST")
	}
	if got, err := w.SettlePromise(soon(t), "unsaid", rejected, nil); err != nil || got.GetState() != rejected || got.GetValue().GetFailure().GetType() != "rejected" {
		t.Errorf("reject without a failure: %v, %v", got, err)
	}

	// An unsettled promise times out, at its deadline.
	short := w.create("short", client.PromiseOptions{Timeout: 60 * time.Millisecond})
	got, err := w.AwaitPromise(soon(t), "short")
	if err != nil || got.GetState() != timedOut || got.GetSettledAtMs() != short.GetTimeoutAtMs() || got.GetTimeoutAtMs() != short.GetTimeoutAtMs() ||
		got.GetValue().GetFailure().GetType() != "timeout" {
		t.Errorf("timed out: %v, %v; want it settled at %d", got, err, short.GetTimeoutAtMs())
	}
	if late, err := w.SettlePromise(soon(t), "short", resolved, value("late")); err != nil || !proto.Equal(late, got) {
		t.Errorf("settled after its timeout: %v, %v", late, err)
	}

	// A missing promise.
	_, err = w.GetPromise(soon(t), "missing")
	wantReason(t, "get", err, "PROMISE_NOT_FOUND")
	_, err = w.AwaitPromise(soon(t), "missing")
	wantReason(t, "await", err, "PROMISE_NOT_FOUND")
	_, err = w.SettlePromise(soon(t), "missing", resolved, nil)
	wantReason(t, "settle", err, "PROMISE_NOT_FOUND")
	_, err = w.Describe(soon(t), "p")
	wantReason(t, "describe of a promise", err, "EXECUTION_NOT_FOUND")
	if got := w.list(client.ListOptions{}); len(got) != 0 {
		t.Errorf("promises are listed as executions: %v", got)
	}
}

// TestPromisesOfExecutions reads the promises that executions and their operations are, and tries to
// settle them from outside.
func TestPromisesOfExecutions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	child := durable.NewFunction("child", func(ctx durable.Context, in string) (string, error) {
		return durable.WaitSignal[string](ctx, "go")
	})
	parent := durable.NewFunction("parent", func(ctx durable.Context, in string) (string, error) {
		if _, err := durable.Run(ctx, "good", func(context.Context) (string, error) { return "done", nil }); err != nil {
			return "", err
		}
		if _, err := durable.Run(ctx, "bad", func(context.Context) (string, error) { return "", errors.New("broken") }, durable.NoRetry()); err == nil {
			return "", errors.New("the step did not fail")
		}
		near, err := durable.Go(ctx, child, in)
		if err != nil {
			return "", err
		}
		far, err := durable.Go(ctx, child, in, durable.Spread())
		if err != nil {
			return "", err
		}
		if err := durable.AwaitAll(ctx, near, far); err != nil {
			return "", err
		}
		return near.Get(ctx)
	})
	x := w.work(durable.WorkerOptions{}, parent, child)
	h := begin(w, parent, "order", "x")
	w.waitsFor("order:2", "go")
	until(t, "the spread child to wait", func() error {
		if n := len(w.list(client.ListOptions{Function: "child", Status: []client.Status{blocked}})); n != 2 {
			return fmt.Errorf("%d children wait", n)
		}
		return nil
	})

	get := func(id string) *perdurev1.Promise {
		t.Helper()
		p, err := w.GetPromise(soon(t), id)
		if err != nil {
			t.Fatalf("get %s: %v", id, err)
		}
		return p
	}
	if p := get("order:0"); p.GetState() != resolved || string(p.GetValue().GetValue()) != `"done"` || p.GetSettledAtMs() == 0 {
		t.Errorf("the step's promise is %v", p)
	}
	if p := get("order:1"); p.GetState() != rejected || p.GetValue().GetFailure().GetMessage() != "broken" {
		t.Errorf("the failed step's promise is %v", p)
	}
	open := []string{"order", "order:2", "order:2.0", "order:3"} // a run, a child, a signal wait, a proxy of a spread child
	for _, id := range open {
		if p := get(id); p.GetState() != pending {
			t.Errorf("%s is %v", id, p)
		}
		for _, state := range []perdurev1.PromiseState{resolved, rejected, canceled} {
			_, err := w.SettlePromise(soon(t), id, state, nil)
			wantReason(t, "settling "+id, err, "NOT_SETTLEABLE")
		}
	}
	// A step is only in the journal, and that is not to be written from outside either.
	_, err := w.SettlePromise(soon(t), "order:0", resolved, value("mine"))
	wantReason(t, "settling a step", err, "NOT_SETTLEABLE")
	_, err = w.GetPromise(soon(t), "order:9")
	wantReason(t, "an operation that is not there yet", err, "PROMISE_NOT_FOUND")
	_, err = w.CreatePromise(soon(t), "order:9", client.PromiseOptions{Timeout: time.Hour})
	wantReason(t, "creating a child id", err, "BAD_ID")
	// An id has one meaning.
	if p := w.create("order", client.PromiseOptions{Timeout: time.Hour}); p.GetState() != pending || p.GetTimeoutAtMs() != 0 {
		t.Errorf("creating what is an execution answers %v, want the execution's promise", p)
	}
	w.create("taken", client.PromiseOptions{Timeout: time.Hour})
	_, err = parent.Start(soon(t), w.Client, "taken", "x")
	wantReason(t, "starting under a promise's id", err, "ID_CONFLICT")

	// Many wait for one execution, by its result and by its promise.
	var wg sync.WaitGroup
	for range 5 {
		wg.Add(2)
		go func() {
			defer wg.Done()
			if got, err := h.Result(soon(t)); err != nil || got != "near" {
				t.Errorf("a waiter for the result got %q, %v", got, err)
			}
		}()
		go func() {
			defer wg.Done()
			if p, err := w.AwaitPromise(soon(t), "order"); err != nil || p.GetState() != resolved || string(p.GetValue().GetValue()) != `"near"` {
				t.Errorf("a waiter for the promise got %v, %v", p, err)
			}
		}()
	}
	for _, e := range w.list(client.ListOptions{Function: "child"}) {
		payload := `"far"`
		if e.GetId() == "order:2" {
			payload = `"near"`
		}
		w.signal(e.GetId(), "go", payload)
	}
	wg.Wait()
	if p := get("order:3"); p.GetState() != resolved || string(p.GetValue().GetValue()) != `"far"` {
		t.Errorf("the proxy of the spread child is %v", p)
	}
	x.noProblems()
	w.validJournals()
}
