package embed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/durable"
)

// race waits for a word of a person, by a signal or by a promise's token; for an automatic answer, by a step
// and by a child; and for no longer than an hour. The first decides, and the others are given up.
func race(ask func(ctx context.Context) (string, error), child *durable.Function[string, string]) *durable.Function[string, []string] {
	return durable.NewFunction("race", func(ctx durable.Context, _ string) (out []string, err error) {
		step, err := durable.GoStep(ctx, "ask", ask)
		if err != nil {
			return nil, err
		}
		helper, err := durable.Go(ctx, child, "")
		if err != nil {
			return nil, err
		}
		far, err := durable.Go(ctx, child, "", durable.Spread())
		if err != nil {
			return nil, err
		}
		late, err := durable.After(ctx, time.Hour)
		if err != nil {
			return nil, err
		}
		promise, err := durable.NewPromise[string](ctx)
		if err != nil {
			return nil, err
		}
		no, err := durable.NextSignal[string](ctx, "no")
		if err != nil {
			return nil, err
		}
		yes, err := durable.NextSignal[string](ctx, "yes")
		if err != nil {
			return nil, err
		}
		say := func(text string, err error) error { out = append(out, text); return err }
		err = durable.Select(ctx, durable.On(step, say), durable.On(helper, say), durable.On(far, say), durable.On(promise.Future, say),
			durable.On(no, say), durable.On(yes, say), durable.On(late, func(struct{}, error) error { return errors.New("an hour has passed") }),
			durable.CancelLosers())
		if err != nil {
			return nil, err
		}
		for _, loser := range []*durable.Future[string]{step, helper, far, promise.Future, no} {
			if _, err := loser.Get(ctx); !errors.Is(err, durable.ErrCancelled) {
				return nil, fmt.Errorf("%s ended with %w", loser.ID(), err)
			}
		}
		if _, err := late.Get(ctx); !errors.Is(err, durable.ErrCancelled) {
			return nil, fmt.Errorf("the timer ended with %w", err)
		}
		// The cancelled wait for "no" has taken no signal.
		text, err := durable.WaitSignal[string](ctx, "no")
		return append(out, text), err
	})
}

// The losers of a race end: no step, child, timer or promise of it is left, whichever worker goes on after the race.
func TestLosersAreCancelled(t *testing.T) {
	t.Parallel() // it waits most of the time
	w := newWorld(t)
	var asked, ended atomic.Int32
	ask := func(ctx context.Context) (string, error) {
		asked.Add(1)
		<-ctx.Done()
		ended.Add(1)
		return "", ctx.Err()
	}
	child := durable.NewFunction("wait-for-ever", func(ctx durable.Context, _ string) (string, error) {
		return durable.WaitSignal[string](ctx, "never")
	})
	fn := race(ask, child)
	first := w.work(durable.WorkerOptions{StopGrace: time.Second}, fn, child) // its step does not end by itself
	h := begin(w, fn, "r", "")
	eventually(t, "the step to run", func() bool { return asked.Load() == 1 }, nil)
	first.stop()
	w.work(durable.WorkerOptions{}, fn, child)
	eventually(t, "the step to run again", func() bool { return asked.Load() == 2 }, nil)
	w.signal("r", "yes", `"done"`)
	eventually(t, "the step to end", func() bool { return ended.Load() == 2 }, nil)
	w.waitsFor("r", "no")
	w.signal("r", "no", `"kept"`)
	if got := result(t, h); !slices.Equal(got, []string{"done", "kept"}) {
		t.Errorf("%q", got)
	}
	for _, s := range w.list(client.ListOptions{Function: "wait-for-ever"}) {
		if s.GetStatus() != perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED {
			t.Errorf("%s is %s", s.GetId(), s.GetStatus())
		}
	}
	if p, err := w.GetPromise(soon(t), "r:4"); err != nil || p.GetState() != perdurev1.PromiseState_PROMISE_STATE_REJECTED_CANCELED {
		t.Errorf("the promise for the outside is %v, %v", p, err)
	}
	w.validJournal("r")
}

// A failed child is run again by the cluster, as its caller says, and its caller's journal has each attempt.
func TestChildIsRetried(t *testing.T) {
	w := newWorld(t)
	for _, spread := range []bool{false, true} {
		var runs atomic.Int32
		flaky := durable.NewFunction("flaky-child", func(ctx durable.Context, in string) (string, error) {
			return durable.Run(ctx, "try", func(context.Context) (string, error) {
				if n := runs.Add(1); n < 3 {
					return "", fmt.Errorf("attempt %d broke", n)
				}
				return in + " at last", nil
			}, durable.NoRetry())
		})
		parent := durable.NewFunction("parent", func(ctx durable.Context, in string) (string, error) {
			opts := []durable.CallOption{durable.CallRetry(durable.RetryPolicy{MaxAttempts: 5, Initial: 5 * time.Millisecond, Jitter: 0.5})}
			if spread {
				opts = append(opts, durable.Spread())
			}
			return durable.Call(ctx, flaky, in, opts...)
		})
		worker := w.work(durable.WorkerOptions{}, parent, flaky)
		id := fmt.Sprint("parent-", spread)
		if got := result(t, begin(w, parent, id, "done")); got != "done at last" {
			t.Errorf("%s: %q", id, got)
		}
		counts := w.validJournal(id)
		if counts["InvokeScheduled"] != 1 || counts["InvokeStarted"] != 3 || counts["InvokeRetrying"] != 2 || counts["InvokeCompleted"] != 1 {
			t.Errorf("%s: the journal has %v", id, counts)
		}
		worker.stop()
	}
}
