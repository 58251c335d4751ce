package durable

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

// unhurried holds results for longer than any test takes: nothing is committed in the background.
var unhurried = holdTimes{step: time.Hour, repeatable: time.Hour}

// recordedSteps counts the results of steps in an execution's journal; the lock is held.
func (f *fakeServer) recordedSteps(id string) (n int) {
	for _, e := range f.execs[id].entries {
		if e.GetEvent().GetInvokeCompleted() != nil {
			n++
		}
	}
	return n
}

// countedSteps is a function of n steps. Each returns how many results the journal has when it runs.
func countedSteps(f *fakeServer, runs *counter, n int, opts ...StepOption) *Function[string, []int] {
	return NewFunction("f", func(ctx Context, _ string) (seen []int, err error) {
		for i := range n {
			recorded, err := Run(ctx, "s", func(context.Context) (int, error) {
				runs.hit(fmt.Sprint(i))
				f.mu.Lock()
				defer f.mu.Unlock()
				return f.recordedSteps("x"), nil
			}, opts...)
			if err != nil {
				return nil, err
			}
			seen = append(seen, recorded)
		}
		return seen, nil
	})
}

// The last step's result travels with the end, and every other one is recorded before the next step runs.
func TestLastStepAndEndAreOneCommit(t *testing.T) {
	f := newFake(t)
	f.hold = unhurried
	var runs counter
	f.worker(WorkerOptions{}, countedSteps(f, &runs, 3))
	f.start("x", "f", `""`)
	if o := f.finished("x"); string(o.GetValue()) != "[0,1,2]" {
		t.Errorf("the steps saw %v recorded", o)
	}
	if got := kinds(f.journalOf("x")); got != "[S s1 c1 S s1 c1 S s1 c1 ]" {
		t.Errorf("journal %s", got)
	}
	if len(f.commits) != 3 {
		t.Errorf("%d commits, want 3", len(f.commits))
	}
	last := f.commits[len(f.commits)-1].GetEvents()
	if len(last) != 4 || last[2].GetInvokeCompleted() == nil || last[3].GetExecutionCompleted() == nil {
		t.Errorf("the last commit has %v", last)
	}
}

// A step's result and the wait that follows are one commit, and the function continues in memory with it forgotten.
func TestStepAndWaitAreOneCommit(t *testing.T) {
	f := newFake(t)
	f.hold = unhurried
	var runs counter
	var seen events
	f.worker(WorkerOptions{OnEvent: seen.on}, NewFunction("f", func(ctx Context, _ string) (int, error) {
		n, err := Run(ctx, "s", func(context.Context) (int, error) {
			runs.hit("s")
			return 7, nil
		})
		if err != nil {
			return 0, err
		}
		if err := Sleep(ctx, time.Hour); err != nil {
			return 0, err
		}
		if !ctx.activation().journal.ops[0].spent() {
			t.Error("the worker keeps the record of a step that nobody can ask for")
		}
		return n, nil
	}))
	f.start("x", "f", `""`)
	if o := f.finished("x"); string(o.GetValue()) != "7" || runs.of("s") != 1 {
		t.Errorf("%v after %d runs", o, runs.of("s"))
	}
	if len(f.commits) != 2 || seen.count(EventContinued) != 1 {
		t.Errorf("%d commits, want 2; continued %d times", len(f.commits), seen.count(EventContinued))
	}
}

// A result that waits while the function computes is committed in the background, whatever becomes of the stream.
func TestHeldResultIsCommittedInTheBackground(t *testing.T) {
	for name, disturb := range map[string]fault{"quiet": {}, "before": {before: true}, "after": {after: true},
		"unknown": {reason: perdurev1.Reason_REASON_OUTCOME_UNKNOWN}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.hold = holdTimes{step: defaultHold.step, repeatable: time.Hour}
			first := true
			f.onCommit = func(*fakeExec, *perdurev1.Commit) fault {
				if first {
					first = false
					return disturb
				}
				return fault{}
			}
			var runs counter
			f.worker(WorkerOptions{}, NewFunction("f", func(ctx Context, _ string) (int, error) {
				step := func(n int, opts ...StepOption) (int, error) {
					return Run(ctx, "s", func(context.Context) (int, error) {
						runs.hit(fmt.Sprint(n))
						return n, nil
					}, opts...)
				}
				a, err := step(1)
				if err != nil {
					return 0, err
				}
				f.wait("the result", func() bool { return f.recordedSteps("x") == 1 })
				if _, err := Random(ctx); err != nil {
					return 0, err
				}
				b, err := step(2, Repeatable()) // held for long: the end comes first on the slowest machine
				return a + b, err
			}))
			f.start("x", "f", `""`)
			if o := f.finished("x"); string(o.GetValue()) != "3" || runs.of("1") != 1 || runs.of("2") != 1 {
				t.Errorf("%v after %d and %d runs", o, runs.of("1"), runs.of("2"))
			}
			if len(f.commits) != 3 { // the first step; the random number; the second step and the end
				t.Errorf("%d commits, want 3", len(f.commits))
			}
		})
	}
}

