package durable

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
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
	// repeatable: its result may be lost after the step has returned, and other Repeatable steps may have run since.
	repeatable bool
	total      time.Duration
	// heartbeat is the time without a heartbeat after which an attempt has failed; 0: none.
	heartbeat time.Duration
	final     []string
	// kind and input are those of the operation: a step, unless it is of another kind.
	kind  opKind
	input []byte
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

// WithTotalTimeout bounds the step with its retries and pauses. The last attempt's context ends after d, and no attempt
// begins later: the step has failed with type "timeout", whichever worker runs it.
func WithTotalTimeout(d time.Duration) StepOption { return func(o *stepOptions) { o.total = d } }

// WithNonRetryable makes failures of these types final.
func WithNonRetryable(types ...string) StepOption {
	return func(o *stepOptions) { o.final = append(o.final, types...) }
}

// Run runs a local step: code with effects or of changing outcome, whose result is recorded and never
// computed again. name is compared with the journal at replay. The step runs in the function's goroutine with
// a context that ends when the execution is cancelled or lost; it must heed it and must not use ctx for
// operations. It runs at least once: use StepInfo's promise id to make its effects idempotent.
//
// The result is recorded when the function asks for its next operation or returns, and after 10 ms otherwise. No other
// step runs before, unless it and this one are Repeatable.
//
// A failing or panicking step is retried as its policy says; the last failure is returned as *Error. A step
// that is running when the execution is cancelled has its result recorded only WithIntent; otherwise Run
// returns ErrCancelled.
func Run[T any](ctx Context, name string, step func(ctx context.Context) (T, error), opts ...StepOption) (T, error) {
	var out T
	t, err := enterNamed(ctx, "Run", name)
	if err != nil {
		return out, err
	}
	o := stepOptions{}
	for _, opt := range opts {
		opt(&o)
	}
	if err := o.retry.check(); err != nil {
		return out, err
	}
	o.retry = o.retry.withDefaults()
	data, err := t.runStep(name, o, func(ctx context.Context) ([]byte, error) {
		v, err := step(ctx)
		if err != nil {
			return nil, err
		}
		return encode(t.codec, "the result of step", name, v)
	})
	if err != nil {
		return out, err
	}
	if err := decode(t.codec, "the result of step", name, data, &out); err != nil {
		t.failTask(fmt.Errorf("durable: %s: %w", t.child(t.next-1), err)) // it was encoded once: the code changed
	}
	return out, nil
}

