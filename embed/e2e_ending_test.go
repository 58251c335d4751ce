package embed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/durable"
)

const (
	running_   = perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING
	blocked    = perdurev1.ExecutionStatus_EXECUTION_STATUS_BLOCKED
	cancelling = perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLING
	completed  = perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED
	failed     = perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED
	cancelled  = perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED

	pending  = perdurev1.PromiseState_PROMISE_STATE_PENDING
	resolved = perdurev1.PromiseState_PROMISE_STATE_RESOLVED
	rejected = perdurev1.PromiseState_PROMISE_STATE_REJECTED
	canceled = perdurev1.PromiseState_PROMISE_STATE_REJECTED_CANCELED
	timedOut = perdurev1.PromiseState_PROMISE_STATE_REJECTED_TIMEDOUT
)

// tick is the resolution of the cluster's clock: a duration may begin up to a tick before its request.
const tick = time.Millisecond

// stuck is a set of functions that do not end by themselves, each in another way.
type stuck struct {
	// step is in a step that heeds its context, deaf in one that does not until freed is closed.
	step, deaf, signal, parent, sleeper *durable.Function[string, string]
	begun                               chan string // ids whose step has begun
	ctxEnded                            chan error  // causes of the ends of step contexts
	freed                               chan struct{}
	cleaned                             chan string // ids whose function has seen ErrCancelled
}

func newStuck() *stuck {
	s := &stuck{begun: make(chan string, 100), ctxEnded: make(chan error, 100), freed: make(chan struct{}), cleaned: make(chan string, 100)}
	seen := func(ctx durable.Context, err error) (string, error) {
		if errors.Is(err, durable.ErrCancelled) {
			s.cleaned <- durable.Info(ctx).ID
		}
		return "", err
	}
	s.step = durable.NewFunction("step", func(ctx durable.Context, in string) (string, error) {
		_, err := durable.Run(ctx, "wait", func(step context.Context) (string, error) {
			s.begun <- durable.Info(ctx).ID
			<-step.Done()
			s.ctxEnded <- context.Cause(step)
			return "", step.Err()
		})
		return seen(ctx, err)
	})
	s.deaf = durable.NewFunction("deaf", func(ctx durable.Context, in string) (string, error) {
		_, err := durable.Run(ctx, "wait", func(context.Context) (string, error) {
			s.begun <- durable.Info(ctx).ID
			<-s.freed
			return in, nil
		}, durable.WithIntent())
		return seen(ctx, err)
	})
	s.signal = durable.NewFunction("signal", func(ctx durable.Context, in string) (string, error) {
		v, err := durable.WaitSignal[string](ctx, "go")
		if err != nil {
			return seen(ctx, err)
		}
		return v, nil
	})
	s.sleeper = durable.NewFunction("sleeper", func(ctx durable.Context, in string) (string, error) {
		return seen(ctx, durable.Sleep(ctx, time.Hour))
	})
	s.parent = durable.NewFunction("parent", func(ctx durable.Context, in string) (string, error) {
		_, err := durable.Call(ctx, s.signal, in)
		return seen(ctx, err)
	})
	return s
}

func (s *stuck) all() []durable.Registration {
	return []durable.Registration{s.step, s.deaf, s.signal, s.parent, s.sleeper}
}

// ended checks everything that is to be seen of an execution that did not end by itself.
func (w *world) ended(id string, status client.Status, failure, message string, state perdurev1.PromiseState) *perdurev1.Promise {
	w.t.Helper()
	end := w.ending(id)
	if end.Status != status || end.Failure.GetType() != failure || !strings.Contains(end.Failure.GetMessage(), message) {
		w.t.Errorf("%s: %v, want %v with failure %s %q", id, end, status, failure, message)
	}
	var e *perdurev1.Execution
	until(w.t, "the end of "+id+" to be carried out", func() error { // a read shows a deadline before
		if e = w.describe(id); e.GetClosedMs() == 0 {
			return fmt.Errorf("it is %v", e)
		}
		return nil
	})
	if e.GetStatus() != status || e.GetOutcome().GetFailure().GetType() != failure || e.GetWakeSource() != "finished" {
		w.t.Errorf("%s is described as %v", id, e)
	}
	p, err := w.GetPromise(soon(w.t), id)
	if err != nil {
		w.t.Fatal(err)
	}
	if p.GetState() != state || p.GetValue().GetFailure().GetType() != failure {
		w.t.Errorf("the promise of %s is %v, want %v with failure %s", id, p, state, failure)
	}
	return p
}

