package durable

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/id"
)

// report keeps what steps of a task report; the lock is held.
func (f *fakeServer) report(token *perdurev1.TaskToken, steps []*perdurev1.StepHeartbeat) {
	ex := f.execs[token.GetId()]
	for _, s := range steps {
		if _, of := id.PromiseID(s.GetPromiseId()).IsChildOf(id.PromiseID(ex.id)); !of {
			continue
		}
		if len(s.GetDetails()) > MaxHeartbeatBytes {
			f.t.Errorf("fake: details of %d bytes", len(s.GetDetails()))
		}
		if ex.steps == nil {
			ex.steps = map[string]*perdurev1.StepHeartbeat{}
		}
		ex.steps[s.GetPromiseId()] = s
	}
}

// stored are the details that the fake has of a step.
func (f *fakeServer) stored(promise string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	parent, _ := id.PromiseID(promise).Parent()
	return string(f.execs[string(parent)].steps[promise].GetDetails())
}

// A step that copies files goes on where the lost worker was. However often it reports, the heartbeats of the
// worker carry the last report alone.
func TestHeartbeatDetails(t *testing.T) {
	f := newFake(t)
	clock := newFakeClock()
	half := make(chan struct{})
	var begun []int
	copying := NewFunction("copy", func(ctx Context, files int) (int, error) {
		return Run(ctx, "copy", func(ctx context.Context) (int, error) {
			done, _, err := HeartbeatDetails[int](ctx)
			if err != nil {
				return 0, err
			}
			begun = append(begun, done)
			for ; done < files; done++ {
				if done == 50 && len(begun) == 1 {
					close(half)
					<-ctx.Done()
				}
				if err := Heartbeat(ctx, done); err != nil {
					return 0, err
				}
			}
			return done, nil
		})
	})
	w, _ := f.worker(WorkerOptions{Clock: clock, Lease: 9 * time.Second}, copying)
	f.start("x", "copy", "100")
	<-half
	beats(t, f, w, clock, 3*time.Second)
	beats(t, f, w, clock, 3*time.Second)
	if got := f.stored("x:0"); got != "49" {
		t.Errorf("the cluster has %s", got)
	}
	if got := fmt.Sprint(f.beatSteps); got != "[1 0]" {
		t.Errorf("the heartbeats were about %s steps", got)
	}
	f.mu.Lock()
	f.expire(f.execs["x"])
	f.dispatch()
	f.mu.Unlock()
	clock.pass(t, 3*time.Second)
	if o := f.finished("x"); string(o.GetValue()) != "100" || fmt.Sprint(begun) != "[0 49]" {
		t.Errorf("%v, the attempts began at %v", o, begun)
	}
}

// The next attempt by the same worker reads what the failed one reported last; a step that has ended leaves nothing.
func TestHeartbeatDetailsOfAFailedAttempt(t *testing.T) {
	f := newFake(t)
	var n counter
	var of [2]string
	f.worker(WorkerOptions{}, NewFunction("f", func(ctx Context, _ string) (string, error) {
		var last string
		for i := range 2 {
			step := func(ctx context.Context) (string, error) {
				if n.hit(fmt.Sprint(i)) == 1 {
					if err := Heartbeat(ctx, "first"); err != nil {
						return "", err
					}
					if err := Heartbeat(ctx, nil); err != nil { // it lives, nothing else is new
						return "", err
					}
					return "", errors.New("once")
				}
				var ok bool
				var err error
				of[i], ok, err = HeartbeatDetails[string](ctx)
				if !ok || err != nil {
					return "", fmt.Errorf("no details: %w", err)
				}
				return of[i], Heartbeat(ctx, "second")
			}
			var err error
			if i == 0 {
				last, err = Run(ctx, "s", step, WithRetry(RetryPolicy{Initial: time.Millisecond}))
			} else {
				var g *Future[string]
				if g, err = GoStep(ctx, "s", step, WithRetry(RetryPolicy{Initial: time.Millisecond})); err == nil {
					last, err = g.Get(ctx)
				}
			}
			if err != nil {
				return "", err
			}
		}
		_, found, err := Find(ctx)
		if found {
			err = errors.New("a new step has the details of another one")
		}
		return last, err
	}))
	f.start("x", "f", "")
	if o := f.finished("x"); string(o.GetValue()) != `"first"` || of[0] != "first" {
		t.Errorf("%v, read %q", o, of)
	}
}

