package durable

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

const (
	// maxBackground bounds the steps of one activation that run at once.
	maxBackground = 100

	// While steps run, the worker reads the journal for what else is awaited, with pauses between these: see pollRest.
	pollMin = 50 * time.Millisecond
	pollMax = 2 * time.Second
)

// GoStep is Run without the wait: the step runs concurrently with the function, in a goroutine of its own,
// from the next commit on, which is no later than the next operation that waits or runs a step. Get returns
// the step's result.
//
// An execution whose steps run does not leave its worker: every wait of the function continues here until
// they have ended. The function's end, or an activation's, ends the contexts of steps that still run. A step
// whose result was not recorded runs again at the next activation.
func GoStep[T any](ctx Context, name string, step func(ctx context.Context) (T, error), opts ...StepOption) (*Future[T], error) {
	t, err := enterNamed(ctx, "GoStep", name)
	if err != nil {
		return nil, err
	}
	o := stepOptions{}
	for _, opt := range opts {
		opt(&o)
	}
	if err := o.retry.check(); err != nil {
		return nil, err
	}
	o.retry = o.retry.withDefaults()
	n, rec, err := t.take(opStep, name)
	if err != nil {
		return nil, err
	}
	f := &Future[T]{t: t, n: n, cleaning: t.cleaning(), name: name, codec: t.codec, step: true}
	if rec != nil && rec.done {
		return f, nil
	}
	s := &backgroundStep{stepRun: t.newStep(n, rec, name, o, func(ctx context.Context) ([]byte, error) {
		v, err := step(ctx)
		if err != nil {
			return nil, err
		}
		return encode(t.codec, "the result of step", name, v)
	})}
	switch {
	case rec == nil:
		err = t.stage(nil, nil, &perdurev1.Event{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{
			PromiseId: s.id, Kind: perdurev1.InvokeKind_INVOKE_KIND_STEP, FunctionName: name, RetryPolicy: o.retry.String()}}})
	case rec.open:
		// As in runStep: a lost worker has used up the attempt.
		s.o.intent = true
		lost := &perdurev1.Failure{Type: TypeLost, Message: "worker lost"}
		if int(rec.attempt) >= s.limit {
			return f, t.stage(nil, nil, s.completed(rec.attempt, nil, lost))
		}
		err = t.stage(nil, nil, s.retrying(rec.attempt, lost, t.w.clock.Now()))
	default:
		s.begin = time.UnixMilli(rec.retryAt)
	}
	if err != nil {
		return nil, err
	}
	t.background.open = append(t.background.open, s)
	return f, nil
}

// backgroundStep is a step of GoStep that has no result yet.
type backgroundStep struct {
	stepRun
	// begin is when the next attempt begins.
	begin time.Time
	// running: an attempt runs. started: the journal has its start.
	running, started bool
	// cancelled: the function has cancelled it. stop ends the context of the attempt that runs.
	cancelled bool
	stop      context.CancelFunc
}

// background are an activation's steps of GoStep. The function's goroutine alone uses open and cancel.
type background struct {
	open   []*backgroundStep
	ctx    context.Context
	cancel context.CancelFunc
	joined sync.WaitGroup

	mu    sync.Mutex
	ended []attemptEnd
	// woken has capacity 1: an attempt has ended.
	woken chan struct{}
}

// attemptEnd is how an attempt ended.
type attemptEnd struct {
	s    *backgroundStep
	data []byte
	err  error
}

// stop ends the contexts of the steps that run, and returns when they have returned.
func (b *background) stop() {
	if b.cancel != nil {
		b.cancel()
		b.joined.Wait()
	}
	b.open = nil
}

func (b *background) running() (n int) {
	for _, s := range b.open {
		if s.running {
			n++
		}
	}
	return n
}

// launch begins the attempts whose time has come, while the buffer is empty: what they may act upon is recorded.
func (t *activation) launch() {
	b := &t.background
	for _, s := range b.open {
		if s.running || s.begin.After(t.w.clock.Now()) || b.running() >= maxBackground {
			continue
		}
		if t.cancelAsked.Load() || t.w.isStopping() {
			return
		}
		if s.o.intent && !s.started {
			s.started = true
			err := t.commit(commit{events: []*perdurev1.Event{s.start()}}) // which launches it, and others
			if err != nil {
				return
			}
			continue
		}
		t.secureLease()
		if b.woken == nil {
			b.woken = make(chan struct{}, 1)
			b.ctx, b.cancel = context.WithCancel(t.ctx)
		}
		s.running = true
		ctx, cancel := s.context(b.ctx)
		s.stop = cancel
		b.joined.Go(func() { t.attempt(ctx, cancel, s) })
	}
}

// attempt makes one attempt of a step, in a goroutine of its own.
func (t *activation) attempt(ctx context.Context, cancel context.CancelFunc, s *backgroundStep) {
	b := &t.background
	defer cancel()
	end := attemptEnd{s: s, err: &Error{Type: TypePanic, Message: "runtime.Goexit was called"}}
	defer func() {
		b.mu.Lock()
		b.ended = append(b.ended, end)
		b.mu.Unlock()
		select {
		case b.woken <- struct{}{}:
		default:
		}
	}()
	end.data, end.err = s.guarded(ctx)
	end.err = s.timedOut(ctx, end.err)
}