// An activation that gives its task back commits what it holds first: the step does not run again.
func TestHeldResultIsCommittedBeforeTheRelease(t *testing.T) {
	for name, end := range map[string]func(ctx Context){
		"panic": func(Context) { panic("after the step") },
		"misuse": func(ctx Context) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = Random(ctx) // a misuse
			}()
			<-done
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			var runs counter
			calls := 0
			f.worker(WorkerOptions{}, NewFunction("f", func(ctx Context, _ string) (int, error) {
				calls++
				n, err := Run(ctx, "s", func(context.Context) (int, error) {
					runs.hit("s")
					return 5, nil
				})
				if calls == 1 {
					end(ctx)
				}
				return n, err
			}))
			f.start("x", "f", `""`)
			if r := f.released(1); r.GetProblem() == "" {
				t.Error("released without a problem")
			}
			f.mu.Lock()
			recorded := f.recordedSteps("x")
			f.mu.Unlock()
			f.wake("x")
			if o := f.finished("x"); string(o.GetValue()) != "5" || runs.of("s") != 1 || recorded != 1 {
				t.Errorf("%v after %d runs, %d recorded at the release", o, runs.of("s"), recorded)
			}
		})
	}
}

// A stopping worker leaves no result behind: the next one does not run the step again.
func TestHeldResultIsCommittedAtTheStop(t *testing.T) {
	f := newFake(t)
	var runs counter
	returned, goOn := make(chan struct{}), make(chan struct{})
	fn := NewFunction("f", func(ctx Context, _ string) (int, error) {
		n, err := Run(ctx, "s", func(context.Context) (int, error) {
			runs.hit("s")
			return 5, nil
		}, Repeatable())
		if err != nil {
			return 0, err
		}
		if runs.of("called") == 0 {
			runs.hit("called")
			close(returned)
			<-goOn
		}
		return n, Sleep(ctx, time.Second)
	})
	w, stop := f.worker(WorkerOptions{}, fn)
	f.start("x", "f", `""`)
	<-returned
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	until(t, "the stop", w.isStopping)
	close(goOn)
	<-stopped
	f.worker(WorkerOptions{}, fn)
	if o := f.finished("x"); string(o.GetValue()) != "5" || runs.of("s") != 1 {
		t.Errorf("%v after %d runs", o, runs.of("s"))
	}
}

// A worker that is lost between a step's return and the commit loses the result: nobody was told of it.
func TestLostWithAHeldResult(t *testing.T) {
	f := newFake(t)
	var runs counter
	lost := false
	f.onCommit = func(ex *fakeExec, _ *perdurev1.Commit) fault {
		if !lost {
			lost = true
			f.expire(ex)
		}
		return fault{}
	}
	f.worker(WorkerOptions{}, countedSteps(f, &runs, 1))
	f.start("x", "f", `""`)
	if o := f.finished("x"); string(o.GetValue()) != "[0]" || runs.of("0") != 2 {
		t.Errorf("%v after %d runs", o, runs.of("0"))
	}
}

// A cancel that comes while a result is held: neither it nor what the function asks for later is recorded, and the
// execution ends as cancelled.
func TestCancelWhileAResultIsHeld(t *testing.T) {
	for _, asks := range []bool{false, true} {
		t.Run(fmt.Sprint(asks), func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.onCommit = func(ex *fakeExec, c *perdurev1.Commit) fault {
				if ex.j.Status().Terminal() || slices.ContainsFunc(c.GetEvents(), func(e *perdurev1.Event) bool { return e.GetExecutionCancelled() != nil }) {
					return fault{}
				}
				if len(ex.entries) == 1 {
					f.append(ex, &perdurev1.Event{Kind: &perdurev1.Event_CancelRequested{CancelRequested: &perdurev1.CancelRequested{Reason: "enough"}}})
				}
				return fault{}
			}
			var after error
			f.worker(WorkerOptions{}, NewFunction("f", func(ctx Context, _ string) (int, error) {
				n, err := Run(ctx, "s", func(context.Context) (int, error) { return 1, nil })
				if err == nil && asks {
					_, err = Run(ctx, "s", func(context.Context) (int, error) {
						t.Error("a step of a cancelled execution ran")
						return 2, nil
					})
					after = err
				}
				return n, err
			}))
			f.start("x", "f", `""`)
			o := f.finished("x")
			if o.GetFailure().GetType() != TypeCancelled || asks && !errors.Is(after, ErrCancelled) {
				t.Errorf("%v, the next operation %v", o, after)
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			if n := f.recordedSteps("x"); n != 0 {
				t.Errorf("%d results are recorded after the cancel", n)
			}
		})
	}
}

