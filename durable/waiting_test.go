package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

// waits records the results that the function of these tests got.
type waits struct {
	UUID     string
	Steps    []string
	Selected []string
	Joined   []string
	Failed   string
}

// waiting waits for futures of every kind.
func waiting(c *counter) *Function[string, waits] {
	return NewFunction("waiting", func(ctx Context, _ string) (out waits, err error) {
		check := func(e error) {
			if err == nil {
				err = e
			}
		}
		step := func(name string, opts ...StepOption) *Future[string] {
			f, e := GoStep(ctx, name, func(ctx context.Context) (string, error) {
				c.hit(name)
				if name == "bad" {
					return "", &Error{Type: "broke", Message: "no money"}
				}
				return name + " of " + StepInfo(ctx).PromiseID, nil
			}, opts...)
			check(e)
			return f
		}
		out.UUID, err = UUID(ctx)
		a, b, bad := step("a"), step("b", WithIntent()), step("bad", WithNonRetryable("broke"))
		timer, e := After(ctx, time.Hour)
		check(e)
		point, e := At(ctx, time.UnixMilli(1))
		check(e)
		child, e := Go(ctx, echo, "child")
		check(e)
		if err != nil {
			return out, err
		}
		seen := func(what string) func(struct{}, error) error {
			return func(_ struct{}, err error) error {
				out.Selected = append(out.Selected, what)
				return err
			}
		}
		check(Select(ctx, On(timer, seen("timer")), On(point, seen("point")), On(child, func(v string, err error) error {
			out.Selected = append(out.Selected, v)
			return err
		})))
		for _, f := range []*Future[string]{a, b} {
			text, e := f.Get(ctx)
			check(e)
			out.Steps = append(out.Steps, text)
		}
		var failed *Error
		if _, e := bad.Get(ctx); errors.As(e, &failed) {
			out.Failed = failed.Type
		}
		set, e := NewJoinSet[string](ctx)
		check(e)
		check(set.Submit(ctx, child))
		for i := range 3 {
			f, e := Go(ctx, echo, fmt.Sprint("member ", i))
			check(e)
			check(set.Submit(ctx, f))
		}
		for set.Len() > 0 {
			f, e := set.Next(ctx)
			if e != nil {
				return out, e
			}
			text, e := f.Get(ctx)
			check(e)
			out.Joined = append(out.Joined, text)
		}
		_, e = set.Next(ctx)
		if !errors.Is(e, ErrJoinSetEmpty) {
			return out, fmt.Errorf("an empty set's Next: %v", e)
		}
		return out, err
	})
}

// checkWaits compares a result with the journal of its execution.
func checkWaits(t *testing.T, f *fakeServer, eid string) {
	t.Helper()
	o := f.finished(eid)
	var got waits
	if err := json.Unmarshal(o.GetValue(), &got); err != nil {
		t.Fatalf("result %v: %v", o, err)
	}
	inputs, first, joined := map[string]string{}, "", []string(nil)
	for _, e := range f.journalOf(eid) {
		ev := e.GetEvent()
		if s := ev.GetInvokeScheduled(); s.GetKind() == perdurev1.InvokeKind_INVOKE_KIND_FUNCTION {
			inputs[s.GetPromiseId()] = "echo " + strings.Trim(string(s.GetInput()), `"`)
		}
		name := map[string]string{eid + ":4": "timer", eid + ":5": "point"}[ev.GetTimerFired().GetPromiseId()]
		if ev.GetInvokeCompleted().GetPromiseId() == eid+":6" {
			name = inputs[eid+":6"]
		}
		if first == "" {
			first = name
		}
		if a := ev.GetJoinSetAwaited(); a != nil {
			joined = append(joined, inputs[a.GetPromiseId()])
		}
	}
	want := waits{UUID: got.UUID, Steps: []string{"a of " + eid + ":1", "b of " + eid + ":2"}, Failed: "broke",
		Selected: []string{first}, Joined: joined}
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w || len(joined) != 4 || first == "" {
		t.Errorf("result\n got %s\nwant %s", g, w)
	}
	if !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(got.UUID) {
		t.Errorf("UUID %q", got.UUID)
	}
}

