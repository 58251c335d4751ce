package durable

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/journal"
)

const cleanupOfX = "x:4294967295"

// bank is an outside world: what was done with it, by idempotency key, so that a repeated effect counts once.
type bank struct {
	mu   sync.Mutex
	done map[string]int
	keys map[string]bool
	log  []string
}

func newBank() *bank { return &bank{done: map[string]int{}, keys: map[string]bool{}} }

func (b *bank) act(ctx context.Context, what string, key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if key == "" {
		key = StepInfo(ctx).PromiseID
	}
	if key = what + " " + key; !b.keys[key] {
		b.keys[key] = true
		b.done[what]++
		b.log = append(b.log, what)
	}
}

func (b *bank) count(what string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.done[what]
}

func (b *bank) story() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.log, ", ")
}

// trip is a saga of three steps: a seat, a room, and a payment that may be refused. An undo refers to the key of the
// step that it undoes.
func trip(b *bank, refused bool) *Function[string, string] {
	return NewFunction("trip", func(ctx Context, in string) (string, error) {
		saga := NewSaga(ctx)
		for _, what := range []string{"seat", "room"} {
			_, err := Do(ctx, saga, what, func(ctx context.Context) (string, error) {
				b.act(ctx, what, "")
				return what + " of " + in, nil
			}, func(ctx context.Context, done Done[string]) error {
				b.act(ctx, "cancel "+what, done.PromiseID)
				return nil
			})
			if err != nil {
				return "", err
			}
		}
		if _, err := WaitSignal[string](ctx, "paid"); err != nil {
			return "", err
		}
		return Run(ctx, "pay", func(ctx context.Context) (string, error) {
			if refused {
				return "", Permanent(&Error{Type: "declined", Message: "no money"})
			}
			b.act(ctx, "pay", "")
			return "paid", nil
		})
	})
}

// A saga of a function that fails is undone in line, last things first, before the execution fails.
func TestSagaUndoneAfterError(t *testing.T) {
	f, b := newFake(t), newBank()
	f.signals["paid"] = []string{`"yes"`}
	f.worker(WorkerOptions{}, trip(b, true))
	f.start("x", "trip", `"ann"`)
	if o := f.finished("x"); o.GetFailure().GetType() != "declined" {
		t.Errorf("ended with %v", o)
	}
	if got := b.story(); got != "seat, room, cancel room, cancel seat" {
		t.Error(got)
	}
	if f.execs[cleanupOfX] != nil {
		t.Error("a clean-up was started, and nothing was cancelled")
	}
}

// A saga of a function that succeeds is not undone.
func TestSagaKept(t *testing.T) {
	f, b := newFake(t), newBank()
	f.signals["paid"] = []string{`"yes"`}
	f.worker(WorkerOptions{}, trip(b, false))
	f.start("x", "trip", `"ann"`)
	if o := f.finished("x"); string(o.GetValue()) != `"paid"` {
		t.Errorf("ended with %v", o)
	}
	if got := b.story(); got != "seat, room, pay" {
		t.Error(got)
	}
}

// A saga of a function that is cancelled while it waits is undone by the clean-up execution, also when no
// worker lives to acknowledge the cancel.
func TestSagaUndoneAfterCancel(t *testing.T) {
	for _, gone := range []bool{false, true} {
		t.Run(fmt.Sprintf("worker gone %t", gone), func(t *testing.T) {
			f, b := newFake(t), newBank()
			f.manual = true
			_, stop := f.worker(WorkerOptions{}, trip(b, false))
			f.start("x", "trip", `"ann"`)
			f.wait("the wait for the payment", func() bool { return f.execs["x"].state == perdurev1.TaskState_TASK_STATE_SUSPENDED })
			if gone {
				stop()
				f.cancel("x", "enough")
				f.endGrace("x")
				f.worker(WorkerOptions{}, trip(b, false))
			} else {
				f.cancel("x", "enough")
			}
			if o := f.finished(cleanupOfX); o.GetFailure() != nil {
				t.Errorf("the clean-up ended with %v", o)
			}
			if got := b.story(); got != "seat, room, cancel room, cancel seat" {
				t.Error(got)
			}
			if o := f.finished("x"); o.GetFailure().GetType() != TypeCancelled {
				t.Errorf("ended with %v", o)
			}
		})
	}
}

