package embed_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/durable"
)

// TestFormerWorker: a worker is held up in a step while its execution begins a new incarnation, by a restart or
// by a start that replaces it. When it continues, it effects nothing: the new incarnation alone is recorded.
func TestFormerWorker(t *testing.T) {
	t.Parallel() // it waits most of the time
	for _, by := range []string{"restart", "reuse"} {
		t.Run(by, func(t *testing.T) {
			w := newWorld(t)
			held, hold := make(chan struct{}, 1), make(chan struct{})
			var runs atomic.Int32
			f := durable.NewFunction("held", func(ctx durable.Context, _ int) (string, error) {
				who, err := durable.Run(ctx, "once", func(context.Context) (string, error) {
					if runs.Add(1) == 1 {
						held <- struct{}{}
						<-hold
						return "former", nil
					}
					return "new", nil
				})
				return who, err
			})
			former := w.work(durable.WorkerOptions{Name: "former", Concurrency: 1}, f)
			h := begin(w, f, "x", 1)
			receive(t, "the step", held)
			first := h.Started().Incarnation
			if by == "restart" {
				r, err := w.Restart(soon(t), "x", client.RestartOptions{})
				if err != nil || r.Former != first {
					t.Fatalf("restarted %+v, %v", r, err)
				}
			} else {
				if _, err := w.Terminate(soon(t), "x", "held up"); err != nil {
					t.Fatal(err)
				}
				if again := begin(w, f, "x", 1, durable.StartReuse(client.ReuseIfFailed)); again.Started().Incarnation <= first {
					t.Fatalf("incarnation %d follows %d", again.Started().Incarnation, first)
				}
			}
			present := w.work(durable.WorkerOptions{Name: "present"}, f)
			if got := result(t, h); got != "new" {
				t.Errorf("the result is %q", got)
			}
			close(hold)
			former.saw(durable.EventLost, "x", 1)
			former.saw(durable.EventActivationEnded, "x", 1)
			if n := w.validJournal("x")["InvokeCompleted"]; n > 1 {
				t.Errorf("%d results are recorded", n)
			}
			if got, err := f.Attach(w.Client, "x").Result(soon(t)); err != nil || got != "new" {
				t.Errorf("the result is %q, %v", got, err)
			}
			if e := w.describe("x"); e.FormerIncarnation != first {
				t.Errorf("it follows incarnation %d, must be %d", e.FormerIncarnation, first)
			}
			present.noProblems()
		})
	}
}

// TestContinueAsNew: a function that runs for ever keeps a small journal, gets each signal once whatever
// incarnation it came to, and its caller gets the last incarnation's result.
func TestContinueAsNew(t *testing.T) {
	t.Parallel() // it waits most of the time
	w := newWorld(t)
	type state struct{ Turns, Sum int }
	loop := durable.NewFunction("loop", func(ctx durable.Context, s state) (state, error) {
		n, err := durable.WaitSignal[int](ctx, "add")
		if err != nil || n < 0 {
			return s, err
		}
		if _, err := durable.Run(ctx, "count", func(context.Context) (int, error) { return n, nil }); err != nil {
			return s, err
		}
		return s, durable.ContinueAsNew(ctx, state{s.Turns + 1, s.Sum + n})
	})
	caller := durable.NewFunction("caller", func(ctx durable.Context, _ int) (state, error) {
		return durable.Call(ctx, loop, state{})
	})
	worker := w.work(durable.WorkerOptions{}, loop, caller)
	h := begin(w, caller, "c", 1)
	w.reaches("c:0", perdurev1.ExecutionStatus_EXECUTION_STATUS_BLOCKED)
	const signals = 100
	for i := range signals {
		w.signal("c:0", "add", fmt.Sprint(i))
	}
	w.signal("c:0", "add", "-1")
	if got := result(t, h); got != (state{signals, signals * (signals - 1) / 2}) {
		t.Errorf("the result is %+v", got)
	}
	e := w.describe("c:0")
	if e.FormerIncarnations != signals || e.JournalEvents > signals+10 {
		t.Errorf("%d previous incarnations, %d events", e.FormerIncarnations, e.JournalEvents)
	}
	w.validJournals()
	worker.noProblems()
}

