package durable

import (
	"context"
	"runtime"
	"strconv"
	"time"
)

// Context is the argument of a durable function and of its operations. It is a context.Context that ends when
// the execution is cancelled or no longer this worker's; while recorded operations are replayed it does not
// end. Contexts derived from it are plain ones: good for steps, not for operations.
type Context interface {
	context.Context
	// activation keeps the interface closed: only this package makes a Context.
	activation() *activation
}

type execContext struct {
	context.Context
	t *activation
}

func (c execContext) activation() *activation { return c.t }

// ExecutionInfo describes the running execution to its function. It is the same at every replay.
type ExecutionInfo struct {
	ID, Function, Namespace string
	Incarnation             uint64
	// Created is when it was started; Deadline is zero when it has none.
	Created, Deadline time.Time
	Tags              map[string]string
	// Cleanup is the id of the execution that cleans up after this one, while that runs; else empty. All else is of the
	// cancelled execution.
	Cleanup string
}

// Info describes the running execution. It may be called anywhere, in steps too.
func Info(ctx Context) ExecutionInfo { return ctx.activation().info }

// Step describes a running step to its function.
type Step struct {
	// PromiseID is the id of the operation, the same at every attempt: a good idempotency key.
	PromiseID string
	// Attempt counts from 1.
	Attempt uint32
}

// StepInfo reports which step runs under ctx, the context Run gave to it or one derived from it; the
// zero Step when there is none.
func StepInfo(ctx context.Context) Step {
	if a, ok := ctx.Value(attemptKey{}).(*stepAttempt); ok {
		return Step{PromiseID: a.id, Attempt: a.attempt}
	}
	return Step{}
}

// enter begins an operation: it returns the activation, or an error when the operation is called from a
// wrong goroutine or step. It does not return when the activation is over or its task is to be released.
func enter(ctx Context, op string) (*activation, error) { return enterNamed(ctx, op, "") }

// enterNamed is enter for an operation that has a name.
func enterNamed(ctx Context, op, name string) (*activation, error) {
	t := ctx.activation()
	misuse := func(why string) error {
		err := &MisuseError{ID: t.info.ID, What: operation(op, name), Why: why}
		t.misuse.CompareAndSwap(nil, err)
		return err
	}
	if goroutine() != t.owner.Load() {
		return nil, misuse("was called from another goroutine than the function's own")
	}
	if t.unwinding {
		runtime.Goexit() // a deferred function of the user's; see the package comment
	}
	if t.returned {
		return nil, misuse("was called after the function had returned")
	}
	if t.inStep != "" {
		return nil, misuse("was called inside step " + strconv.Quote(t.inStep))
	}
	t.checkpoint()
	return t, nil
}

// operation describes an operation in an error: what it is, and its name if it has one.
func operation(op, name string) string {
	if name != "" {
		op += "(" + strconv.Quote(name) + ")"
	}
	return op
}