// A worker that takes over after any entry of the journal sees the same order of completion, and runs no step
// again whose result is recorded.
func TestWaitingReplaysFromEveryPrefix(t *testing.T) {
	whole := everythingServer(t)
	var once counter
	whole.worker(WorkerOptions{}, waiting(&once))
	whole.start("w", "waiting", `""`)
	checkWaits(t, whole, "w")
	full := whole.journalOf("w")
	for k := 1; k < len(full); k++ {
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			t.Parallel()
			f := everythingServer(t)
			var c counter
			names, done := map[string]string{}, map[string]bool{}
			for _, e := range full[:k] {
				if s := e.GetEvent().GetInvokeScheduled(); s != nil {
					names[s.GetPromiseId()] = s.GetFunctionName()
				}
				if d := e.GetEvent().GetInvokeCompleted(); d != nil {
					done[names[d.GetPromiseId()]] = true
				}
			}
			last := names[full[k-1].GetEvent().GetInvokeStarted().GetPromiseId()]
			if last == "bad" {
				t.Skip("the attempt is lost with the worker: a retry, whose failure is the same")
			}
			f.restore("w", "waiting", full[:k])
			f.worker(WorkerOptions{}, waiting(&c))
			checkWaits(t, f, "w")
			for _, name := range []string{"a", "b", "bad"} {
				want := 1
				if done[name] {
					want = 0
				}
				if n := c.of(name); n != want {
					t.Errorf("step %s ran %d times, want %d", name, n, want)
				}
			}
		})
	}
}

// Steps of GoStep run concurrently with each other and with one of Run.
func TestGoStepsRunAtOnce(t *testing.T) {
	f := newFake(t)
	const n = 5
	var all sync.WaitGroup
	all.Add(n + 1)
	meet := func(context.Context) (int, error) {
		all.Done()
		all.Wait()
		return 1, nil
	}
	fn := NewFunction("many", func(ctx Context, _ string) (int, error) {
		var futures []*Future[int]
		for i := range n {
			g, err := GoStep(ctx, fmt.Sprint("go ", i), meet)
			if err != nil {
				return 0, err
			}
			futures = append(futures, g)
		}
		sum, err := Run(ctx, "run", meet)
		if err != nil {
			return 0, err
		}
		for _, g := range futures {
			v, err := g.Get(ctx)
			if err != nil {
				return 0, err
			}
			sum += v
		}
		return sum, nil
	})
	f.worker(WorkerOptions{}, fn)
	f.start("x", "many", `""`)
	if got := string(f.finished("x").GetValue()); got != "6" {
		t.Error(got)
	}
}

// A background step that runs is not begun again by the waits of the function that pass meanwhile.
func TestGoStepRunsOnce(t *testing.T) {
	f := newFake(t)
	var c counter
	gate := make(chan struct{})
	fn := NewFunction("once", func(ctx Context, _ string) (int, error) {
		slow, err := GoStep(ctx, "slow", func(ctx context.Context) (int, error) {
			if c.hit("slow") > 1 {
				f.mu.Lock()
				f.touch()
				f.mu.Unlock()
			}
			select {
			case <-gate:
			case <-ctx.Done(): // the activation has failed
			}
			return 1, ctx.Err()
		})
		if err != nil {
			return 0, err
		}
		for i := range 3 {
			quick, err := GoStep(ctx, fmt.Sprint("quick ", i), func(context.Context) (int, error) { return i, nil })
			if err != nil {
				return 0, err
			}
			if _, err := quick.Get(ctx); err != nil {
				return 0, err
			}
		}
		close(gate)
		return slow.Get(ctx)
	})
	f.worker(WorkerOptions{}, fn)
	f.start("x", "once", `""`)
	f.wait("the end, or a second run", func() bool { return f.execs["x"].j.Status().Terminal() || c.of("slow") > 1 })
	if n := c.of("slow"); n != 1 {
		t.Fatalf("the step ran %d times", n)
	}
	f.finished("x")
}

// A failing background step is retried by its policy, and the attempts are recorded.
func TestGoStepRetries(t *testing.T) {
	f := newFake(t)
	var c counter
	fn := NewFunction("retry", func(ctx Context, _ string) (int, error) {
		g, err := GoStep(ctx, "flaky", func(ctx context.Context) (int, error) {
			if n := c.hit("flaky"); n < 3 {
				return 0, errors.New("not yet")
			}
			return int(StepInfo(ctx).Attempt), nil
		}, WithRetry(RetryPolicy{Initial: time.Millisecond, Jitter: 1}))
		if err != nil {
			return 0, err
		}
		return g.Get(ctx)
	})
	f.worker(WorkerOptions{}, fn)
	f.start("x", "retry", `""`)
	if got := string(f.finished("x").GetValue()); got != "3" {
		t.Error(got)
	}
	retries := 0
	for _, e := range f.journalOf("x") {
		if e.GetEvent().GetInvokeRetrying() != nil {
			retries++
		}
	}
	if retries != 2 {
		t.Errorf("%d retries recorded", retries)
	}
}