// Find runs a step that reads its details.
func Find(ctx Context) (string, bool, error) {
	var found bool
	text, err := Run(ctx, "find", func(ctx context.Context) (text string, err error) {
		text, found, err = HeartbeatDetails[string](ctx)
		return text, err
	})
	return text, found, err
}

// A worker that stops gives the details back with its task.
func TestHeartbeatDetailsOfAStoppedWorker(t *testing.T) {
	f := newFake(t)
	running := make(chan struct{}, 2)
	fn := NewFunction("f", func(ctx Context, _ string) (string, error) {
		return Run(ctx, "s", func(ctx context.Context) (string, error) {
			if got, ok, err := HeartbeatDetails[string](ctx); ok || err != nil {
				return got, err
			}
			if err := Heartbeat(ctx, "half"); err != nil {
				return "", err
			}
			running <- struct{}{}
			<-ctx.Done()
			if err := Heartbeat(ctx, "too late"); !errors.Is(err, errStopping) {
				t.Errorf("a heartbeat after the end: %v", err)
			}
			return "", ctx.Err()
		})
	})
	_, stop := f.worker(WorkerOptions{StopGrace: time.Millisecond}, fn)
	f.start("x", "f", "")
	<-running
	stop()
	if got := f.execs["x"].steps["x:0"]; string(got.GetDetails()) != `"half"` || got.GetName() != "s" || got.GetAttempt() != 1 {
		t.Errorf("the cluster has %v", got)
	}
	f.worker(WorkerOptions{}, fn)
	if o := f.finished("x"); string(o.GetValue()) != `"half"` {
		t.Error(o)
	}
}

// An attempt without a heartbeat is over. It is repeated by the step's policy, also when it does not heed its context.
func TestHeartbeatTimeout(t *testing.T) {
	// No other timer of the worker or of its client is as long.
	const silence, pause = 5700 * time.Millisecond, 1700 * time.Millisecond
	for _, background := range []bool{false, true} {
		f := newFake(t)
		clock := newFakeClock()
		var n counter
		over := make(chan error, 1)
		beating, never := make(chan struct{}, 1), make(chan struct{})
		step := func(ctx context.Context) (string, error) {
			switch n.hit("s") {
			case 1: // it heeds its context
				<-ctx.Done()
				over <- Heartbeat(ctx, "late")
				return "", ctx.Err()
			case 2: // it does not
				beating <- struct{}{}
				<-never
				return "dropped", nil
			}
			return fmt.Sprint("attempt ", StepInfo(ctx).Attempt), nil
		}
		opts := []StepOption{WithHeartbeatTimeout(silence), WithRetry(RetryPolicy{MaxAttempts: 3, Initial: pause, Max: pause})}
		f.worker(WorkerOptions{Clock: clock, Lease: time.Hour}, NewFunction("f", func(ctx Context, _ string) (string, error) {
			if !background {
				return Run(ctx, "s", step, opts...)
			}
			g, err := GoStep(ctx, "s", step, opts...)
			if err != nil {
				return "", err
			}
			return g.Get(ctx)
		}))
		f.start("x", "f", "")
		clock.pass(t, silence)
		if err := <-over; !errors.Is(err, errNoHeartbeat) {
			t.Errorf("the first attempt ended by %v", err)
		}
		clock.pass(t, pause)
		<-beating
		clock.pass(t, silence)
		clock.pass(t, stepStopTimeout) // of the first attempt, which did not need it
		clock.pass(t, stepStopTimeout)
		clock.pass(t, pause)
		if o := f.finished("x"); string(o.GetValue()) != `"attempt 3"` {
			t.Error(o)
		}
		var failures []string
		for _, e := range f.journalOf("x") {
			if r := e.GetEvent().GetInvokeRetrying(); r != nil {
				failures = append(failures, r.GetError().GetType()+": "+r.GetError().GetMessage())
			}
		}
		if got := strings.Join(failures, ", "); got != "timeout: no heartbeat within 5.7s, timeout: no heartbeat within 5.7s" {
			t.Errorf("the attempts failed with %s", got)
		}
		close(never)
	}
}

