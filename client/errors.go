package client

import (
	"errors"
	"fmt"
	"strings"

	perdurev1 "perdure/api/perdure/v1"
)

var (
	// ErrOutcomeUnknown says that a write may or may not have taken effect: an attempt was sent and not
	// answered before the deadline. To find out, call again with the same execution or promise id.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrUnavailable says that no node could serve the call before the deadline, and that a write was
	// surely not applied.
	ErrUnavailable = errors.New("unavailable")
	// ErrClosed says that the client was closed. A write that was under way also has ErrOutcomeUnknown.
	ErrClosed = errors.New("client is closed")
)

// callError is the error of a call that failed after its retries: which call, ErrOutcomeUnknown or
// ErrUnavailable, and the last failure. errors.Is and errors.As see all of them.
type callError struct {
	op, id   string
	kind     error
	attempts int
	cause    error // of the last attempt
	ended    error // the context's error, when it ended the call
}

// Error names the call, the kind and the last cause.
func (e *callError) Error() string {
	var b strings.Builder
	b.WriteString("client: ")
	b.WriteString(e.op)
	if e.id != "" {
		fmt.Fprintf(&b, " %q", e.id)
	}
	fmt.Fprintf(&b, ": %v", e.kind)
	if e.attempts > 1 {
		fmt.Fprintf(&b, " after %d attempts", e.attempts)
	}
	if e.cause != nil {
		fmt.Fprintf(&b, ": %v", e.cause)
	}
	if e.ended != nil && !errors.Is(e.cause, e.ended) {
		fmt.Fprintf(&b, ": %v", e.ended)
	}
	return b.String()
}

// Unwrap lists the kind, the cause and the context's error.
func (e *callError) Unwrap() []error {
	errs := []error{e.kind}
	if e.cause != nil {
		errs = append(errs, e.cause)
	}
	if e.ended != nil {
		errs = append(errs, e.ended)
	}
	return errs
}

// ExecutionError says that an execution failed or was cancelled, or that an operation of an entity failed.
type ExecutionError struct {
	// ID is the execution's, or the entity's.
	ID string
	// Operation is the entity's operation that failed; empty for an execution.
	Operation string
	// Status is FAILED or CANCELLED.
	Status Status
	// Failure is how it ended; never nil.
	Failure *perdurev1.Failure
}

// Error names the execution, how it ended, and the failure's type and message.
func (e *ExecutionError) Error() string {
	how := strings.ToLower(strings.TrimPrefix(e.Status.String(), "EXECUTION_STATUS_"))
	text := fmt.Sprintf("execution %q %s", e.ID, how)
	if e.Operation != "" {
		text = fmt.Sprintf("operation %q of entity %q %s", e.Operation, e.ID, how)
	}
	if t := e.Failure.GetType(); t != "" && t != how {
		text += ": " + t
	}
	if m := e.Failure.GetMessage(); m != "" {
		text += ": " + m
	}
	return text
}
