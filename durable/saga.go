package durable

import (
	"context"
	"errors"
	"strconv"
)

// Saga undoes the steps of a function that fails. Do runs a step and remembers how to undo it. The undos run in reverse
// order when the function calls Rollback, returns an error, is cancelled or misses its deadline; see Cleanup.
type Saga struct {
	t     *activation
	opts  cleanupOptions
	undos []*cleanup
}

// NewSaga begins a saga of the running function.
func NewSaga(ctx Context, opts ...CleanupOption) *Saga {
	return &Saga{t: ctx.activation(), opts: cleanupOptionsOf(opts)}
}

// Done is what an undo knows of the step that it undoes.
type Done[T any] struct {
	// Result is the step's result if Known. It is unknown when the step failed, or when its worker was lost or the
	// execution cancelled while it ran: it may or may not have had its effect. Ask by PromiseID.
	Result T
	Known  bool
	// PromiseID is what StepInfo gave to the step: the key by which the other side knows it.
	PromiseID string
}

// Do runs a step, as Run does, and registers how to undo it. The beginning of the step is recorded before it
// runs (WithIntent), so that a step which may have had its effect is never forgotten. undo is a step too: it
// runs at least once, is retried (UndoRetry), and is named "undo NAME". A step that failed with a Permanent
// error has done nothing, and is not undone.
func Do[T any](ctx Context, s *Saga, name string, step func(ctx context.Context) (T, error), undo func(ctx context.Context, done Done[T]) error, opts ...StepOption) (T, error) {
	return DoFunc(ctx, s, name, step, func(ctx Context, done Done[T]) error {
		_, err := Run(ctx, "undo "+name, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, undo(ctx, done)
		}, WithRetry(s.opts.retry))
		return err
	}, opts...)
}

// DoFunc is Do with an undo that is no step: it may use every operation.
func DoFunc[T any](ctx Context, s *Saga, name string, step func(ctx context.Context) (T, error), undo func(ctx Context, done Done[T]) error, opts ...StepOption) (T, error) {
	done := Done[T]{}
	t, err := enterNamed(ctx, "Do", name)
	if err != nil || t != s.t {
		if err == nil {
			misuse := &MisuseError{ID: t.info.ID, What: "Do(" + strconv.Quote(name) + ")", Why: "was given a saga of another execution"}
			t.misuse.CompareAndSwap(nil, misuse)
			err = misuse
		}
		return done.Result, err
	}
	n := t.next
	done.PromiseID = t.child(n)
	registered := s.add(func(ctx Context) error { return undo(ctx, done) })
	out, err := Run(ctx, name, step, append(opts[:len(opts):len(opts)], WithIntent())...)
	var failure *Error
	switch {
	case err == nil:
		done.Result, done.Known = out, true
	case t.journal.op(n) == nil, errors.As(err, &failure) && failure.NonRetryable:
		s.drop(registered) // it never began, or was refused
	}
	return out, err
}

// Undo registers something else to undo: it runs as Cleanup's functions do.
func (s *Saga) Undo(fn func(ctx Context) error) { s.add(fn) }

func (s *Saga) add(fn func(ctx Context) error) *cleanup {
	c := s.t.register(fn, s.opts)
	s.undos = append(s.undos, c)
	return c
}

func (s *Saga) drop(c *cleanup) {
	s.t.unregister(c)
	for i := range s.undos {
		if s.undos[i] == c {
			s.undos = append(s.undos[:i:i], s.undos[i+1:]...)
			return
		}
	}
}

// Rollback undoes everything now, last things first, and forgets it. Its error joins those of the undos that failed in
// all attempts. It is ErrCancelled if a cancel interrupts it: the rest runs in the clean-up execution.
func (s *Saga) Rollback(ctx Context) error {
	t, err := enter(ctx, "Rollback")
	if err != nil {
		return err
	}
	var failed []error
	for len(s.undos) > 0 {
		c := s.undos[len(s.undos)-1]
		err := t.runCleanup(ctx, c)
		if t.cleanups.interrupted {
			return ErrCancelled
		}
		s.undos = s.undos[:len(s.undos)-1]
		if err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// Forget keeps what was done: nothing of the saga is undone any more.
func (s *Saga) Forget() {
	for len(s.undos) > 0 {
		s.drop(s.undos[len(s.undos)-1])
	}
}
