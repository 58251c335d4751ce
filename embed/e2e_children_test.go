package embed_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/durable"
)

// A cancel of an order reaches its payment, a child with an id of its own, and the payment's saga runs,
// though the order never waits for it. The newsletter, which the order abandons, runs on.
func TestCancelReachesChildren(t *testing.T) {
	w := newWorld(t)
	var refunded atomic.Int32
	pay := durable.NewFunction("pay", func(ctx durable.Context, sum int) (int, error) {
		saga := durable.NewSaga(ctx)
		if _, err := durable.Do(ctx, saga, "charge",
			func(context.Context) (int, error) { return sum, nil },
			func(context.Context, durable.Done[int]) error { refunded.Add(1); return nil }); err != nil {
			return 0, err
		}
		return durable.WaitSignal[int](ctx, "settled")
	})
	news := durable.NewFunction("news", func(ctx durable.Context, to string) (string, error) {
		return durable.WaitSignal[string](ctx, "read")
	})
	order := durable.NewFunction("order", func(ctx durable.Context, sum int) (string, error) {
		if _, err := durable.Go(ctx, pay, sum, durable.ChildID("payment-7"), durable.OnClose(durable.CloseCancel)); err != nil {
			return "", err
		}
		if _, err := durable.Go(ctx, news, "ann", durable.ChildID("news-7"), durable.OnClose(durable.CloseAbandon)); err != nil {
			return "", err
		}
		return durable.WaitSignal[string](ctx, "shipped")
	})
	w.work(durable.WorkerOptions{}, order, pay, news)
	begin(w, order, "order-7", 30)
	blocked := perdurev1.ExecutionStatus_EXECUTION_STATUS_BLOCKED
	w.reaches("payment-7", blocked)
	w.reaches("news-7", blocked)
	if d := w.describe("payment-7"); d.GetParentId() != "order-7" {
		t.Errorf("its parent is shown as %q", d.GetParentId())
	}
	if _, err := w.Cancel(soon(t), "order-7", "customer withdrew", time.Minute); err != nil {
		t.Fatal(err)
	}
	w.ending("order-7")
	w.ending("payment-7")
	payment := w.describe("payment-7")
	if payment.GetCancelReason() != "customer withdrew" {
		t.Errorf("the payment was cancelled because of %q", payment.GetCancelReason())
	}
	if _, err := w.Result(soon(t), payment.GetCleanup().GetId()); err != nil || refunded.Load() != 1 {
		t.Errorf("refunded %d times, %v", refunded.Load(), err)
	}
	w.signal("news-7", "read", `"thanks"`)
	if got, err := w.Result(soon(t), "news-7"); err != nil || string(got) != `"thanks"` {
		t.Errorf("the newsletter ended with %s, %v", got, err)
	}
}

// twice is a child of the tests below.
var twice = durable.NewFunction("twice", func(_ durable.Context, n int) (int, error) { return 2 * n, nil })

// A child has the id that its parent gives it. An id that is taken is an *Error that names it, and the parent decides.
func TestChildID(t *testing.T) {
	w := newWorld(t)
	parent := durable.NewFunction("parent", func(ctx durable.Context, _ int) (string, error) {
		if _, err := durable.Call(ctx, twice, 21, durable.ChildID("report")); err != nil {
			return "", err
		}
		_, err := durable.Call(ctx, twice, 22, durable.ChildID("report"))
		var taken *durable.Error
		if errors.As(err, &taken) && taken.Type == durable.TypeConflict {
			return taken.Message, nil
		}
		return "started again", err
	})
	w.work(durable.WorkerOptions{}, parent, twice)
	if got := result(t, begin(w, parent, "p", 0)); got != `the child's id "report" is taken` {
		t.Error(got)
	}
	if got, err := w.Result(soon(t), "report"); err != nil || string(got) != "42" {
		t.Errorf("the child's result is %s, %v", got, err)
	}
}

// A delayed child begins later.
func TestStartDelay(t *testing.T) {
	w := newWorld(t)
	const delay = 300 * time.Millisecond
	parent := durable.NewFunction("parent", func(ctx durable.Context, _ int) (time.Duration, error) {
		before, err := durable.Now(ctx)
		if err != nil {
			return 0, err
		}
		if _, err := durable.Call(ctx, twice, 21, durable.StartDelay(delay)); err != nil {
			return 0, err
		}
		after, err := durable.Now(ctx)
		return after.Sub(before), err
	})
	w.work(durable.WorkerOptions{}, parent, twice)
	if waited := result(t, begin(w, parent, "p", 0)); waited < delay {
		t.Errorf("the child began after %s", waited)
	}
}