// lastReasons are the reasons of CancelRequested and ExecutionCancelled, which must be a journal's last two.
func (w *world) lastReasons(id string) (requested, ended string) {
	w.t.Helper()
	w.validJournal(id)
	for _, e := range w.journal(id) {
		if x := e.GetEvent().GetCancelRequested(); x != nil {
			requested = x.GetReason()
		}
		if x := e.GetEvent().GetExecutionCancelled(); x != nil {
			ended = x.GetReason()
		}
	}
	return requested, ended
}

// TestDeadlines lets executions run into their deadlines in every state.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := newStuck()
	x := w.work(durable.WorkerOptions{Lease: time.Second}, s.all()...)
	// timesOut lets an execution run into its deadline, and says whether it had come to its state by then.
	timesOut := func(w *world, fn *durable.Function[string, string], id string, timeout time.Duration) bool {
		t := w.t
		began := time.Now()
		begin(w, fn, id, "x", durable.StartTimeout(timeout))
		p := w.ended(id, cancelled, "timeout", "timed out", timedOut)
		if took := time.Since(began); took < timeout-tick {
			t.Errorf("it timed out after %v, its timeout is %v", took, timeout)
		}
		e := w.describe(id)
		if p.GetSettledAtMs() != p.GetTimeoutAtMs() || p.GetTimeoutAtMs() != e.GetDeadlineMs() || e.GetDeadlineMs()-e.GetCreatedMs() != timeout.Milliseconds() {
			t.Errorf("settled at %d, timeout at %d, deadline %d, created %d", p.GetSettledAtMs(), p.GetTimeoutAtMs(), e.GetDeadlineMs(), e.GetCreatedMs())
		}
		var requested, ended string
		until(t, "the deadline to be carried out", func() error { // a read shows it before
			if requested, ended = w.lastReasons(id); ended == "" {
				return errors.New("the journal has no end")
			}
			return nil
		})
		if requested != "timed out" || ended != "timed out" {
			t.Errorf("the journal gives the reasons %q and %q", requested, ended)
		}
		wantReason(t, "a signal after the end", w.Signal(soon(t), id, "go", nil), "ALREADY_FINISHED")
		for len(s.begun) > 0 {
			if <-s.begun == id {
				return true
			}
		}
		return w.validJournal(id)["ExecutionAwaiting"] > 0
	}
	last := map[string]string{} // the ids of those that had come to their state
	for _, c := range []struct {
		state string
		fn    *durable.Function[string, string]
	}{{"running", s.step}, {"blocked", s.signal}, {"calling", s.parent}, {"sleeping", s.sleeper}} {
		t.Run(c.state, func(t *testing.T) {
			w := &world{w.Client, t, w.addr}
			for timeout := 250 * time.Millisecond; last[c.state] == ""; timeout *= 4 { // a busy machine needs longer to get there
				if timeout > testTimeout {
					t.Fatal("the deadline always comes first")
				}
				if id := fmt.Sprintf("%s-%d", c.state, timeout.Milliseconds()); timesOut(w, c.fn, id, timeout) {
					last[c.state] = id
				}
			}
		})
	}
	// The running step's context ends, and its result is not used.
	if err := receive(t, "the end of the step's context", s.ctxEnded); err == nil {
		t.Error("the step's context has no cause")
	}
	x.saw(durable.EventLost, last["running"], 1)
	// A parent that is cancelled by its deadline cancels its child.
	w.reaches(last["calling"]+":0", cancelled)
	x.noProblems()
}

