package durable

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

// giveUp begins an operation of every kind, gives each up, and says how each has ended. Then it takes a
// signal, which the cancelled wait must have left.
func giveUp(child *Function[string, string]) *Function[string, []string] {
	return NewFunction("give-up", func(ctx Context, _ string) (out []string, err error) {
		step, err := GoStep(ctx, "step", func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", context.Cause(ctx)
		})
		if err != nil {
			return nil, err
		}
		helper, err := Go(ctx, child, "")
		if err != nil {
			return nil, err
		}
		timer, err := After(ctx, time.Hour)
		if err != nil {
			return nil, err
		}
		word, err := NextSignal[string](ctx, "word")
		if err != nil {
			return nil, err
		}
		promise, err := NewPromise[string](ctx)
		if err != nil {
			return nil, err
		}
		call, err := GoCallEntity[string](ctx, heldEntity, "add", 1)
		if err != nil {
			return nil, err
		}
		ended := func(name string, err error) {
			out = append(out, fmt.Sprint(name, " ", errors.Is(err, ErrCancelled)))
		}
		for _, f := range []*Future[string]{step, helper, word, promise.Future, call} {
			if err := f.Cancel(ctx); err != nil {
				return nil, err
			}
			// A commit of its own for each, so that the worker can be lost between any two.
			if _, err := Run(ctx, "between", func(context.Context) (int, error) { return 0, nil }); err != nil {
				return nil, err
			}
		}
		if err := timer.Cancel(ctx); err != nil {
			return nil, err
		}
		for i, f := range []*Future[string]{step, helper, word, promise.Future, call} {
			_, err := f.Get(ctx)
			ended([]string{"step", "child", "signal", "promise", "entity"}[i], err)
		}
		_, err = timer.Get(ctx)
		ended("timer", err)
		text, err := WaitSignal[string](ctx, "word")
		return append(out, text), err
	})
}

// The worker is lost at every commit of a function that gives operations of every kind up, before or after
// the commit is applied: each operation ends as cancelled once, and the signal goes to the next wait.
func TestCancelSurvivesCrashes(t *testing.T) {
	waits := NewFunction("waits", func(ctx Context, _ string) (string, error) { return WaitSignal[string](ctx, "nothing") })
	const want = `["step true","child true","signal true","promise true","entity true","timer true","hello"]`
	most := 0
	for crashAt := 0; crashAt == 0 || crashAt <= most; crashAt++ {
		for _, after := range []bool{false, true} {
			f := newFake(t)
			f.signals["word"] = []string{`"hello"`}
			commits := 0
			f.onCommit = func(ex *fakeExec, _ *perdurev1.Commit) (fa fault) {
				if commits++; commits == crashAt {
					fa.before, fa.after, fa.lost = !after, after, after
					if !after {
						f.expire(ex)
					}
				}
				return fa
			}
			f.worker(WorkerOptions{}, giveUp(waits), waits)
			f.start("x", "give-up", `""`)
			if o := f.finished("x"); string(o.GetValue()) != want {
				t.Fatalf("crash %d, after %t: %v, must be %s\n%s", crashAt, after, o, want, f.dump())
			}
			if crashAt == 0 {
				most = commits
			}
		}
	}
	if most < 8 {
		t.Errorf("the function takes %d commits, too few to lose the worker in between", most)
	}
}
