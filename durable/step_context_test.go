package durable

import (
	"context"
	"errors"
	"testing"
	"time"

	"perdure/client"
)

type stepContextKey struct{}

// A step's context is like one made by context.WithCancel, whether its end was asked for before it, after it, or never.
func TestStepContext(t *testing.T) {
	cause := errors.New("the function's")
	for _, c := range []struct {
		name  string
		asked bool // its Done was asked for before the end
		end   func(endStep func(), endFunction context.CancelCauseFunc)
		err   error
		cause error
	}{
		{"goes on, asked", true, func(func(), context.CancelCauseFunc) {}, nil, nil},
		{"goes on", false, func(func(), context.CancelCauseFunc) {}, nil, nil},
		{"ends, asked", true, func(endStep func(), _ context.CancelCauseFunc) { endStep() }, context.Canceled, context.Canceled},
		{"ends", false, func(endStep func(), _ context.CancelCauseFunc) { endStep() }, context.Canceled, context.Canceled},
		{"ends with the function, asked", true, func(_ func(), f context.CancelCauseFunc) { f(cause) }, context.Canceled, cause},
		{"ends with the function", false, func(_ func(), f context.CancelCauseFunc) { f(cause) }, context.Canceled, cause},
		{"ends after the function", false, func(s func(), f context.CancelCauseFunc) { f(cause); s() }, context.Canceled, cause},
	} {
		t.Run(c.name, func(t *testing.T) {
			function, endFunction := context.WithCancelCause(context.WithValue(t.Context(), stepContextKey{}, "v"))
			defer endFunction(nil)
			ctx := &stepContext{function: function, stepAttempt: stepAttempt{id: "x.1", attempt: 3}}
			if c.asked {
				select {
				case <-ctx.Done():
					t.Fatal("ended at once")
				default:
				}
			}
			c.end(ctx.end, endFunction)
			if err := ctx.Err(); err != c.err {
				t.Errorf("Err is %v, not %v", err, c.err)
			}
			if err := context.Cause(ctx); err != c.cause {
				t.Errorf("the cause is %v, not %v", err, c.cause)
			}
			if got := StepInfo(ctx); got != (Step{PromiseID: "x.1", Attempt: 3}) || ctx.Value(stepContextKey{}) != "v" {
				t.Errorf("step %+v, value %v", got, ctx.Value(stepContextKey{}))
			}
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			if err := child.Err(); err != c.err {
				t.Errorf("a child's Err is %v, not %v", err, c.err)
			}
			ctx.end()
			select {
			case <-ctx.Done():
			default:
				t.Error("Done is open after the end")
			}
			if child.Err() == nil {
				t.Error("a child goes on after the end")
			}
		})
	}
	s := stepRun{t: &activation{w: &Worker{clock: client.SystemClock()}, hold: &hold{}}, o: stepOptions{timeout: time.Hour}}
	ctx, end := s.context(t.Context())
	defer end()
	if at, ok := ctx.Deadline(); !ok || time.Until(at) > time.Hour {
		t.Errorf("the deadline is %v, %v", at, ok)
	}
}