// Results of Repeatable steps are recorded with the next operation that is not one, and with the end.
func TestRepeatableStepsAndTheEndAreOneCommit(t *testing.T) {
	f := newFake(t)
	f.hold = unhurried
	var runs counter
	f.worker(WorkerOptions{}, countedSteps(f, &runs, 3, Repeatable()))
	f.start("x", "f", `""`)
	if o := f.finished("x"); string(o.GetValue()) != "[0,0,0]" {
		t.Errorf("the steps saw %v recorded", o)
	}
	if got := kinds(f.journalOf("x")); got != "[S s1 c1 S s1 c1 S s1 c1 ]" {
		t.Errorf("journal %s", got)
	}
	if len(f.commits) != 1 {
		t.Errorf("%d commits, want 1", len(f.commits))
	}
}

// A Repeatable step does not run before what is not Repeatable is recorded, and no other step before it is.
func TestRepeatableBetweenOthers(t *testing.T) {
	f := newFake(t)
	f.worker(WorkerOptions{}, NewFunction("f", func(ctx Context, _ string) (seen []int, err error) {
		step := func(opts ...StepOption) {
			if err != nil {
				return
			}
			var n int
			n, err = Run(ctx, "s", func(context.Context) (int, error) {
				f.mu.Lock()
				defer f.mu.Unlock()
				return f.recordedSteps("x") + int(100*f.execs["x"].cleanupMS), nil
			}, opts...)
			seen = append(seen, n)
		}
		step()             // sees 0
		step(Repeatable()) // sees 1
		step(Repeatable()) // sees 1
		step()             // sees 3
		step(Repeatable()) // sees 4
		Cleanup(ctx, func(Context) error { return nil }, CleanupWithin(time.Millisecond))
		step(Repeatable()) // sees 5, and the clean-up
		return seen, err
	}))
	f.start("x", "f", `""`)
	if o := f.finished("x"); string(o.GetValue()) != "[0,1,1,3,4,105]" {
		t.Errorf("the steps saw %v recorded", o)
	}
}

// A worker that is lost after Repeatable steps runs all of them again, and the result is what they return then.
func TestRepeatableStepsRunAgain(t *testing.T) {
	f := newFake(t)
	var runs counter
	lost := false
	f.onCommit = func(ex *fakeExec, _ *perdurev1.Commit) fault {
		if !lost {
			lost = true
			f.expire(ex)
		}
		return fault{}
	}
	f.worker(WorkerOptions{}, countedSteps(f, &runs, 3, Repeatable()))
	f.start("x", "f", `""`)
	f.finished("x")
	for _, n := range []string{"0", "1", "2"} {
		if runs.of(n) != 2 {
			t.Errorf("step %s ran %d times, want 2", n, runs.of(n))
		}
	}
}

// A result too large for the buffer is committed at once.
func TestLargeResultIsNotHeld(t *testing.T) {
	f := newFake(t)
	f.worker(WorkerOptions{}, NewFunction("f", func(ctx Context, _ string) (bool, error) {
		_, err := Run(ctx, "s", func(context.Context) ([]byte, error) { return make([]byte, bufferBytes), nil })
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.recordedSteps("x") == 1, err
	}))
	f.start("x", "f", `""`)
	if o := f.finished("x"); string(o.GetValue()) != "true" {
		t.Error(o)
	}
}

// The result of a step WithIntent is recorded before the function continues: a cancel may come at any moment after.
func TestIntentIsNotHeld(t *testing.T) {
	f := newFake(t)
	f.worker(WorkerOptions{}, NewFunction("f", func(ctx Context, _ string) (bool, error) {
		_, err := Run(ctx, "s", func(context.Context) (int, error) { return 1, nil }, WithIntent(), Repeatable())
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.recordedSteps("x") == 1, err
	}))
	f.start("x", "f", `""`)
	if o := f.finished("x"); string(o.GetValue()) != "true" {
		t.Error(o)
	}
}