// collect records how attempts have ended. The error is ErrCancelled.
func (t *activation) collect() error {
	b := &t.background
	b.mu.Lock()
	ended := b.ended
	b.ended = nil
	b.mu.Unlock()
	var events []*perdurev1.Event
	var cancelled error
	for _, end := range ended {
		s := end.s
		s.running = false
		if end.err != nil && errors.Is(context.Cause(t.ctx), errStopping) {
			continue // not the step's fault: the next worker runs it again
		}
		var own []*perdurev1.Event
		if !s.started {
			own = append(own, s.start())
		}
		var f *perdurev1.Failure
		again := false
		if end.err != nil {
			f = failureBy(t.codec, end.err)
			if s.cancelled {
				f = failureOf(errCancelledByFunction())
			}
			var pause time.Duration
			if pause, again = s.again(f); again && !t.cancelAsked.Load() {
				t.logger().Warn("step failed, retrying", "event", "step_retry", "step", strconv.Quote(s.name), "attempt", s.attempt, "error", end.err)
				t.w.event(Event{Kind: EventAttempt, ID: t.info.ID, Function: t.info.Function, Err: end.err})
				s.begin = t.w.clock.Now().Add(pause)
				own = append(own, s.retrying(s.attempt, f, s.begin))
			}
		}
		again = again && !t.cancelAsked.Load()
		if again {
			s.attempt++
		} else {
			own = append(own, s.completed(s.attempt, end.data, f))
			b.open = slices.DeleteFunc(b.open, func(x *backgroundStep) bool { return x == s })
			t.beats.drop(s.id)
		}
		if s.started {
			// Apart: while the execution is cancelling, the result of a recorded start is recorded and the
			// others are not.
			s.started = false
			if err := t.commit(commit{events: own}); err != nil {
				cancelled = err
			}
		} else {
			events = append(events, own...)
		}
	}
	if len(events) == 0 || cancelled != nil {
		return cancelled
	}
	return t.commit(commit{events: events})
}

// settleSteps returns when a wait of the function may end the activation, because no step runs concurrently,
// or when the wait is satisfied. Until then it records the steps' results, and reads the journal for what
// else the function waits for.
func (t *activation) settleSteps(kind perdurev1.AwaitKind, ns []uint32) error {
	b := &t.background
	since := t.w.clock.Now()
	for len(b.open) > 0 {
		t.frontier("the code runs a step")
		err := t.flush()
		t.launch()
		if ended := t.collect(); ended != nil {
			err = ended
		}
		if err != nil && b.running() == 0 {
			return err // the results of those that run may still be recorded
		}
		if len(b.open) == 0 || t.waitOver(kind, ns) {
			return nil
		}
		running := b.running()
		if running == 0 {
			if t.cancelAsked.Load() {
				return ErrCancelled
			}
			t.checkpoint()
		}
		next, due := t.nextAttempt()
		elsewhere := t.awaitsOthers(ns)
		if running == 0 && due && next > releaseBackoff {
			if elsewhere {
				next = releaseBackoff // a released task does not notice what ends meanwhile
			}
			t.release = &taskRelease{delay: next}
			t.unwind()
		}
		if rest := pollRest(t.w.clock.Now().Sub(since)); elsewhere && (!due || rest < next) {
			next, due = rest, true
		}
		var timer <-chan time.Time
		if due {
			timer = t.w.clock.After(max(next, time.Millisecond))
		}
		stopping, cancelled := t.w.stopping, t.ctx.Done()
		if running > 0 {
			stopping, cancelled = nil, nil // the steps' contexts end with the function's
		}
		select {
		case <-b.woken:
			since = t.w.clock.Now()
		case <-timer:
			if elsewhere {
				t.refresh()
			}
		case <-stopping:
		case <-cancelled:
		case <-t.lost:
		}
		t.checkRight()
	}
	return nil
}

// pollRest is the pause before the journal is read again, for a wait that has taken so long: a result comes
// at most an eighth of the wait late.
func pollRest(waited time.Duration) time.Duration { return max(pollMin, min(waited/8, pollMax)) }

// nextAttempt is how long it is until the next attempt of a step that waits for one; ok is false when none does.
func (t *activation) nextAttempt() (d time.Duration, ok bool) {
	for _, s := range t.background.open {
		if left := s.begin.Sub(t.w.clock.Now()); !s.running && left > 0 && (!ok || left < d) {
			d, ok = left, true
		}
	}
	return d, ok
}

// waitOver reports whether a wait for child numbers is satisfied.
func (t *activation) waitOver(kind perdurev1.AwaitKind, ns []uint32) bool {
	resolved := 0
	for _, n := range ns {
		if t.journal.resolved(n) {
			resolved++
		}
	}
	return resolved > 0 && (resolved == len(ns) || kind == perdurev1.AwaitKind_AWAIT_KIND_ANY)
}

// awaitsOthers reports whether an unresolved child number is no step of this activation.
func (t *activation) awaitsOthers(ns []uint32) bool {
	return slices.ContainsFunc(ns, func(n uint32) bool {
		return !t.journal.resolved(n) && !slices.ContainsFunc(t.background.open, func(s *backgroundStep) bool { return s.n == n })
	})
}
