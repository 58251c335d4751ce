package durable

import (
	"slices"

	perdurev1 "perdure/api/perdure/v1"
)

// nameCancel is the name by which the journal has a cancel of an operation.
const nameCancel = "cancel"

// errCancelledByFunction is what a cancelled operation ends with.
func errCancelledByFunction() *Error {
	return &Error{Type: TypeCancelled, Message: "cancelled by its function", NonRetryable: true}
}

// Cancel gives up an operation whose result the function no longer wants, with the next commit. It does not
// wait. Get then returns an error that matches ErrCancelled, or the result if that came first.
//
//   - The context of a step (GoStep) ends. A step that returns a result nonetheless has it.
//   - A timer (After, At) does not fire any more.
//   - A wait for a signal (NextSignal) takes none: the next wait gets the signal.
//   - A promise (NewPromise) is settled: who has its token is refused.
//   - A child is asked to cancel, and the future has its result when the child has ended.
//   - Of an entity's operation (GoCallEntity), another promise (AwaitPromise) and a delivery (GoSignal) only the wait ends.
//     Inside a critical section the call of a locked entity cannot be cancelled.
//
// A second Cancel, or one after Get has returned, does nothing. It needs feature level 6, except for steps.
func (f *Future[T]) Cancel(ctx Context) error {
	t, err := enterWith(ctx, "Cancel", f.name, f)
	if err != nil {
		return err
	}
	if f.over {
		return nil
	}
	if t.section != nil && f.entity {
		return entityError("the call of an entity inside a critical section cannot be cancelled")
	}
	if f.step {
		err = t.cancelStep(f.n)
	} else {
		_, err = t.sendEntity(nameCancel, f.ID(), &perdurev1.Send{What: &perdurev1.Send_Cancel{Cancel: &perdurev1.CancelOperation{OperationId: f.ID()}}})
	}
	if err != nil {
		return err
	}
	f.over = true
	if s := f.signal; s != nil && !s.received {
		s.end(t, nil, errCancelledByFunction())
	}
	return nil
}

// cancelStep ends a step of GoStep that has no result: at once if no attempt runs, else when that returns.
func (t *activation) cancelStep(n uint32) error {
	b := &t.background
	i := slices.IndexFunc(b.open, func(s *backgroundStep) bool { return s.n == n })
	if i < 0 {
		return nil
	}
	s := b.open[i]
	s.cancelled = true
	if s.running {
		s.stop()
		return nil
	}
	b.open = slices.Delete(b.open, i, i+1)
	t.beats.drop(s.id)
	var events []*perdurev1.Event
	if !s.started {
		events = append(events, s.start())
	}
	return t.stage(nil, nil, append(events, s.completed(s.attempt, nil, failureOf(errCancelledByFunction())))...)
}

// cancels notes which operation a send cancels.
func (r *history) cancels(s *perdurev1.InvokeScheduled) {
	if r.targets == nil {
		r.targets = map[string]string{}
	}
	r.targets[s.GetPromiseId()] = string(s.GetInput())
}

// cancelDone applies the result of a cancel to a timer, which has no event of its own for that. Other
// operations have one.
func (r *history) cancelDone(seq uint64, done *perdurev1.InvokeCompleted) error {
	operation, ok := r.targets[done.GetPromiseId()]
	if !ok {
		return nil
	}
	delete(r.targets, done.GetPromiseId())
	if open := done.GetResult().GetValue(); len(open) != 1 || open[0] != 1 {
		return nil
	}
	target, err := r.find(operation)
	if err == nil && target.kind == opTimer {
		r.resolve(target, seq, &perdurev1.Outcome{Result: &perdurev1.Outcome_Failure{Failure: failureOf(errCancelledByFunction())}})
	}
	return err
}