// TestCallTimeout gives children a deadline, near and far.
func TestCallTimeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := newStuck()
	caller := durable.NewFunction("caller", func(ctx durable.Context, in string) (string, error) {
		var said []string
		for _, opts := range [][]durable.CallOption{{}, {durable.Spread()}} {
			for _, fn := range []*durable.Function[string, string]{s.signal, s.step} {
				_, err := durable.Call(ctx, fn, in, append(opts, durable.CallTimeout(200*time.Millisecond))...)
				said = append(said, fmt.Sprintf("%v %v", errors.Is(err, durable.ErrTimeout), errors.Is(err, durable.ErrCancelled)))
			}
		}
		return strings.Join(said, ", "), nil
	})
	x := w.work(durable.WorkerOptions{Lease: time.Second}, append(s.all(), caller)...)
	if got, want := result(t, begin(w, caller, "caller", "x")), "true false, true false, true false, true false"; got != want {
		t.Errorf("the children's errors are ErrTimeout, ErrCancelled: %s", got)
	}
	w.validJournal("caller")
	w.ended("caller:0", cancelled, "timeout", "timed out", timedOut)
	w.ended("caller:1", cancelled, "timeout", "timed out", timedOut)
	for _, e := range w.list(client.ListOptions{}) {
		if e.GetId() != "caller" {
			w.ended(e.GetId(), cancelled, "timeout", "timed out", timedOut)
		}
	}
	x.noProblems()
}

// TestCancel asks executions to stop in every state.
func TestCancel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := newStuck()
	x := w.work(durable.WorkerOptions{}, s.all()...)
	for _, c := range []struct {
		state string
		fn    *durable.Function[string, string]
	}{{"running", s.step}, {"blocked", s.signal}, {"calling", s.parent}, {"sleeping", s.sleeper}} {
		t.Run(c.state, func(t *testing.T) {
			w := &world{w.Client, t, w.addr}
			begin(w, c.fn, c.state, "x")
			if c.state == "running" {
				receive(t, "the step to begin", s.begun)
			} else {
				w.reaches(c.state, blocked)
			}
			status, err := w.Cancel(soon(t), c.state, "enough", testTimeout)
			if err != nil || status != cancelling {
				t.Errorf("cancel says %v, %v", status, err)
			}
			w.ended(c.state, cancelled, "cancelled", "enough", canceled)
			sees := []string{c.state}
			if c.state == "calling" { // the cancel reaches the child
				sees = append(sees, "calling:0")
			}
			for left := sees; len(left) > 0; {
				got := receive(t, "the function to see it", s.cleaned)
				if !slices.Contains(left, got) {
					t.Fatalf("%s has seen ErrCancelled, of %q", got, left)
				}
				left = slices.DeleteFunc(slices.Clone(left), func(id string) bool { return id == got })
			}
			if requested, ended := w.lastReasons(c.state); requested != "enough" || ended != "enough" {
				t.Errorf("the journal gives the reasons %q and %q", requested, ended)
			}
			// Again, and after the end, it is the same.
			if status, err := w.Cancel(soon(t), c.state, "again", 0); err != nil || status != cancelled {
				t.Errorf("cancel after the end says %v, %v", status, err)
			}
			if status, err := w.Terminate(soon(t), c.state, "again"); err != nil || status != cancelled {
				t.Errorf("terminate after the end says %v, %v", status, err)
			}
		})
	}
	if err := receive(t, "the end of the step's context", s.ctxEnded); !errors.Is(err, durable.ErrCancelled) {
		t.Errorf("the step's context ended because of %v", err)
	}
	_, err := w.Cancel(soon(t), "missing", "x", 0)
	wantReason(t, "cancel of a missing execution", err, "EXECUTION_NOT_FOUND")
	_, err = w.Terminate(soon(t), "missing", "x")
	wantReason(t, "terminate of a missing execution", err, "EXECUTION_NOT_FOUND")
	x.noProblems()
}

