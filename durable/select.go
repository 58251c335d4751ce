package durable

import (
	"errors"
	"slices"
)

// Case is a future and what Select does with its result. On makes one.
type Case struct {
	future Awaitable
	handle func(ctx Context) error
}

// On makes a case of Select: handle gets the future's result, or its error.
func On[T any](f *Future[T], handle func(value T, err error) error) Case {
	return Case{future: f, handle: func(ctx Context) error { return handle(f.Get(ctx)) }}
}

// CancelLosers makes Select cancel the futures of its other cases before it calls the handle: see Future.Cancel.
func CancelLosers() Case { return Case{} }

// Select waits until one of the cases' futures has its result, and calls that case's handle with it; the
// first to have it, the same one at every replay. It returns what handle returns. ErrCancelled means that no
// handle was called. The other futures go on, and a later Select or Get may have them, unless one of the
// cases is CancelLosers.
func Select(ctx Context, cases ...Case) error {
	all := len(cases)
	cases = slices.DeleteFunc(slices.Clone(cases), func(c Case) bool { return c.future == nil })
	if len(cases) == 0 {
		return errors.New("durable: Select of no cases would wait for ever")
	}
	futures := make([]Awaitable, len(cases))
	for i, c := range cases {
		futures[i] = c.future
	}
	i, err := AwaitAny(ctx, futures...)
	if err != nil {
		return err
	}
	if all > len(cases) {
		for _, f := range futures {
			if f.ID() == futures[i].ID() {
				continue
			}
			if err := f.Cancel(ctx); err != nil {
				return err
			}
		}
	}
	return cases[i].handle(ctx)
}
