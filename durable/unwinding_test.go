package durable

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

// Deferred functions run when the function gives its activation up; operations in them do nothing, and no error
// or panic is seen.
func TestUnwinding(t *testing.T) {
	f := newFake(t)
	f.manual = true
	var defers, saw, after atomic.Int32
	f.worker(WorkerOptions{StickyFunctions: -1}, NewFunction("f", func(ctx Context, _ string) (out string, err error) {
		defer func() {
			defers.Add(1)
			if recover() != nil || err != nil {
				saw.Add(1)
			}
		}()
		done := false
		defer func() {
			if done {
				return
			}
			_, _ = Run(ctx, "in a defer", func(context.Context) (int, error) { after.Add(1); return 0, nil })
			after.Add(1)
		}()
		defer func() {
			if !done {
				_ = Sleep(ctx, time.Second)
				after.Add(1)
			}
		}()
		_, err = WaitSignal[string](ctx, "go")
		done = true
		return "done", err
	}))
	f.start("x", "f", "")
	f.wait("the wait", func() bool { return f.execs["x"].state == perdurev1.TaskState_TASK_STATE_SUSPENDED })
	f.mu.Lock()
	f.deliver(f.execs["x"], "go", value(`"x"`))
	f.dispatch()
	f.mu.Unlock()
	if o := f.finished("x"); string(o.GetValue()) != `"done"` {
		t.Error(o)
	}
	f.wait("the ends of both activations", func() bool { return defers.Load() == 2 })
	if defers.Load() != 2 || saw.Load() != 0 || after.Load() != 0 {
		t.Errorf("%d defers ran, %d saw something, %d went on", defers.Load(), saw.Load(), after.Load())
	}
}

// A panic in a deferred function while unwinding is the function's fault, and does not take the process.
func TestPanicWhileUnwinding(t *testing.T) {
	f := newFake(t)
	f.manual = true
	once := sync.OnceFunc(func() { panic("in a defer") })
	f.worker(WorkerOptions{StickyFunctions: -1}, NewFunction("f", func(ctx Context, _ string) (string, error) {
		done := false
		defer func() {
			if !done {
				once()
			}
		}()
		err := Sleep(ctx, time.Hour)
		done = true
		return "done", err
	}))
	f.start("x", "f", "")
	f.wait("the wait", func() bool { return f.execs["x"].state == perdurev1.TaskState_TASK_STATE_SUSPENDED })
	f.mu.Lock()
	f.manual = false
	f.world(f.execs["x"])
	f.dispatch()
	f.mu.Unlock()
	if o := f.finished("x"); string(o.GetValue()) != `"done"` {
		t.Error(o)
	}
}