// The worker is lost at every commit of a saga that is cancelled at every commit, before or after the commit
// is applied: whatever was booked is cancelled once, and nothing else.
func TestSagaSurvivesCrashes(t *testing.T) {
	for cancelAt := 1; cancelAt <= 6; cancelAt++ {
		t.Run(fmt.Sprint("cancel ", cancelAt), func(t *testing.T) {
			t.Parallel() // it waits most of the time
			for crashAt := 1; crashAt <= 12; crashAt++ {
				for _, after := range []bool{false, true} {
					name := fmt.Sprintf("cancel %d, crash %d, after %t", cancelAt, crashAt, after)
					f, b := newFake(t), newBank()
					commits := 0
					f.signals["paid"] = []string{`"yes"`}
					f.onCommit = func(ex *fakeExec, _ *perdurev1.Commit) (fa fault) {
						if commits++; commits == cancelAt && !ex.j.Status().Terminal() && ex.j.Status() != journal.StatusCancelling && ex.id == "x" {
							f.cancelLocked(ex, "enough")
						}
						if commits == crashAt {
							fa.before, fa.after, fa.lost = !after, after, after
							if !after {
								f.expire(ex)
							}
						}
						return fa
					}
					f.worker(WorkerOptions{}, trip(b, false))
					f.start("x", "trip", `"ann"`)
					f.finished("x")
					f.mu.Lock()
					clean := f.execs[cleanupOfX]
					f.mu.Unlock()
					if clean != nil {
						if o := f.finished(cleanupOfX); o.GetFailure() != nil {
							t.Errorf("%s: the clean-up ended with %v", name, o)
						}
					}
					cancelled := f.outcome("x").GetFailure() != nil
					for _, what := range []string{"seat", "room"} {
						booked, undone := b.count(what), b.count("cancel "+what)
						if booked > 1 || undone > 1 || cancelled && undone < booked || !cancelled && undone > 0 {
							t.Errorf("%s: %s booked %d times, cancelled %d times; cancelled %t:\n%s\n%s", name, what, booked, undone, cancelled, b.story(), f.dump())
						}
					}
				}
			}
		})
	}
}

func (f *fakeServer) outcome(executionID string) *perdurev1.Outcome {
	f.mu.Lock()
	defer f.mu.Unlock()
	return outcomeOf(f.execs[executionID])
}

// A cancel in the middle of an undoing in line: what is undone stays undone, the rest runs in the clean-up execution.
func TestSagaCancelledWhileUndone(t *testing.T) {
	f, b := newFake(t), newBank()
	f.signals["paid"] = []string{`"yes"`}
	f.onCommit = func(ex *fakeExec, c *perdurev1.Commit) fault {
		if ex.id == "x" && b.count("cancel room") == 1 && ex.j.Status() != journal.StatusCancelling &&
			slices.ContainsFunc(c.GetEvents(), func(e *perdurev1.Event) bool { return e.GetInvokeCompleted() != nil }) {
			defer f.cancelLocked(ex, "enough")
		}
		return fault{}
	}
	f.worker(WorkerOptions{}, trip(b, true))
	f.start("x", "trip", `"ann"`)
	if o := f.finished("x"); o.GetFailure().GetType() != TypeCancelled {
		t.Fatalf("ended with %v", o)
	}
	f.finished(cleanupOfX)
	if got := b.story(); got != "seat, room, cancel room, cancel seat" {
		t.Error(got)
	}
}

