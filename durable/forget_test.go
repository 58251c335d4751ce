package durable

import (
	"context"
	"encoding/json"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
)

// A worker keeps no records of operations whose results the function has, however long its journal, first and at
// replay; and those of which the function has futures stay.
func TestHistoryForgets(t *testing.T) {
	const rounds = 200
	f := newFake(t)
	f.hold = unhurried
	f.children["echo"] = func(input []byte) *perdurev1.Outcome {
		return &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: input}}
	}
	type found struct{ Kept, Operations, Sum int }
	held := func(ctx Context) (out found) {
		r := &ctx.activation().journal
		for _, rec := range r.ops {
			if out.Operations++; rec != &r.spent {
				out.Kept++
			}
		}
		return out
	}
	f.worker(WorkerOptions{}, NewFunction("long", func(ctx Context, _ string) (found, error) {
		none := found{}
		kept, err := GoStep(ctx, "kept", func(context.Context) (int, error) { return 7, nil })
		if err != nil {
			return none, err
		}
		sum := 0
		for i := range rounds {
			n, err := Run(ctx, "step", func(context.Context) (int, error) { return i, nil })
			if err != nil {
				return none, err
			}
			sum += n
			if _, err := Now(ctx); err != nil {
				return none, err
			}
			if _, err := UUID(ctx); err != nil {
				return none, err
			}
			if i%50 != 0 {
				continue
			}
			if err := Sleep(ctx, 1); err != nil {
				return none, err
			}
			if n, err = CallName[int](ctx, "echo", i); err != nil {
				return none, err
			}
			sum += n
			if n, err = WaitSignal[int](ctx, "s"); err != nil {
				return none, err
			}
			sum += n
		}
		for range 2 {
			n, err := kept.Get(ctx)
			if err != nil {
				return none, err
			}
			sum += n
		}
		if err := AwaitAll(ctx, kept); err != nil {
			return none, err
		}
		if i, err := AwaitAny(ctx, kept); err != nil || i != 0 {
			return none, err
		}
		out := held(ctx)
		out.Sum = sum
		return out, nil
	}))
	x := f.start("x", "long", `""`)
	for range rounds / 50 {
		f.mu.Lock()
		f.deliver(x, "s", &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: []byte("1000")}})
		f.dispatch() // it may wait for the signal already
		f.mu.Unlock()
	}
	var got found
	if err := json.Unmarshal(f.finished("x").GetValue(), &got); err != nil {
		t.Fatal(err)
	}
	// The last step, time and UUID wait for the next commit.
	want := found{Kept: 1, Operations: 1 + 3*rounds + 3*rounds/50 - 3, Sum: rounds*(rounds-1)/2 + 0 + 50 + 100 + 150 + 4*1000 + 14}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