// TestGraceAndTerminate ends executions whose worker does not acknowledge.
func TestGraceAndTerminate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := newStuck()
	x := w.work(durable.WorkerOptions{}, s.all()...)

	begin(w, s.deaf, "grace", "late")
	receive(t, "the step to begin", s.begun)
	asked := time.Now()
	if status, err := w.Cancel(soon(t), "grace", "enough", 200*time.Millisecond); err != nil || status != cancelling {
		t.Errorf("cancel says %v, %v", status, err)
	}
	w.ended("grace", cancelled, "cancelled", "the grace period ended", canceled)
	if took := time.Since(asked); took < 200*time.Millisecond-tick {
		t.Errorf("a grace of 200 ms ended after %v", took)
	}
	if requested, ended := w.lastReasons("grace"); requested != "enough" || ended != "enough: the grace period ended" {
		t.Errorf("the journal gives the reasons %q and %q", requested, ended)
	}

	begin(w, s.deaf, "terminated", "late")
	receive(t, "the step to begin", s.begun)
	if status, err := w.Terminate(soon(t), "terminated", "now"); err != nil || status != cancelled {
		t.Errorf("terminate says %v, %v", status, err)
	}
	w.ended("terminated", cancelled, "cancelled", "now", canceled)
	begin(w, s.signal, "terminated-blocked", "")
	w.reaches("terminated-blocked", blocked)
	if status, err := w.Terminate(soon(t), "terminated-blocked", ""); err != nil || status != cancelled {
		t.Errorf("terminate says %v, %v", status, err)
	}
	w.ended("terminated-blocked", cancelled, "cancelled", "terminated", canceled)
	w.validJournal("terminated-blocked")

	// A result that comes within the grace is recorded, and the execution ends as cancelled.
	begin(w, s.deaf, "in-time", "made it")
	receive(t, "the step to begin", s.begun)
	if _, err := w.Cancel(soon(t), "in-time", "enough", testTimeout); err != nil {
		t.Error(err)
	}
	if e := w.describe("in-time"); e.GetStatus() != cancelling {
		t.Errorf("within its grace it is %v", e)
	}
	before := w.journal("grace")
	close(s.freed)
	w.ended("in-time", cancelled, "cancelled", "enough", canceled)
	if counts := w.validJournal("in-time"); counts["InvokeCompleted"] != 1 {
		t.Errorf("a result that came within the grace is not in the journal: %v", counts)
	}
	// Results that arrive too late change nothing.
	x.saw(durable.EventActivationEnded, "grace", 1)
	x.saw(durable.EventActivationEnded, "terminated", 1)
	if after := w.journal("grace"); len(after) != len(before) {
		t.Errorf("a late commit made %v of the journal %v", after, before)
	}
	x.noProblems()
}

// TestFailures ends executions by what their functions return.
func TestFailures(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	fails := durable.NewFunction("fails", func(ctx durable.Context, in string) (string, error) {
		return "", &durable.Error{Type: "declined", Message: in, Details: []byte("why"), NonRetryable: true}
	})
	plain := durable.NewFunction("plain", func(ctx durable.Context, in string) (string, error) { return "", errors.New(in) })
	panics := durable.NewFunction("panics", func(ctx durable.Context, in string) (string, error) { panic(in) })
	huge := durable.NewFunction("huge", func(ctx durable.Context, n int) ([]byte, error) { return make([]byte, n), nil })
	x := w.work(durable.WorkerOptions{}, fails, plain, panics, huge)

	h := begin(w, fails, "fails", "no funds")
	w.ended("fails", failed, "declined", "no funds", rejected)
	_, err := h.Result(soon(t))
	var cause *durable.Error
	if !errors.As(err, &cause) || cause.Type != "declined" || string(cause.Details) != "why" || !cause.NonRetryable {
		t.Errorf("the handle's error is %v", err)
	}
	begin(w, plain, "plain", "broken")
	w.ended("plain", failed, "error", "broken", rejected)

	// The largest result passes, one more byte fails the execution.
	const limit = 4 << 20
	if got := result(t, begin(w, huge, "largest", limit)); len(got) != limit {
		t.Errorf("%d bytes came back", len(got))
	}
	begin(w, huge, "too-large", limit+1)
	w.ended("too-large", failed, "payload_too_large", "4194305 bytes", rejected)

	// A panic is not a result: the execution waits for better code, and says why.
	begin(w, panics, "panics", "oh no")
	until(t, "the problem to show, between two tries", func() error {
		if e := w.describe("panics"); !strings.Contains(e.GetLastProblem(), "panic: oh no") ||
			e.GetStatus() != running_ || e.GetTask().GetState() != "pending" || e.GetWakeSource() != "retry timer" {
			return fmt.Errorf("it is %v", e)
		}
		return nil
	})
	if x.count(durable.EventProblem, "panics") == 0 {
		t.Error("the worker did not report the panic")
	}
	if _, err := w.Terminate(soon(t), "panics", "bad code"); err != nil {
		t.Error(err)
	}
	w.ended("panics", cancelled, "cancelled", "bad code", canceled)
}
