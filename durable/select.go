package durable

import "errors"

// Case is a future and what Select does with its result. On makes one.
type Case struct {
	future Awaitable
	handle func(ctx Context) error
}

// On makes a case of Select: handle gets the future's result, or its error.
func On[T any](f *Future[T], handle func(value T, err error) error) Case {
	return Case{future: f, handle: func(ctx Context) error { return handle(f.Get(ctx)) }}
}

// Select waits until one of the cases' futures has its result, and calls that case's handle with it; the first to have it,
// the same one at every replay. It returns what handle returns. ErrCancelled means that no handle was called. The other
// futures stay open: a later Select or Get may have them.
func Select(ctx Context, cases ...Case) error {
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
	return cases[i].handle(ctx)
}
