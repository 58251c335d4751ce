package durable

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// ops are bodies that ask for one operation each, under a name.
var ops = map[string]func(Context) error{
	`step "a"`: func(ctx Context) error {
		_, err := Run(ctx, "a", func(context.Context) (int, error) { return 1, nil })
		return err
	},
	`step "b"`: func(ctx Context) error {
		_, err := Run(ctx, "b", func(context.Context) (int, error) { return 1, nil })
		return err
	},
	`child "echo"`:  func(ctx Context) error { _, err := Call(ctx, echo, "x"); return err },
	`child "other"`: func(ctx Context) error { _, err := CallName[string](ctx, "other", "x"); return err },
	`signal to another execution "s"`: func(ctx Context) error {
		if err := Signal(ctx, "x", "s", 1); err != nil {
			return err
		}
		return nil
	},
	"random number":       func(ctx Context) error { _, err := Random(ctx); return err },
	"time":                func(ctx Context) error { _, err := Now(ctx); return err },
	"timer":               func(ctx Context) error { return Sleep(ctx, time.Second) },
	`signal wait "go"`:    func(ctx Context) error { _, err := WaitSignal[string](ctx, "go"); return err },
	`signal wait "never"`: func(ctx Context) error { _, err := WaitSignal[string](ctx, "never"); return timedOut(err) },
}

func timedOut(err error) error {
	if errors.Is(err, ErrTimeout) {
		return nil
	}
	return err
}

// The worker stops code that asks for anything else than the journal has at that operation, for every pair of
// kinds, and code that ends early. The journal does not change.
func TestMismatch(t *testing.T) {
	type none struct{}
	follow := func(body func(Context) error) *Function[none, none] {
		return NewFunction("f", func(ctx Context, _ none) (out none, err error) {
			if err := body(ctx); err != nil {
				return out, err
			}
			_, err = Run(ctx, "last", func(context.Context) (int, error) { return 1, nil })
			return out, err
		})
	}
	for recorded, body := range ops {
		f := everythingServer(t)
		f.children["other"] = f.children["echo"]
		f.worker(WorkerOptions{}, follow(body))
		f.start("x", "f", "")
		if o := f.finished("x"); o.GetFailure() != nil {
			t.Fatalf("%s: %v", recorded, o)
		}
		full := f.journalOf("x")
		// Without its end, and without the step after the operation.
		cut := full[:len(full)-4]
		for asked, other := range ops {
			t.Run(recorded+" against "+asked, func(t *testing.T) {
				t.Parallel()
				f := everythingServer(t)
				f.children["other"] = f.children["echo"]
				f.worker(WorkerOptions{}, follow(other))
				f.restore("x", "f", cut)
				if recorded == asked {
					if o := f.finished("x"); o.GetFailure() != nil {
						t.Error(o)
					}
					return
				}
				r := f.released(1)
				want := "durable: journal mismatch: x:0 is " + recorded + " in the journal, the code asks for " + asked
				if r.GetProblem() != want || r.GetDelayMs() < 1000 {
					t.Errorf("released with %q after %d ms\nwant %q", r.GetProblem(), r.GetDelayMs(), want)
				}
				if n := len(f.journalOf("x")); n != len(cut) {
					t.Errorf("the journal has %d entries, had %d", n, len(cut))
				}
			})
		}
		t.Run(recorded+" against nothing", func(t *testing.T) {
			t.Parallel()
			f := everythingServer(t)
			f.worker(WorkerOptions{}, NewFunction("f", func(Context, none) (none, error) { return none{}, nil }))
			f.restore("x", "f", cut)
			want := "durable: journal mismatch: x:0 is " + recorded + " in the journal, the code returns before it"
			if r := f.released(1); r.GetProblem() != want {
				t.Errorf("released with %q\nwant %q", r.GetProblem(), want)
			}
		})
	}
}

// Each problem in a row is waited out longer, up to a minute; progress starts it over.
func TestProblemsAreTriedAgainLater(t *testing.T) {
	f := newFake(t)
	calls := 0
	var problems []string
	w, stop := f.worker(WorkerOptions{OnEvent: func(e Event) {
		if e.Kind == EventProblem {
			problems = append(problems, e.Err.Error())
		}
	}}, NewFunction("f", func(ctx Context, _ string) (string, error) {
		calls++
		switch {
		case calls <= 8:
			panic("at first")
		case calls == 9:
			if _, err := Run(ctx, "progress", func(context.Context) (int, error) { return 1, nil }); err != nil {
				return "", err
			}
			panic("later")
		}
		_, err := Run(ctx, "progress", func(context.Context) (int, error) { return 2, nil })
		return "done", err
	}))
	f.start("x", "f", "")
	for i, want := range []int64{1, 2, 4, 8, 16, 32, 60, 60, 1} {
		r := f.released(i + 1)
		if r.GetDelayMs() != want*1000 || !strings.HasPrefix(r.GetProblem(), "panic: ") {
			t.Errorf("release %d: %q after %d ms, want %d s", i, r.GetProblem(), r.GetDelayMs(), want)
		}
		f.wake("x")
	}
	if o := f.finished("x"); string(o.GetValue()) != `"done"` {
		t.Error(o)
	}
	until(t, "the end of the last activation", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.activations == 0 })
	stop()
	if len(w.problems) != 0 {
		t.Errorf("still remembered: %v", w.problems)
	}
	if len(problems) != 9 || problems[8] != "panic: later" {
		t.Errorf("events %q", problems)
	}
}