// A function that selects among a running step and a child has the child's result while the step runs.
func TestSelectBesideARunningStep(t *testing.T) {
	f := newFake(t)
	f.children["echo"] = func([]byte) *perdurev1.Outcome { return value(`"echo"`) }
	f.manual = true
	running := make(chan struct{})
	fn := NewFunction("race", func(ctx Context, _ string) (won string, err error) {
		slow, err := GoStep(ctx, "slow", func(ctx context.Context) (string, error) {
			close(running)
			<-ctx.Done() // the function's end ends it
			return "", ctx.Err()
		})
		if err != nil {
			return "", err
		}
		child, err := Go(ctx, echo, "")
		if err != nil {
			return "", err
		}
		take := func(v string, err error) error { won = v; return err }
		return won, Select(ctx, On(slow, take), On(child, take))
	})
	f.worker(WorkerOptions{}, fn)
	f.start("x", "race", `""`)
	<-running
	f.mu.Lock()
	f.resolve(f.execs["x"], "x:1")
	f.mu.Unlock()
	if o := f.finished("x"); o.GetFailure() != nil {
		t.Error(o)
	}
}

// A cancelled execution's steps end, and what it had recorded to begin is recorded as ended.
func TestGoStepCancelled(t *testing.T) {
	f := newFake(t)
	running := make(chan struct{}, 2)
	fn := NewFunction("cancelled", func(ctx Context, _ string) (string, error) {
		step := func(ctx context.Context) (string, error) {
			running <- struct{}{}
			<-ctx.Done()
			return "", ctx.Err()
		}
		a, err := GoStep(ctx, "a", step, WithIntent())
		if err != nil {
			return "", err
		}
		b, err := GoStep(ctx, "b", step)
		if err != nil {
			return "", err
		}
		if _, err := AwaitAny(ctx, a, b); !errors.Is(err, ErrCancelled) {
			return "", fmt.Errorf("AwaitAny: %v", err)
		}
		return "", ErrCancelled
	})
	f.worker(WorkerOptions{Lease: time.Second}, fn)
	f.start("x", "cancelled", `""`)
	<-running
	<-running
	f.cancel("x", "enough")
	if o := f.finished("x"); o.GetFailure().GetType() != TypeCancelled {
		t.Error(o)
	}
	var completed []string
	for _, e := range f.journalOf("x") {
		if d := e.GetEvent().GetInvokeCompleted(); d != nil {
			completed = append(completed, d.GetPromiseId())
		}
	}
	if !slices.Equal(completed, []string{"x:0"}) {
		t.Errorf("completed %v", completed)
	}
}

// The bound of all attempts holds from the first recording on, across workers.
func TestTotalTimeout(t *testing.T) {
	f := newFake(t)
	fn := NewFunction("bounded", func(ctx Context, _ string) (string, error) {
		_, err := Run(ctx, "never", func(ctx context.Context) (string, error) {
			return "", errors.New("not yet")
		}, WithRetry(RetryPolicy{MaxAttempts: 1000, Initial: time.Millisecond, Max: time.Millisecond}), WithTotalTimeout(50*time.Millisecond))
		var e *Error
		if errors.As(err, &e) && errors.Is(err, ErrTimeout) && strings.Contains(e.Message, "50ms") {
			return "timed out", nil
		}
		return "", err
	})
	f.worker(WorkerOptions{}, fn)
	f.start("x", "bounded", `""`)
	if got := string(f.finished("x").GetValue()); got != `"timed out"` {
		t.Error(f.finished("x"))
	}
}

// A join set refuses an operation before it records anything.
func TestJoinSetRules(t *testing.T) {
	f := everythingServer(t)
	fn := NewFunction("rules", func(ctx Context, _ string) (string, error) {
		one, _ := NewJoinSet[struct{}](ctx)
		two, _ := NewJoinSet[string](ctx)
		three, _ := NewJoinSet[string](ctx)
		timer, _ := After(ctx, time.Hour)
		a, _ := Go(ctx, echo, "a")
		b, err := Go(ctx, echo, "b")
		refused := func(what string, got error) {
			var e *Error
			if err == nil && (!errors.As(got, &e) || e.Type != TypeJoinSet) {
				err = fmt.Errorf("%s: %v", what, got)
			}
		}
		refused("a timer", one.Submit(ctx, timer))
		if e := two.Submit(ctx, a); e != nil {
			return "", e
		}
		refused("twice", two.Submit(ctx, a))
		refused("two sets", three.Submit(ctx, a))
		if _, e := two.Next(ctx); e != nil {
			return "", e
		}
		refused("after Next", two.Submit(ctx, b))
		three.Close()
		refused("closed", three.Submit(ctx, b))
		_, e := three.Next(ctx)
		refused("closed", e)
		return "", err
	})
	f.worker(WorkerOptions{}, fn)
	f.start("x", "rules", `""`)
	if o := f.finished("x"); o.GetFailure() != nil {
		t.Error(o)
	}
}
