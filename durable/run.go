package durable

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

// releaseBackoff is the longest pause before a retry during which a task keeps its slot. For a longer pause the
// worker releases the task, so that another function can run.
const releaseBackoff = 10 * time.Second

// StepOption is an option of a step.
type StepOption func(*stepOptions)

type stepOptions struct {
	retry   RetryPolicy
	intent  bool
	timeout time.Duration
}

// WithRetry sets how often and how fast the step is retried; see RetryPolicy for the default.
func WithRetry(p RetryPolicy) StepOption { return func(o *stepOptions) { o.retry = p } }

// NoRetry makes the first failure of the step final.
func NoRetry() StepOption { return WithRetry(RetryPolicy{MaxAttempts: 1}) }

// WithIntent records that an attempt begins before it runs, at the price of one more round. Then a lost
// worker costs an attempt (RetryPolicy.MaxAttempts bounds how often the step can have run), and a result that
// comes after a cancellation is still recorded. Use it for a step with a compensation.
func WithIntent() StepOption { return func(o *stepOptions) { o.intent = true } }

// WithTimeout ends the context of each attempt after d. An attempt that returns an error then has failed
// with type "timeout" unless its error says otherwise.
func WithTimeout(d time.Duration) StepOption { return func(o *stepOptions) { o.timeout = d } }

// Run runs a local step: code with effects or of changing outcome, whose result is recorded and never
// computed again. name is compared with the journal at replay. The step runs in the function's goroutine with
// a context that ends when the execution is cancelled or lost; it must heed it and must not use ctx for
// operations. It runs at least once: use StepInfo's promise id to make its effects idempotent.
//
// A failing or panicking step is retried as its policy says; the last failure is returned as *Error. A step
// that is running when the execution is cancelled has its result recorded only WithIntent; otherwise Run
// returns ErrCancelled.
func Run[T any](ctx Context, name string, step func(ctx context.Context) (T, error), opts ...StepOption) (T, error) {
	var out T
	t, err := enter(ctx, "Run("+strconv.Quote(name)+")")
	if err != nil {
		return out, err
	}
	o := stepOptions{}
	for _, opt := range opts {
		opt(&o)
	}
	o.retry = o.retry.withDefaults()
	data, err := t.runStep(name, o, func(ctx context.Context) ([]byte, error) {
		v, err := step(ctx)
		if err != nil {
			return nil, err
		}
		return encode(t.codec, "the result of step "+strconv.Quote(name), v)
	})
	if err != nil {
		return out, err
	}
	if err := decode(t.codec, "the result of step "+strconv.Quote(name), data, &out); err != nil {
		t.giveUp(fmt.Errorf("durable: %s: %w", t.child(t.next-1), err)) // it was encoded once: the code changed
	}
	return out, nil
}

// runStep replays or runs a step, with its retries.
func (t *activation) runStep(name string, o stepOptions, step func(context.Context) ([]byte, error)) ([]byte, error) {
	n, rec, err := t.take(opStep, name)
	if err != nil {
		return nil, err
	}
	s := stepRun{t: t, n: n, id: t.child(n), name: strconv.Quote(name), o: o, attempt: 1, limit: o.retry.MaxAttempts, step: step}
	switch {
	case rec == nil:
		s.lead = []*perdurev1.Event{{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{
			PromiseId: s.id, Kind: perdurev1.InvokeKind_INVOKE_KIND_STEP, FunctionName: name, RetryPolicy: o.retry.String()}}}}
	case rec.done:
		return t.outcome(n)
	case t.cancelling():
		return nil, ErrCancelled
	default:
		s.limit = attemptsOf(rec.policy, o.retry.MaxAttempts)
		s.attempt = rec.attempt + 1
		if rec.open {
			// Its worker was lost in this attempt. The attempt's end is committed together with the start of
			// the next one. So a step that crashes its worker does so only as often as its policy says.
			s.o.intent = true
			lost := &perdurev1.Failure{Type: TypeLost, Message: "worker lost"}
			if int(rec.attempt) >= s.limit {
				return s.end(rec.attempt, &perdurev1.Outcome{Result: &perdurev1.Outcome_Failure{Failure: lost}})
			}
			s.lead = []*perdurev1.Event{s.retrying(rec.attempt, lost, t.w.clock.Now())}
		} else if err := s.pause(time.UnixMilli(rec.retryAt).Sub(t.w.clock.Now())); err != nil {
			return nil, err
		}
	}
	return s.run()
}

// stepRun is a step that has no result yet.
type stepRun struct {
	t       *activation
	n       uint32
	id      string
	name    string // quoted
	o       stepOptions
	step    func(context.Context) ([]byte, error)
	attempt uint32
	limit   int
	// lead are events to commit before the start of the attempt.
	lead []*perdurev1.Event
}