// Heartbeats keep an attempt alive, and a panic in it is a failed attempt.
func TestHeartbeatKeepsTheAttempt(t *testing.T) {
	const silence = 5700 * time.Millisecond // no other timer of the worker or of its client is as long
	f := newFake(t)
	clock := newFakeClock()
	next, beaten := make(chan struct{}), make(chan struct{})
	f.worker(WorkerOptions{Clock: clock, Lease: time.Hour}, NewFunction("f", func(ctx Context, _ string) (int, error) {
		return Run(ctx, "s", func(ctx context.Context) (int, error) {
			for range 3 {
				<-next
				if err := Heartbeat(ctx, nil); err != nil {
					return 0, err
				}
				beaten <- struct{}{}
			}
			<-next
			panic("at the end")
		}, WithHeartbeatTimeout(silence), NoRetry())
	}))
	f.start("x", "f", "")
	wait := silence
	for range 3 { // each 1 s before the watch looks
		until(t, "the watch", func() bool { return clock.waitsFor(wait) })
		clock.advance(wait - time.Second)
		next <- struct{}{}
		<-beaten
		clock.reachNext(t, time.Second)
		wait = silence - time.Second
	}
	close(next)
	if o := f.finished("x"); o.GetFailure().GetType() != TypePanic {
		t.Error(o)
	}
}

// Details that are too large, or cannot be encoded, and a context that is not a step's are refused.
func TestHeartbeatRefused(t *testing.T) {
	f := newFake(t)
	var outside error
	f.worker(WorkerOptions{}, NewFunction("f", func(ctx Context, _ int) (int, error) {
		outside = Heartbeat(ctx, 1)
		return Run(ctx, "s", func(ctx context.Context) (int, error) {
			var e *Error
			if err := Heartbeat(ctx, "text"); !errors.As(err, &e) || e.Type != TypeEncoding {
				t.Errorf("what has no numeral: %v", err)
			}
			if err := Heartbeat(ctx, 7); err != nil {
				t.Error(err)
			}
			n, ok, err := HeartbeatDetails[int](ctx)
			if !ok || err != nil {
				t.Errorf("%v, %v", ok, err)
			}
			return n, nil
		})
	}, WithCodec(roman{})), NewFunction("large", func(ctx Context, _ string) (int, error) {
		return Run(ctx, "s", func(ctx context.Context) (int, error) {
			var e *Error
			if err := Heartbeat(ctx, strings.Repeat("x", MaxHeartbeatBytes-1)); !errors.As(err, &e) || e.Type != TypeTooLarge {
				t.Errorf("large details: %v", err)
			}
			if _, ok, err := HeartbeatDetails[string](ctx); ok || err != nil {
				t.Errorf("refused details are kept: %v", err)
			}
			if err := Heartbeat(ctx, 1); err != nil {
				t.Error(err)
			}
			if _, ok, err := HeartbeatDetails[string](ctx); ok || err == nil {
				t.Error("a number was read as text")
			}
			return 1, Heartbeat(ctx, strings.Repeat("x", MaxHeartbeatBytes-2))
		})
	}))
	f.start("x", "f", "n1")
	f.start("y", "large", "")
	if o := f.finished("x"); string(o.GetValue()) != "n7" {
		t.Error(o)
	}
	if o := f.finished("y"); string(o.GetValue()) != "1" {
		t.Error(o)
	}
	if outside == nil || !strings.Contains(outside.Error(), "not a step's") {
		t.Errorf("outside of a step: %v", outside)
	}
	if _, _, err := HeartbeatDetails[int](t.Context()); err == nil {
		t.Error("details of no step")
	}
}

