package durable

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
)

// The future of a signal says what became of it, the same at every replay; Signal does not wait for it.
func TestGoSignal(t *testing.T) {
	f := newFake(t)
	f.missing = map[string]bool{"missing": true}
	f.children["far"] = func(target []byte) *perdurev1.Outcome {
		switch string(target) {
		case "over":
			return failure(TypeTargetFinished, "execution over has ended")
		case "none":
			return failure(TypeTargetNotFound, "no execution none")
		}
		return &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{}}
	}
	fn := NewFunction("sender", func(ctx Context, _ string) ([]string, error) {
		var out []string
		var all []*Future[struct{}]
		for _, to := range []struct{ id, name string }{{"missing", "near"}, {"other", "near"}, {"over", "far"}, {"none", "far"}, {"there", "far"}} {
			if err := Signal(ctx, to.id, to.name, 1); err != nil {
				return nil, fmt.Errorf("Signal to %s: %w", to.id, err)
			}
			sent, err := GoSignal(ctx, to.id, to.name, 1)
			if err != nil {
				return nil, fmt.Errorf("GoSignal to %s: %w", to.id, err)
			}
			all = append(all, sent)
		}
		for _, sent := range all {
			_, err := sent.Get(ctx)
			var e *Error
			errors.As(err, &e)
			out = append(out, fmt.Sprint(errors.Is(err, ErrTargetNotFound), errors.Is(err, ErrTargetFinished), e != nil && e.Message != ""))
			// A step between two waits: the function runs from its beginning after each.
			if _, err := Run(ctx, "note", func(context.Context) (int, error) { return 0, nil }); err != nil {
				return nil, err
			}
		}
		return out, nil
	})
	f.worker(WorkerOptions{}, fn)
	f.start("s", "sender", `""`)
	want := `["true false true","false false false","false true true","true false true","false false false"]`
	if got := string(f.finished("s").GetValue()); got != want {
		t.Errorf("the function returned %s, must return %s", got, want)
	}
}

// A cancelled execution waits for no answer.
func TestGoSignalCancelled(t *testing.T) {
	f := newFake(t)
	f.manual = true
	f.children["far"] = func([]byte) *perdurev1.Outcome { return nil }
	var wrong atomic.Int32
	f.worker(WorkerOptions{}, NewFunction("f", func(ctx Context, _ string) (string, error) {
		sent, err := GoSignal(ctx, "y", "far", 1)
		if err != nil {
			return "", err
		}
		if _, err := sent.Get(ctx); !errors.Is(err, ErrCancelled) || errors.Is(err, ErrTargetNotFound) {
			wrong.Add(1)
		}
		return "", nil
	}))
	f.start("x", "f", "")
	f.wait("the wait", func() bool { return f.execs["x"].state == perdurev1.TaskState_TASK_STATE_SUSPENDED })
	f.cancel("x", "enough")
	if o := f.finished("x").GetFailure(); o.GetType() != TypeCancelled || wrong.Load() != 0 {
		t.Errorf("outcome %v, %d wrong errors", o, wrong.Load())
	}
}