// run makes attempts until one succeeds or is the last.
func (s *stepRun) run() ([]byte, error) {
	for ; ; s.attempt++ {
		begun := append(s.lead, &perdurev1.Event{Kind: &perdurev1.Event_InvokeStarted{
			InvokeStarted: &perdurev1.InvokeStarted{PromiseId: s.id, Attempt: s.attempt}}})
		s.lead = nil
		var err error
		if s.o.intent {
			err, begun = s.t.commit(commit{events: begun}), nil
		} else {
			err = s.t.flush() // what the step may act upon is recorded before it runs
		}
		if err == nil {
			// Waiting may have taken long, and this process may have been paused. A check is cheap; running a
			// step that another worker has finished meanwhile is not.
			s.t.secureLease()
		}
		if err == nil && s.t.cancelling() {
			err = ErrCancelled
		}
		if err != nil {
			return nil, err
		}
		s.lead = begun
		data, err := s.once()
		if err == nil {
			return s.end(s.attempt, &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: data}})
		}
		f := failureOf(err)
		if f.GetNonRetryable() || int(s.attempt) >= s.limit || s.t.cancelAsked.Load() {
			return s.end(s.attempt, &perdurev1.Outcome{Result: &perdurev1.Outcome_Failure{Failure: f}})
		}
		s.t.log.Warn("step failed, retrying", "event", "step_retry", "step", s.name, "attempt", s.attempt, "error", err)
		s.t.w.event(Event{Kind: EventAttempt, ID: s.t.info.ID, Function: s.t.info.Function, Err: err})
		pause := s.o.retry.pause(s.attempt)
		events := append(s.lead, s.retrying(s.attempt, f, s.t.w.clock.Now().Add(pause)))
		s.lead = nil
		if err := s.t.commit(commit{events: events}); err != nil {
			return nil, err
		}
		if err := s.pause(pause); err != nil {
			return nil, err
		}
	}
}

// end records the step's outcome and returns it.
func (s *stepRun) end(attempt uint32, o *perdurev1.Outcome) ([]byte, error) {
	events := append(s.lead, &perdurev1.Event{Kind: &perdurev1.Event_InvokeCompleted{
		InvokeCompleted: &perdurev1.InvokeCompleted{PromiseId: s.id, Result: o, Attempt: attempt}}})
	if err := s.t.commit(commit{events: events}); err != nil {
		return nil, err
	}
	return s.t.outcome(s.n)
}

func (s *stepRun) retrying(attempt uint32, f *perdurev1.Failure, at time.Time) *perdurev1.Event {
	return &perdurev1.Event{Kind: &perdurev1.Event_InvokeRetrying{InvokeRetrying: &perdurev1.InvokeRetrying{
		PromiseId: s.id, FailedAttempt: attempt, Error: f, RetryAtMs: at.UnixMilli()}}}
}

// pause waits for the next attempt: here if it is soon. Otherwise the activation ends, and the task is
// delivered again after the pause. The error is ErrCancelled.
func (s *stepRun) pause(d time.Duration) error {
	t := s.t
	d = min(d, s.o.retry.Max) // another worker's clock may have recorded the time
	if d > releaseBackoff {
		t.give = &giveBack{delay: d}
		t.unwind()
	}
	if d > 0 {
		select {
		case <-t.w.clock.After(d):
		case <-t.ctx.Done():
		case <-t.lost:
		case <-t.w.stopping:
		}
	}
	t.checkpoint()
	if t.cancelling() {
		return ErrCancelled
	}
	return nil
}

// once makes one attempt. It does not return when the task was lost or released meanwhile.
func (s *stepRun) once() ([]byte, error) {
	t := s.t
	ctx, cancel := context.WithCancel(context.WithValue(t.ctx, stepKey{}, Step{PromiseID: s.id, Attempt: s.attempt}))
	defer cancel()
	if s.o.timeout > 0 {
		var expire context.CancelFunc
		ctx, expire = context.WithTimeout(ctx, s.o.timeout)
		defer expire()
	}
	t.inStep = s.name
	data, err := s.guarded(ctx)
	t.inStep = ""
	if t.isLost() {
		t.unwind()
	}
	if m := t.misuse.Load(); m != nil {
		t.giveUp(m)
	}
	if err != nil && errors.Is(context.Cause(t.ctx), errStopping) {
		// Not the step's fault: no failed attempt. The next worker runs it again.
		t.give = &giveBack{}
		t.unwind()
	}
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) && errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("attempt took longer than %v: %w", s.o.timeout, err)
	}
	return data, err
}

// guarded runs the step; a panic is a failed attempt. A runtime.Goexit in the step ends the activation with a
// problem, which activation.close sees.
func (s *stepRun) guarded(ctx context.Context) (data []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.t.log.Error("panic in a step", "event", "step_panic", "step", s.name, "attempt", s.attempt, "panic", p, "stack", string(debug.Stack()))
			data, err = nil, &Error{Type: TypePanic, Message: fmt.Sprint(p)}
		}
	}()
	return s.step(ctx)
}