// runStep replays or runs a step, with its retries.
func (t *activation) runStep(name string, o stepOptions, step func(context.Context) ([]byte, error)) ([]byte, error) {
	kind := perdurev1.InvokeKind_INVOKE_KIND_HTTP
	if o.kind == 0 {
		o.kind, kind = opStep, perdurev1.InvokeKind_INVOKE_KIND_STEP
	}
	n, rec, err := t.take(o.kind, name)
	if err != nil {
		return nil, err
	}
	s := t.newStep(n, rec, name, o, step)
	switch {
	case rec == nil:
		s.lead = s.schedule(kind)
	case rec.done:
		return t.consume(n, t.codec)
	case t.cancelling():
		return nil, ErrCancelled
	default:
		t.frontier("the code runs a step")
		if rec.open {
			// Its worker was lost in this attempt. The attempt's end is committed together with the start of
			// the next one. So a step that crashes its worker does so only as often as its policy says.
			s.o.intent = true
			lost := &perdurev1.Failure{Type: TypeLost, Message: "worker lost"}
			if int(rec.attempt) >= s.limit {
				return s.end(rec.attempt, nil, lost)
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
	name    string
	o       stepOptions
	step    func(context.Context) ([]byte, error)
	attempt uint32
	limit   int
	// since is when the step began, for its total timeout.
	since time.Time
	// lead are events to commit before the start of the attempt.
	lead []*perdurev1.Event
	// events is nil if no event of the step is in it.
	events *stepEvents
}

// newStep is a step without a result, as its record leaves it; rec is nil at the frontier.
func (t *activation) newStep(n uint32, rec *record, name string, o stepOptions, step func(context.Context) ([]byte, error)) stepRun {
	s := stepRun{t: t, n: n, id: t.child(n), name: name, o: o, attempt: 1, limit: o.retry.MaxAttempts, since: t.w.clock.Now(), step: step}
	if rec != nil {
		s.limit = attemptsOf(rec.policy, o.retry.MaxAttempts)
		s.attempt = rec.attempt + 1
		if rec.since > 0 {
			s.since = time.UnixMilli(rec.since)
		}
	}
	return s
}

// context is the context of one attempt.
func (s *stepRun) context(parent context.Context) (context.Context, context.CancelFunc) {
	now := s.t.w.clock.Now()
	bound := s.o.timeout
	if s.o.total > 0 {
		left := max(s.since.Add(s.o.total).Sub(now), time.Millisecond)
		if bound <= 0 || left < bound {
			bound = left
		}
	}
	c := &stepContext{function: parent, stepAttempt: stepAttempt{t: s.t, beats: &s.t.beats, id: s.id, label: s.name, attempt: s.attempt, last: now}}
	if bound > 0 {
		c.own, c.cancel = context.WithTimeout(parent, bound)
	}
	return c, c.end
}

// timedOut names the bound that ended an attempt.
func (s *stepRun) timedOut(ctx context.Context, err error) error {
	if err == nil || !errors.Is(ctx.Err(), context.DeadlineExceeded) || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if s.o.timeout <= 0 || s.late(0) {
		return fmt.Errorf("step took longer than %v with its retries: %w", s.o.total, err)
	}
	return fmt.Errorf("attempt took longer than %v: %w", s.o.timeout, err)
}

// late reports whether the step's total time is over after a pause.
func (s *stepRun) late(pause time.Duration) bool {
	return s.o.total > 0 && !s.t.w.clock.Now().Add(pause).Before(s.since.Add(s.o.total))
}

// again reports whether another attempt follows a failed one, and after which pause. It makes f, the failure,
// one of the type "timeout" when the total time is over before that attempt.
func (s *stepRun) again(f *perdurev1.Failure) (pause time.Duration, again bool) {
	if f.GetNonRetryable() || slices.Contains(s.o.final, f.GetType()) || int(s.attempt) >= s.limit {
		return 0, false
	}
	pause = s.o.retry.pause(s.attempt)
	if s.late(pause) {
		if f.GetType() != TypeTimeout {
			f.Message = cut(fmt.Sprintf("step took longer than %v with its retries: %s", s.o.total, f.GetMessage()), maxMessageBytes)
			f.Type = TypeTimeout
		}
		return 0, false
	}
	return pause, true
}

// run makes attempts until one succeeds or is the last.
func (s *stepRun) run() ([]byte, error) {
	for ; ; s.attempt++ {
		begun := append(s.lead, s.start())
		s.lead = nil
		var err error
		if s.o.intent {
			err, begun = s.t.commit(commit{events: begun}), nil
		} else if !s.o.repeatable || !s.t.allRepeatable() {
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
			return s.end(s.attempt, data, nil)
		}
		f := failureBy(s.t.codec, err)
		pause, again := s.again(f)
		if !again || s.t.cancelAsked.Load() {
			return s.end(s.attempt, nil, f)
		}
		s.t.logger().Warn("step failed, retrying", "event", "step_retry", "step", strconv.Quote(s.name), "attempt", s.attempt, "error", err)
		s.t.w.event(Event{Kind: EventAttempt, ID: s.t.info.ID, Function: s.t.info.Function, Err: err})
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

// end records the step's outcome, a failure or else a value, or holds it, and returns it.
func (s *stepRun) end(attempt uint32, value []byte, failure *perdurev1.Failure) ([]byte, error) {
	events := append(s.lead, s.completed(attempt, value, failure))
	if s.holds() {
		if err := s.hold(events); err != nil {
			return nil, err
		}
		if failure != nil {
			return nil, errorBy(s.t.codec, failure)
		}
		return value, nil
	}
	if err := s.t.commit(commit{events: events}); err != nil {
		return nil, err
	}
	s.t.beats.drop(s.id)
	return s.t.consume(s.n, s.t.codec)
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
		t.release = &taskRelease{delay: d}
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
	ctx, cancel := s.context(t.ctx)
	defer cancel()
	t.inStep = s.name
	data, err := s.guarded(ctx)
	t.inStep = ""
	if t.isLost() {
		t.unwind()
	}
	if m := t.misuse.Load(); m != nil {
		t.failTask(m)
	}
	if err != nil && errors.Is(context.Cause(t.ctx), errStopping) {
		// Not the step's fault: no failed attempt. The next worker runs it again.
		t.release = &taskRelease{}
		t.unwind()
	}
	return data, s.timedOut(ctx, err)
}

// guarded runs the step; a panic is a failed attempt. A runtime.Goexit in the step ends the activation with a
// problem, which activation.close sees.
func (s *stepRun) guarded(ctx context.Context) ([]byte, error) {
	if s.attempt > 1 && s.late(0) {
		return nil, &Error{Type: TypeTimeout, Message: fmt.Sprintf("step took longer than %v with its retries", s.o.total), NonRetryable: true}
	}
	if s.o.heartbeat > 0 {
		return s.watched(ctx)
	}
	return s.call(ctx)
}

// call calls the step's function; it makes an error of a panic.
func (s *stepRun) call(ctx context.Context) (data []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.t.logger().Error("panic in a step", "event", "step_panic", "step", strconv.Quote(s.name), "attempt", s.attempt, "panic", p, "stack", string(debug.Stack()))
			data, err = nil, &Error{Type: TypePanic, Message: fmt.Sprint(p)}
		}
	}()
	return s.step(ctx)
}