// Cleanup is for what is no step: it may use every operation, sees the function's variables, and knows where it runs.
func TestCleanup(t *testing.T) {
	f := newFake(t)
	f.manual = true
	var mu sync.Mutex
	var said []string
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, fmt.Sprintf(format, args...))
	}
	fn := NewFunction("f", func(ctx Context, in string) (string, error) {
		room := ""
		Cleanup(ctx, func(ctx Context) error {
			info := Info(ctx)
			n, err := Random(ctx)
			if err != nil {
				return err
			}
			again, err := Run(ctx, "close", func(ctx context.Context) (string, error) {
				say("closes %s of %s in %q as %s: %t", room, info.ID, info.Cleanup, StepInfo(ctx).PromiseID, ctx.Err() == nil)
				return "closed", nil
			})
			if err != nil || again != "closed" || n == 0 {
				say("%v %v %v", n, again, err)
			}
			return err
		})
		var err error
		if room, err = Run(ctx, "open", func(context.Context) (string, error) { return "room 7", nil }); err != nil {
			return "", err
		}
		_, err = WaitSignal[string](ctx, "never")
		if !errors.Is(err, ErrCancelled) || ctx.Err() == nil {
			say("the wait ended with %v", err)
		}
		return "", err
	})
	f.worker(WorkerOptions{}, fn)
	f.start("x", "f", `"in"`)
	f.wait("the wait", func() bool { return f.execs["x"].state == perdurev1.TaskState_TASK_STATE_SUSPENDED })
	f.cancel("x", "enough")
	f.finished(cleanupOfX)
	mu.Lock()
	defer mu.Unlock()
	if want := []string{`closes room 7 of x in "` + cleanupOfX + `" as ` + cleanupOfX + `.1: true`}; !slices.Equal(said, want) {
		t.Errorf("%q", said)
	}
	if got := kinds(f.journalOf(cleanupOfX)); got != "[*perdurev1.Event_RandomGenerated S s1 c1 ]" {
		t.Errorf("the clean-up's journal: %s", got)
	}
}

// A step without a recorded intent runs only after the cluster knows of the clean-up.
func TestCleanupKnownBeforeStep(t *testing.T) {
	f := newFake(t)
	known := false
	f.worker(WorkerOptions{}, NewFunction("f", func(ctx Context, _ string) (string, error) {
		Cleanup(ctx, func(Context) error { return nil })
		return Run(ctx, "s", func(context.Context) (string, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			known = f.execs["x"].cleanupMS == DefaultCleanupTime.Milliseconds()
			return "", nil
		})
	}))
	f.start("x", "f", "")
	f.finished("x")
	if !known {
		t.Error("the step ran, and the cluster did not know of the clean-up")
	}
}

// Code that registers no clean-up is not the code that was cancelled: its worker gives the clean-up back.
func TestCleanupOfOtherCode(t *testing.T) {
	f, b := newFake(t), newBank()
	f.manual = true
	_, stop := f.worker(WorkerOptions{}, trip(b, false))
	f.start("x", "trip", `"ann"`)
	f.wait("the wait for the payment", func() bool { return f.execs["x"].state == perdurev1.TaskState_TASK_STATE_SUSPENDED })
	stop()
	f.cancel("x", "enough")
	f.endGrace("x")
	_, stop = f.worker(WorkerOptions{}, NewFunction("trip", func(ctx Context, in string) (string, error) {
		_, err := Run(ctx, "seat", func(context.Context) (string, error) { return "", nil })
		return "", err
	}))
	f.wait("the release", func() bool { return len(f.releases) > 0 && f.releases[len(f.releases)-1].GetProblem() != "" })
	stop()
	f.worker(WorkerOptions{}, trip(b, false))
	f.wake(cleanupOfX)
	f.finished(cleanupOfX)
	if got := b.story(); got != "seat, room, cancel room, cancel seat" {
		t.Error(got)
	}
}

// Forget keeps what was done, and the cluster learns that there is nothing to clean up.
func TestSagaForget(t *testing.T) {
	f := newFake(t)
	f.manual = true
	f.worker(WorkerOptions{}, NewFunction("f", func(ctx Context, _ string) (string, error) {
		saga := NewSaga(ctx)
		_, err := Do(ctx, saga, "s", func(context.Context) (string, error) { return "", nil },
			func(context.Context, Done[string]) error { t.Error("undone"); return nil })
		if err != nil {
			return "", err
		}
		saga.Forget()
		return WaitSignal[string](ctx, "go on")
	}))
	f.start("x", "f", "")
	f.wait("the wait", func() bool { return f.execs["x"].state == perdurev1.TaskState_TASK_STATE_SUSPENDED })
	f.cancel("x", "enough")
	f.finished("x")
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.execs["x"].cleanupMS != 0 || f.execs[cleanupOfX] != nil {
		t.Errorf("the cluster has a clean-up for %d ms", f.execs["x"].cleanupMS)
	}
}