// TestVersion: executions that were beyond a change keep the old code, those before it and new ones get the
// new code, and code that has dropped the old version lists the executions that need it.
func TestVersion(t *testing.T) {
	t.Parallel() // it waits most of the time
	w := newWorld(t)
	step := func(ctx durable.Context, name string) (string, error) {
		return durable.Run(ctx, name, func(context.Context) (string, error) { return name, nil })
	}
	order := func(pay func(durable.Context) (string, error)) *durable.Function[int, string] {
		return durable.NewFunction("order", func(ctx durable.Context, _ int) (string, error) {
			if _, err := durable.WaitSignal[int](ctx, "pay"); err != nil {
				return "", err
			}
			paid, err := pay(ctx)
			if err != nil {
				return "", err
			}
			_, err = durable.WaitSignal[int](ctx, "end")
			return paid, err
		})
	}
	versioned := func(lowest int) *durable.Function[int, string] {
		return order(func(ctx durable.Context) (string, error) {
			v, err := durable.Version(ctx, "new-bank", lowest, 1)
			if err != nil {
				return "", err
			}
			if again, err := durable.Version(ctx, "new-bank", lowest, 1); err != nil || again != v {
				return "", fmt.Errorf("version %d, then %d: %w", v, again, err)
			}
			return step(ctx, []string{"pay-old", "pay-new"}[v])
		})
	}
	v0 := order(func(ctx durable.Context) (string, error) { return step(ctx, "pay-old") })
	before := w.work(durable.WorkerOptions{Name: "v0"}, v0)
	beyond, ahead, last := begin(w, v0, "beyond", 1), begin(w, v0, "ahead", 1), begin(w, v0, "last", 1)
	for _, id := range []string{"beyond", "last"} {
		w.signal(id, "pay", "1")
		w.waitsFor(id, "end")
	}
	before.stop()

	v1 := versioned(0)
	both := w.work(durable.WorkerOptions{Name: "v1"}, v1)
	fresh := begin(w, v1, "fresh", 1)
	for _, id := range []string{"ahead", "fresh"} {
		w.signal(id, "pay", "1")
		w.waitsFor(id, "end")
	}
	for _, id := range []string{"beyond", "ahead", "fresh"} {
		w.signal(id, "end", "1")
	}
	for h, want := range map[*durable.Handle[string]]string{beyond: "pay-old", ahead: "pay-new", fresh: "pay-new"} {
		if got := result(t, h); got != want {
			t.Errorf("%s: %q, must be %q", h.ID(), got, want)
		}
	}
	both.noProblems()
	both.stop()

	// Without the old version the last one cannot continue, and is listed with the reason.
	without := w.work(durable.WorkerOptions{Name: "v2"}, versioned(1))
	w.signal("last", "end", "1")
	without.saw(durable.EventProblem, "last", 1)
	until(t, "the problem in the list", func() error {
		rows := w.list(client.ListOptions{Problem: true})
		if len(rows) != 1 || rows[0].GetId() != "last" || !strings.Contains(rows[0].GetProblem(), "version 0 of change") {
			return fmt.Errorf("listed %v", rows)
		}
		return nil
	})
	without.stop()
	w.work(durable.WorkerOptions{Name: "v1-again"}, v1)
	if got := result(t, last); got != "pay-old" {
		t.Errorf("last: %q", got)
	}
	if rows := w.list(client.ListOptions{Problem: true}); len(rows) != 0 {
		t.Errorf("listed %v", rows)
	}
}

// TestRetryFailed: a failed function is retried from the step that failed, under its id; what had succeeded
// does not run again.
func TestRetryFailed(t *testing.T) {
	t.Parallel() // it waits most of the time
	w := newWorld(t)
	var charged, shipped atomic.Int32
	var broken atomic.Bool
	broken.Store(true)
	order := durable.NewFunction("order", func(ctx durable.Context, _ int) (string, error) {
		charge, err := durable.Run(ctx, "charge", func(context.Context) (int, error) { return int(charged.Add(1)), nil })
		if err != nil {
			return "", err
		}
		ship, err := durable.Run(ctx, "ship", func(context.Context) (int, error) {
			if shipped.Add(1); broken.Load() {
				return 0, errors.New("no lorry")
			}
			return 7, nil
		}, durable.NoRetry())
		return fmt.Sprint(charge, ship), err
	})
	w.work(durable.WorkerOptions{}, order)
	h := begin(w, order, "o", 1)
	if _, err := h.Result(soon(t)); err == nil {
		t.Fatal("it did not fail")
	}
	broken.Store(false)
	r, err := w.Restart(soon(t), "o", client.RestartOptions{FromFailure: true})
	if err != nil || r.Kept != 4 {
		t.Fatalf("retried: %+v, %v", r, err)
	}
	if got := result(t, h); got != "1 7" || charged.Load() != 1 || shipped.Load() != 2 {
		t.Errorf("the result is %q: charged %d times, shipped %d times", got, charged.Load(), shipped.Load())
	}
	// A restart that keeps both steps runs neither.
	if _, err := w.Restart(soon(t), "o", client.RestartOptions{FromEvent: 7}); err != nil {
		t.Fatal(err)
	}
	if got := result(t, h); got != "1 7" || charged.Load() != 1 || shipped.Load() != 2 {
		t.Errorf("the result is %q: charged %d times, shipped %d times", got, charged.Load(), shipped.Load())
	}
}