// The worker releases a task that it cannot run, with the reason.
func TestGivenBack(t *testing.T) {
	type tc struct {
		name, problem string
		body          func(Context) (string, error)
	}
	var leaked Context
	escaped := make(chan error, 1)
	for _, c := range []tc{
		{"panic", "panic: oh no", func(Context) (string, error) { panic("oh no") }},
		{"operation in a step", `durable: Now of x was called inside step "outer"`, func(ctx Context) (string, error) {
			_, err := Run(ctx, "outer", func(context.Context) (string, error) {
				_, err := Now(ctx)
				return "", err
			})
			return "", err
		}},
		{"operation in a step, its error ignored", `durable: Sleep of x was called inside step "outer"`, func(ctx Context) (string, error) {
			return Run(ctx, "outer", func(context.Context) (string, error) {
				_ = Sleep(ctx, time.Second)
				return "fine", nil
			})
		}},
		{"another goroutine", `durable: Run("inner") of x was called from another goroutine than the function's own`, func(ctx Context) (string, error) {
			done := make(chan error)
			go func() {
				_, err := Run(ctx, "inner", func(context.Context) (int, error) { return 1, nil })
				done <- err
			}()
			escaped <- <-done
			return "fine", nil
		}},
		{"another goroutine in a step", `durable: Random of x was called from another goroutine than the function's own`, func(ctx Context) (string, error) {
			return Run(ctx, "outer", func(context.Context) (string, error) {
				done := make(chan struct{})
				go func() {
					_, _ = Random(ctx)
					close(done)
				}()
				<-done
				return "fine", nil
			})
		}},
		{"after its end", "", func(ctx Context) (string, error) { leaked = ctx; return "done", nil }},
		{"a step without a name", "durable: the name of x:0 is empty", func(ctx Context) (string, error) {
			return Run(ctx, "", func(context.Context) (string, error) { return "fine", nil })
		}},
		{"a step with a long name", "durable: the name of x:0 has 257 bytes, the limit is 256: " + strings.Repeat("n", 61) + "…", func(ctx Context) (string, error) {
			return Run(ctx, strings.Repeat("n", 257), func(context.Context) (string, error) { return "fine", nil })
		}},
		{"a signal with NUL in its name", `durable: the name of x:0, "a\x00b", has a NUL byte`, func(ctx Context) (string, error) {
			return WaitSignal[string](ctx, "a\x00b")
		}},
		{"Goexit", "durable: runtime.Goexit was called", func(Context) (string, error) { goexit(); return "", nil }},
		{"Goexit in a step", `durable: runtime.Goexit was called in step "s"`, func(ctx Context) (string, error) {
			return Run(ctx, "s", func(context.Context) (string, error) { goexit(); return "", nil })
		}},
		{"a clean-up continues as new", "durable: ContinueAsNew of x was called by a clean-up function", func(ctx Context) (string, error) {
			Cleanup(ctx, func(ctx Context) error { return ContinueAsNew(ctx, "again") })
			return "", errors.New("to be cleaned up after")
		}},
		{"foreign future", "durable: AwaitAll of x was given a future of another execution, or of an earlier run of this one: y:0", func(ctx Context) (string, error) {
			return "", AwaitAll(ctx, &Future[string]{t: &activation{journal: history{id: "y"}}})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t)
			f.worker(WorkerOptions{}, NewFunction("f", func(ctx Context, _ string) (string, error) { return c.body(ctx) }))
			f.start("x", "f", "")
			if c.problem == "" {
				f.finished("x")
				var m *MisuseError
				if _, err := Now(leaked); !errors.As(err, &m) {
					t.Errorf("after the end: %v", err)
				}
				return
			}
			if r := f.released(1); r.GetProblem() != c.problem || r.GetDelayMs() != 1000 {
				t.Errorf("released with %q after %d ms\nwant %q", r.GetProblem(), r.GetDelayMs(), c.problem)
			}
			if n := len(f.journalOf("x")); n != 1 {
				t.Errorf("the journal has %d entries", n)
			}
		})
	}
	var m *MisuseError
	if err := <-escaped; !errors.As(err, &m) || m.ID != "x" {
		t.Errorf("the other goroutine got %v", err)
	}
}

func TestUnregisteredAndUnreadable(t *testing.T) {
	f := newFake(t)
	w, _ := f.worker(WorkerOptions{}, NewFunction("f", func(_ Context, n int) (int, error) { return n + 1, nil }))
	// An unreadable input fails the execution: trying again would not help.
	f.start("bad input", "f", `"text"`)
	if o := f.finished("bad input"); o.GetFailure().GetType() != TypeEncoding {
		t.Errorf("outcome %v", o)
	}
	f.start("no input", "f", "")
	if o := f.finished("no input"); string(o.GetValue()) != "1" {
		t.Errorf("outcome %v", o)
	}
	// The server sends only tasks of registered functions; the worker releases any other one.
	f.mu.Lock()
	f.conns[0].functions = append(f.conns[0].functions, "g")
	f.mu.Unlock()
	f.start("unknown", "g", "")
	if r := f.released(1); r.GetProblem() != `durable: function "g" is not registered with this worker` {
		t.Errorf("released with %q", r.GetProblem())
	}
	_ = w
}