// Rollback undoes in the middle of the function, which then goes on.
func TestSagaRollback(t *testing.T) {
	f, b := newFake(t), newBank()
	f.worker(WorkerOptions{}, NewFunction("f", func(ctx Context, _ string) (string, error) {
		saga := NewSaga(ctx)
		step := func(what string, fails error) error {
			_, err := Do(ctx, saga, what, func(ctx context.Context) (string, error) { b.act(ctx, what, ""); return "", fails },
				func(ctx context.Context, done Done[string]) error {
					b.act(ctx, fmt.Sprintf("undo %s %t", what, done.Known), done.PromiseID)
					return nil
				}, NoRetry())
			return err
		}
		_ = step("good", nil)
		_ = step("unknown", errors.New("no answer"))
		_ = step("refused", Permanent(errors.New("no")))
		err := saga.Rollback(ctx)
		return Run(ctx, "apologize", func(ctx context.Context) (string, error) { b.act(ctx, "apologize", ""); return "", err })
	}))
	f.start("x", "f", "")
	if o := f.finished("x"); o.GetFailure() != nil {
		t.Errorf("ended with %v", o)
	}
	if got := b.story(); got != "good, unknown, refused, undo unknown false, undo good true, apologize" {
		t.Error(got)
	}
}

// An undo that a cancel interrupts before it has done anything runs in the clean-up execution.
func TestSagaInterruptedUndo(t *testing.T) {
	f, b := newFake(t), newBank()
	var once sync.Once // the clean-up replays the function
	f.worker(WorkerOptions{}, NewFunction("f", func(ctx Context, _ string) (string, error) {
		saga := NewSaga(ctx)
		_, err := Do(ctx, saga, "seat", func(ctx context.Context) (string, error) { b.act(ctx, "seat", ""); return "", nil },
			func(ctx context.Context, done Done[string]) error {
				b.act(ctx, "cancel seat", done.PromiseID)
				return nil
			})
		if err != nil {
			return "", err
		}
		once.Do(func() { f.cancel("x", "enough") })
		_, _ = Now(ctx) // recorded before the undo runs, which learns of the cancel
		return "", saga.Rollback(ctx)
	}))
	f.start("x", "f", "")
	f.finished("x")
	f.finished(cleanupOfX)
	if got := b.story(); got != "seat, cancel seat" {
		t.Error(got)
	}
}

// A future of the cancelled function is refused in its clean-up, by a rule that names what to do: the clean-up's own
// operations have the same numbers, and its result would be another operation's.
func TestCleanupRefusesFuturesOfTheFunction(t *testing.T) {
	f := newFake(t)
	f.manual = true
	fn := NewFunction("f", func(ctx Context, _ string) (string, error) {
		rate, err := GoStep(ctx, "rate", func(context.Context) (string, error) { return "of the function", nil })
		if err != nil {
			return "", err
		}
		Cleanup(ctx, func(ctx Context) error {
			if _, err := Run(ctx, "undo", func(context.Context) (string, error) { return "of the clean-up", nil }); err != nil {
				return err
			}
			_, err := rate.Get(ctx)
			return err
		})
		return WaitSignal[string](ctx, "never")
	})
	f.worker(WorkerOptions{}, fn)
	f.start("x", "f", `"in"`)
	f.wait("the wait", func() bool { return f.execs["x"].state == perdurev1.TaskState_TASK_STATE_SUSPENDED })
	f.cancel("x", "enough")
	if f.endsUnreleased(cleanupOfX) {
		t.Fatal("the clean-up has ended")
	}
	if got := f.released(1).GetProblem(); !strings.Contains(got, "a future of the cancelled function") {
		t.Errorf("released with %q", got)
	}
}
