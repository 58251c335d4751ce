package durable

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

func checkCancelled(t *testing.T, f *fakeServer, want string) {
	t.Helper()
	o := f.finished("x").GetFailure()
	if o.GetType() != TypeCancelled || o.GetMessage() != "enough" {
		t.Errorf("outcome %v", o)
	}
	if got := kinds(f.journalOf("x")); got != want {
		t.Errorf("journal %s, want %s", got, want)
	}
}

// A cancel of a waiting execution makes the wait and everything after it end with ErrCancelled. Recorded
// results are still returned, and the context stays open until then.
func TestCancelWhileWaiting(t *testing.T) {
	f := newFake(t)
	f.manual = true
	var during, after atomic.Int32
	f.worker(WorkerOptions{}, NewFunction("f", func(ctx Context, _ string) (string, error) {
		n, err := Run(ctx, "s", func(context.Context) (int, error) { return 5, nil })
		if err != nil || n != 5 || ctx.Err() != nil {
			during.Add(1)
		}
		if err := Sleep(ctx, time.Hour); !errors.Is(err, ErrCancelled) {
			after.Add(1)
		}
		if _, err := Now(ctx); !errors.Is(err, ErrCancelled) || ctx.Err() == nil || !errors.Is(context.Cause(ctx), ErrCancelled) {
			after.Add(1)
		}
		for _, op := range ops {
			if err := op(ctx); !errors.Is(err, ErrCancelled) {
				after.Add(1)
			}
		}
		return "ignored", nil
	}))
	f.start("x", "f", "")
	f.wait("the sleep", func() bool { return f.execs["x"].state == perdurev1.TaskState_TASK_STATE_SUSPENDED })
	f.cancel("x", "enough")
	checkCancelled(t, f, "[S s1 c1 *perdurev1.Event_TimerScheduled *perdurev1.Event_ExecutionAwaiting ! x")
	if during.Load() != 0 || after.Load() != 0 {
		t.Errorf("%d surprises before the cancel, %d after", during.Load(), after.Load())
	}
}

// A heartbeat's answer cancels a running step; its result is recorded only with intent.
func TestCancelWhileRunning(t *testing.T) {
	for _, c := range []struct {
		name, journal string
		opts          []StepOption
		want          func(int, error) bool
	}{
		{"plain", "[! x", nil, func(_ int, err error) bool { return errors.Is(err, ErrCancelled) }},
		{"intent", "[S s1 ! c1 x", []StepOption{WithIntent()}, func(n int, err error) bool { return n == 7 && err == nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t)
			clock := newFakeClock()
			running := make(chan struct{})
			var ok atomic.Bool
			f.worker(WorkerOptions{Clock: clock, Lease: 9 * time.Second}, NewFunction("f", func(ctx Context, _ string) (int, error) {
				n, err := Run(ctx, "s", func(ctx context.Context) (int, error) {
					close(running)
					<-ctx.Done()
					return 7, nil
				}, c.opts...)
				ok.Store(c.want(n, err))
				return n, err
			}))
			f.start("x", "f", "")
			<-running
			f.cancel("x", "enough")
			clock.pass(t, 3*time.Second)
			checkCancelled(t, f, c.journal)
			if !ok.Load() {
				t.Error("the step's outcome was not as it should be")
			}
		})
	}
}

// A cancel that arrives while a commit is on its way: whether the server drops what is new or refuses the
// commit, the operation returns ErrCancelled and the execution is acknowledged as cancelled.
func TestCancelOvertakesCommit(t *testing.T) {
	bodies := map[string]func(Context) error{}
	for name, op := range ops {
		bodies[name] = op
	}
	bodies["future"] = func(ctx Context) error {
		if _, err := Random(ctx); err != nil {
			return err
		}
		a, err := Go(ctx, echo, "a")
		if err != nil {
			return err
		}
		b, err := Go(ctx, echo, "b")
		if err != nil {
			return err
		}
		if err := AwaitAll(ctx, a, b); !errors.Is(err, ErrCancelled) {
			return errors.New("AwaitAll continued")
		}
		_, err = b.Get(ctx)
		return err
	}
	for name, body := range bodies {
		for how, fa := range map[string]fault{
			"dropped":  {},
			"refused":  {reason: perdurev1.Reason_REASON_RULE_BROKEN},
			"repeated": {after: true},
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				f := everythingServer(t)
				n := 0
				f.onCommit = func(ex *fakeExec, _ *perdurev1.Commit) fault {
					if n++; n > 1 {
						return fault{}
					}
					f.cancelLocked(ex, "enough")
					return fa
				}
				got := make(chan error, 1)
				f.worker(WorkerOptions{}, NewFunction("f", func(ctx Context, _ string) (string, error) {
					err := body(ctx)
					if err == nil { // an operation that only fills the buffer: the next one meets the cancel
						_, err = Run(ctx, "next", func(context.Context) (int, error) { return 1, nil })
					}
					got <- err
					return "", err
				}))
				f.start("x", "f", "")
				checkCancelled(t, f, "[! x")
				if err := <-got; !errors.Is(err, ErrCancelled) {
					t.Errorf("the function got %v", err)
				}
			})
		}
	}
}

// A cancelled child is a failure that its parent can tell from others, and the parent itself continues.
func TestCancelledChild(t *testing.T) {
	f := newFake(t)
	f.children["c"] = func([]byte) *perdurev1.Outcome { return failure(TypeCancelled, "elsewhere") }
	f.worker(WorkerOptions{}, NewFunction("f", func(ctx Context, _ string) (string, error) {
		_, err := CallName[string](ctx, "c", nil)
		if errors.Is(err, ErrCancelled) && ctx.Err() == nil {
			return "reported", nil
		}
		return "", err
	}))
	f.start("x", "f", "")
	if o := f.finished("x"); string(o.GetValue()) != `"reported"` {
		t.Error(o)
	}
}
