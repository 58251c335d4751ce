package embed_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/durable"
)

// A cancel of an order reaches its payment, a child with an id of its own, and the payment's saga runs, though the order
// never waits for it. The newsletter, which the order abandons, runs on.
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

// An id that is taken is refused by its name; a delayed child begins later; a detached start outlives its sender, and the
// same one again is the same execution.
func TestChildrenPlaces(t *testing.T) {
	w := newWorld(t)
	work := durable.NewFunction("work", func(_ durable.Context, n int) (int, error) { return 2 * n, nil })
	type seen struct {
		Taken, Again, Other string
		Delayed             int
		Waited              time.Duration
	}
	parent := durable.NewFunction("parent", func(ctx durable.Context, _ int) (out seen, err error) {
		first, err := durable.StartDetached(ctx, work, "report", 1)
		if err != nil {
			return out, err
		}
		if _, err := first.Get(ctx); err != nil {
			return out, err
		}
		said := func(f *durable.Future[struct{}], err error) (string, error) {
			if err != nil {
				return "", err
			}
			var failure *durable.Error
			if _, err := f.Get(ctx); errors.As(err, &failure) {
				return failure.Error(), nil
			} else if err != nil {
				return "", err
			}
			return "started", nil
		}
		if out.Again, err = said(durable.StartDetached(ctx, work, "report", 1)); err != nil {
			return out, err
		}
		if out.Other, err = said(durable.StartDetached(ctx, work, "report", 2)); err != nil {
			return out, err
		}
		var failure *durable.Error
		if _, err := durable.Call(ctx, work, 1, durable.ChildID("report")); errors.As(err, &failure) && failure.Type == durable.TypeConflict {
			out.Taken = failure.Message
		}
		before, err := durable.Now(ctx)
		if err != nil {
			return out, err
		}
		if out.Delayed, err = durable.Call(ctx, work, 21, durable.StartDelay(300*time.Millisecond)); err != nil {
			return out, err
		}
		after, err := durable.Now(ctx)
		out.Waited = after.Sub(before)
		return out, err
	})
	w.work(durable.WorkerOptions{}, parent, work)
	out, err := begin(w, parent, "p", 0).Result(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	if out.Taken != `the child's id "report" is taken` || out.Again != "started" ||
		out.Other != `conflict: execution "report" was started before with another input` {
		t.Errorf("refused with %+v", out)
	}
	if out.Delayed != 42 || out.Waited < 300*time.Millisecond {
		t.Errorf("a delayed child gives %d after %s", out.Delayed, out.Waited)
	}
	if got, err := w.Result(soon(t), "report"); err != nil || string(got) != "2" {
		t.Errorf("the report is %s, %v", got, err)
	}
}

// A cart begins with the first thing that is put into it: the signal starts it. Its cancel is waited for with its clean-up.
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
	o := client.StartOptions{ID: "cart-7", Function: "cart", Input: []byte(`"ann"`), AllowUnknownFunction: true}
	for i, thing := range []string{`"book"`, `"pen"`} {
		if started, err := w.SignalWithStart(soon(t), o, "add", []byte(thing)); err != nil || started != (i == 0) {
			t.Fatalf("%s: started %t, %v", thing, started, err)
		}
	}
	ended, err := w.CancelWait(soon(t), "cart-7", "no longer wanted", time.Minute)
	if err != nil || ended.CleanupID != "cart-7:4294967295" || released.Load() != 1 {
		t.Errorf("ended %+v, released %d times, %v", ended, released.Load(), err)
	}
	var refused *api.Error
	if err := w.Signal(soon(t), "nobody", "add", nil); !errors.As(err, &refused) || refused.Reason != perdurev1.Reason_REASON_EXECUTION_NOT_FOUND {
		t.Errorf("a signal to nobody: %v", err)
	}
}