// A detached start has no parent and outlives its sender. The same start again is the same execution; another
// one under its id is a conflict.
func TestStartDetached(t *testing.T) {
	w := newWorld(t)
	starter := durable.NewFunction("starter", func(ctx durable.Context, inputs []int) (answers []string, err error) {
		for _, n := range inputs {
			f, err := durable.StartDetached(ctx, twice, "report", n)
			if err != nil {
				return nil, err
			}
			answer := "started"
			if _, err := f.Get(ctx); err != nil {
				answer = err.Error()
			}
			answers = append(answers, answer)
		}
		return answers, nil
	})
	sender := w.work(durable.WorkerOptions{}, starter)
	answers := result(t, begin(w, starter, "s", []int{1, 1, 2}, durable.AllowUnknownFunction()))
	if want := []string{"started", "started", `conflict: execution "report" was started before with another input`}; !slices.Equal(answers, want) {
		t.Errorf("answered %q", answers)
	}
	sender.stop()
	w.work(durable.WorkerOptions{}, twice)
	if got, err := w.Result(soon(t), "report"); err != nil || string(got) != "2" {
		t.Errorf("the result is %s, %v", got, err)
	}
	if d := w.describe("report"); d.GetParentId() != "" {
		t.Errorf("its parent is %q", d.GetParentId())
	}
}

// TestClosePolicies: a parent that completes cancels, abandons or terminates each open child by its close policy.
func TestClosePolicies(t *testing.T) {
	w := newWorld(t)
	var cleaned atomic.Int32
	child := durable.NewFunction("child", func(ctx durable.Context, _ string) (string, error) {
		durable.Cleanup(ctx, func(ctx durable.Context) error {
			_, err := durable.Run(ctx, "clean up", func(context.Context) (int32, error) { return cleaned.Add(1), nil })
			return err
		})
		return durable.WaitSignal[string](ctx, "end")
	})
	policies := map[string]durable.ClosePolicy{
		"follow": durable.CloseFollow, "abandon": durable.CloseAbandon, "cancel": durable.CloseCancel, "terminate": durable.CloseTerminate}
	parent := durable.NewFunction("parent", func(ctx durable.Context, _ string) (string, error) {
		for _, id := range slices.Sorted(maps.Keys(policies)) {
			if _, err := durable.Go(ctx, child, "", durable.ChildID(id), durable.OnClose(policies[id])); err != nil {
				return "", err
			}
		}
		return durable.WaitSignal[string](ctx, "end")
	})
	w.work(durable.WorkerOptions{}, parent, child)
	h := begin(w, parent, "p", "")
	for id := range policies {
		w.waitsFor(id, "end")
	}
	w.signal("p", "end", `"done"`)
	result(t, h)
	for _, id := range []string{"follow", "abandon"} { // they run on
		w.signal(id, "end", `"done"`)
		if _, err := w.Result(soon(t), id); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	for _, id := range []string{"cancel", "terminate"} { // they end, and say why
		w.ending(id)
		if e := w.describe(id); !strings.Contains(e.GetCancelReason(), `its parent "p"`) {
			t.Errorf("%s: the reason is %q", id, e.GetCancelReason())
		}
	}
	if _, err := w.Result(soon(t), w.describe("cancel").GetCleanup().GetId()); err != nil || cleaned.Load() != 1 {
		t.Errorf("%d clean-ups ran, %v", cleaned.Load(), err)
	}
	if id := w.describe("terminate").GetCleanup().GetId(); id != "" {
		t.Errorf("the terminated child has the clean-up %q", id)
	}
}

// A cart begins with the first thing that is put into it: the signal starts it. Its cancel is waited for with
// its clean-up.
func TestSignalStartsAndCancelWaits(t *testing.T) {
	w := newWorld(t)
	var released atomic.Int32
	cart := durable.NewFunction("cart", func(ctx durable.Context, owner string) (string, error) {
		durable.Cleanup(ctx, func(ctx durable.Context) error {
			_, err := durable.Run(ctx, "release", func(context.Context) (int32, error) { return released.Add(1), nil })
			return err
		})
		for {
			if thing, err := durable.WaitSignal[string](ctx, "add"); err != nil || thing == "" {
				return thing, err
			}
		}
	})
	w.work(durable.WorkerOptions{}, cart)
	for i, thing := range []string{"book", "pen"} {
		h, started, err := cart.SignalWithStart(soon(t), w.Client, "cart-7", "ann", "add", thing, durable.AllowUnknownFunction())
		if err != nil || started != (i == 0) || h.ID() != "cart-7" {
			t.Fatalf("%s: started %t, %v", thing, started, err)
		}
	}
	// A cancel before the function has begun ends an execution without clean-ups.
	until(t, "the function to wait for more", func() error {
		if x := w.describe("cart-7"); x.GetTask().GetState() != "suspended" {
			return fmt.Errorf("its task is %q", x.GetTask().GetState())
		}
		return nil
	})
	ended, err := w.CancelWait(soon(t), "cart-7", "no longer wanted", time.Minute)
	if err != nil || ended.CleanupID != "cart-7:4294967295" || released.Load() != 1 {
		t.Errorf("ended %+v, released %d times, %v", ended, released.Load(), err)
	}
	var refused *api.Error
	if err := w.Signal(soon(t), "nobody", "add", nil); !errors.As(err, &refused) || refused.Reason != perdurev1.Reason_REASON_EXECUTION_NOT_FOUND {
		t.Errorf("a signal to nobody: %v", err)
	}
}
