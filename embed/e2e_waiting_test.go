package embed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/durable"
)

// approve asks a person outside for a decision: it gives the token of a promise to a service, and waits for three days at
// most. Any client with the token settles the promise.
func approve(ask func(token string)) *durable.Function[string, string] {
	return durable.NewFunction("approve", func(ctx durable.Context, what string) (string, error) {
		decision, err := durable.NewPromise[string](ctx, durable.PromiseTimeout(72*time.Hour))
		if err != nil {
			return "", err
		}
		_, err = durable.Run(ctx, "ask", func(context.Context) (string, error) {
			ask(decision.Token())
			return "", nil
		})
		if err != nil {
			return "", err
		}
		by, err := decision.Get(ctx)
		return what + " approved by " + by, err
	})
}

// A client settles the promise of a function while no worker runs; another worker continues with its value. Other
// functions that await the promise and the execution by their ids, in whatever partition, get the values too.
func TestPromiseForTheOutside(t *testing.T) {
	w := newWorld(t)
	tokens := make(chan string, 10)
	approve := approve(func(token string) { tokens <- token })
	watch := durable.NewFunction("watch", func(ctx durable.Context, ids []string) (seen []string, err error) {
		for _, id := range ids {
			f, err := durable.AwaitPromise[string](ctx, id)
			if err != nil {
				return nil, err
			}
			text, err := f.Get(ctx)
			if errors.Is(err, durable.ErrTargetNotFound) {
				text, err = "nothing", nil
			}
			if err != nil {
				return nil, err
			}
			seen = append(seen, text)
		}
		return seen, nil
	})
	first := w.work(durable.WorkerOptions{}, approve, watch)
	h := begin(w, approve, "purchase", "a desk")
	token := receive(t, "the token", tokens)
	var watchers []*durable.Handle[[]string]
	for i := range 8 {
		watchers = append(watchers, begin(w, watch, fmt.Sprint("watch-", i), []string{token, "purchase", "missing"}))
	}
	w.reaches("purchase", perdurev1.ExecutionStatus_EXECUTION_STATUS_BLOCKED)
	for i := range watchers {
		w.reaches(fmt.Sprint("watch-", i), perdurev1.ExecutionStatus_EXECUTION_STATUS_BLOCKED)
	}
	first.stop()
	p, err := w.SettlePromise(soon(t), token, perdurev1.PromiseState_PROMISE_STATE_RESOLVED,
		&perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: []byte(`"ann"`)}})
	if err != nil || p.GetState() != perdurev1.PromiseState_PROMISE_STATE_RESOLVED {
		t.Fatal(p, err)
	}
	w.work(durable.WorkerOptions{}, approve, watch)
	if got := result(t, h); got != "a desk approved by ann" {
		t.Error(got)
	}
	for _, h := range watchers {
		if got := result(t, h); !slices.Equal(got, []string{"ann", "a desk approved by ann", "nothing"}) {
			t.Errorf("%s saw %q", h.ID(), got)
		}
	}
}

// A promise that stays pending times out; one that is rejected is the function's *Error.
func TestPromiseTimesOut(t *testing.T) {
	w := newWorld(t)
	fn := durable.NewFunction("impatient", func(ctx durable.Context, _ string) (string, error) {
		p, err := durable.NewPromise[string](ctx, durable.PromiseTimeout(50*time.Millisecond))
		if err != nil {
			return "", err
		}
		if _, err = p.Get(ctx); !errors.Is(err, durable.ErrTimeout) {
			return "", fmt.Errorf("a promise that stayed pending: %w", err)
		}
		return "timed out", nil
	})
	w.work(durable.WorkerOptions{}, fn)
	if got := result(t, begin(w, fn, "x", "")); got != "timed out" {
		t.Error(got)
	}
}

// Select, background steps, timers and join sets on a node.
func TestWaitingForTheFirst(t *testing.T) {
	w := newWorld(t)
	double := durable.NewFunction("double", func(_ durable.Context, n int) (int, error) { return 2 * n, nil })
	fn := durable.NewFunction("first", func(ctx durable.Context, _ string) (out []int, err error) {
		never, err := durable.After(ctx, time.Hour)
		if err != nil {
			return nil, err
		}
		slow, err := durable.GoStep(ctx, "slow", func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		if err != nil {
			return nil, err
		}
		child, err := durable.Go(ctx, double, 21, durable.Spread())
		if err != nil {
			return nil, err
		}
		number := func(n int, err error) error { out = append(out, n); return err }
		err = durable.Select(ctx, durable.On(slow, number), durable.On(child, number),
			durable.On(never, func(struct{}, error) error { return errors.New("an hour has passed") }))
		if err != nil {
			return nil, err
		}
		set, err := durable.NewJoinSet[int](ctx)
		if err != nil {
			return nil, err
		}
		for n := range 10 {
			f, err := durable.Go(ctx, double, n)
			if err != nil {
				return nil, err
			}
			if err := set.Submit(ctx, f); err != nil {
				return nil, err
			}
		}
		sum := 0
		for set.Len() > 0 {
			f, err := set.Next(ctx)
			if err != nil {
				return nil, err
			}
			n, err := f.Get(ctx)
			if err != nil {
				return nil, err
			}
			sum += n
		}
		return append(out, sum), nil
	})
	w.work(durable.WorkerOptions{}, fn, double)
	if got := result(t, begin(w, fn, "x", "")); !slices.Equal(got, []int{42, 90}) {
		t.Error(got)
	}
}