// Many reports go in several messages, the oldest first; what is not answered goes again.
func TestHeartbeatsOfManySteps(t *testing.T) {
	f := newFake(t)
	clock := newFakeClock()
	const steps = 30
	var reported atomic.Int32
	release := make(chan struct{})
	w, _ := f.worker(WorkerOptions{Clock: clock, Lease: 9 * time.Second}, NewFunction("f", func(ctx Context, _ string) (int, error) {
		var all []*Future[int]
		for range steps {
			g, err := GoStep(ctx, "s", func(ctx context.Context) (int, error) {
				if err := Heartbeat(ctx, strings.Repeat("x", 4000)); err != nil {
					return 0, err
				}
				reported.Add(1)
				<-release
				return 1, nil
			})
			if err != nil {
				return 0, err
			}
			all = append(all, g)
		}
		sum := 0
		for _, g := range all {
			n, err := g.Get(ctx)
			if err != nil {
				return 0, err
			}
			sum += n
		}
		return sum, nil
	}))
	f.start("x", "f", "")
	until(t, "all steps", func() bool { return reported.Load() == steps })
	f.mu.Lock()
	f.unknown = true
	f.mu.Unlock()
	sums := func() (messages, about int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, n := range f.beatSteps {
			if n*4000 > beatDetails+8000 {
				t.Errorf("one heartbeat is about %d steps", n)
			}
			if n > 0 {
				messages, about = messages+1, about+n
			}
		}
		return messages, about
	}
	beats(t, f, w, clock, 3*time.Second)
	f.wait("four messages", func() bool { return len(f.beatSteps) >= 4 })
	if messages, about := sums(); messages != 4 || about != steps || f.stored("x:0") != "" {
		t.Errorf("%d messages are about %d steps", messages, about)
	}
	f.mu.Lock()
	f.unknown = false
	f.mu.Unlock()
	w.session().beatNow()
	f.wait("all of them again", func() bool { return len(f.execs["x"].steps) == steps })
	until(t, "the answers", func() bool { return len(w.listed()[0].unsent()) == 0 })
	before, _ := sums()
	beats(t, f, w, clock, 3*time.Second)
	if after, _ := sums(); after != before {
		t.Error("what is stored was sent again")
	}
	close(release)
	if o := f.finished("x"); string(o.GetValue()) != fmt.Sprint(steps) {
		t.Error(o)
	}
}

// A task that is released until its step's next attempt gives the details back.
func TestHeartbeatDetailsOfALongPause(t *testing.T) {
	f := newFake(t)
	var n counter
	f.worker(WorkerOptions{Lease: time.Hour}, NewFunction("f", func(ctx Context, _ string) (string, error) {
		return Run(ctx, "s", func(ctx context.Context) (string, error) {
			if n.hit("s") == 1 {
				if err := Heartbeat(ctx, "half"); err != nil {
					return "", err
				}
				return "", errors.New("later")
			}
			got, _, err := HeartbeatDetails[string](ctx)
			return got, err
		}, WithRetry(RetryPolicy{Initial: time.Minute, Max: time.Minute}))
	}))
	f.start("x", "f", "")
	if r := f.released(1); r.GetDelayMs() == 0 || len(r.GetSteps()) != 1 || string(r.GetSteps()[0].GetDetails()) != `"half"` {
		t.Errorf("released %v", r)
	}
	f.mu.Lock()
	for _, e := range f.execs["x"].entries { // its pause is over
		if r := e.GetEvent().GetInvokeRetrying(); r != nil {
			r.RetryAtMs = 1
		}
	}
	f.mu.Unlock()
	f.wake("x")
	if o := f.finished("x"); string(o.GetValue()) != `"half"` {
		t.Error(o)
	}
}
