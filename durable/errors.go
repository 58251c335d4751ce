package durable

import (
	"context"
	"errors"
	"fmt"
	"strings"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/id"
)

var (
	// ErrCancelled is the error of every operation without a recorded result once a cancel of the execution was
	// requested. Clean up without durable operations and return; the execution ends as cancelled, with any
	// result of the function. The failure of a cancelled child matches it too (see Error.Is).
	ErrCancelled = errors.New("durable: cancelled")
	// ErrTargetNotFound is matched (errors.Is) by the *Error of a signal to an id that no execution has.
	ErrTargetNotFound = errors.New("durable: no such execution")
	// ErrTargetFinished is matched (errors.Is) by the *Error of a signal to an execution that had ended.
	ErrTargetFinished = errors.New("durable: the execution has ended")
	// ErrTimeout is matched (errors.Is) by the *Error of a wait, a step or a child that took too long.
	ErrTimeout = errors.New("durable: timed out")
)

// Failure types of this package. Applications choose their own by returning an *Error.
const (
	TypeError     = "error"             // an error without a type of its own
	TypePanic     = "panic"             // a step panicked
	TypeTimeout   = "timeout"           // a deadline passed
	TypeCancelled = "cancelled"         // cancelled before it finished
	TypeLost      = "lost"              // the worker was lost in the last attempt allowed
	TypeEncoding  = "encoding"          // a value that could not be encoded or decoded
	TypeTooLarge  = "payload_too_large" // a value beyond id.MaxPayloadBytes

	TypeConflict       = "conflict"         // an id that is taken
	TypeBadRequest     = "bad_request"      // an id or an option that the operation does not take
	TypeTargetNotFound = "target_not_found" // a signal to an id that no execution has
	TypeTargetFinished = "target_finished"  // a signal to an execution that had ended
)

// Bounds of a failure. The worker cuts the message, which is for people, and the type. It leaves out details
// beyond their bound, and the message then says so.
const (
	maxMessageBytes = 64 << 10
	maxTypeBytes    = 256
	maxDetailsBytes = id.MaxPayloadBytes - maxMessageBytes - 1024
)

// Error is the failure of a step, a child or an execution, as the journal has it. A step's own error does not
// survive its process, so operations return *Error even the first time.
type Error struct {
	// Type is a stable class that code may compare: one of the Type constants, or the application's own.
	Type string
	// Message is for people.
	Message string
	// Details is the application's own, opaque.
	Details []byte
	// NonRetryable says that trying again cannot help; retry policies stop at once.
	NonRetryable bool
}

// Error is the message, after the type if it says anything.
func (e *Error) Error() string {
	switch {
	case e.Type == "" || e.Type == TypeError:
		return e.Message
	case e.Message == "":
		return e.Type
	}
	return e.Type + ": " + e.Message
}

// Is matches ErrTimeout, ErrCancelled, ErrSkipped, ErrTargetNotFound and ErrTargetFinished by the type.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrTimeout:
		return e.Type == TypeTimeout
	case ErrCancelled:
		return e.Type == TypeCancelled
	case ErrSkipped:
		return e.Type == TypeSkipped
	case ErrTargetNotFound:
		return e.Type == TypeTargetNotFound
	case ErrTargetFinished:
		return e.Type == TypeTargetFinished
	}
	return false
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// Permanent marks an error of a step as final: no policy retries it. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

// failureOf is err in its wire form.
func failureOf(err error) *perdurev1.Failure {
	f := &perdurev1.Failure{Type: TypeError, Message: err.Error()}
	var (
		e         *Error
		permanent *permanentError
	)
	switch {
	case errors.As(err, &e):
		f.Type, f.Details, f.NonRetryable = e.Type, e.Details, e.NonRetryable
		if error(e) == unmarked(err) || e.Type == TypeSuspended { //nolint:errorlint // exactly this error, not one that wraps it
			f.Message = e.Message
		} else if e.Type != "" { // a join of it alone has the type in front, too
			f.Message = strings.TrimPrefix(f.Message, e.Type+": ")
		}
	case errors.Is(err, ErrCancelled), errors.Is(err, context.Canceled):
		f.Type = TypeCancelled
	case errors.Is(err, ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		f.Type = TypeTimeout
	}
	if f.Type == "" {
		f.Type = TypeError
	}
	f.NonRetryable = f.NonRetryable || errors.As(err, &permanent)
	f.Type, f.Message = cut(f.Type, maxTypeBytes), cut(f.Message, maxMessageBytes)
	if n := len(f.Details); n > maxDetailsBytes {
		f.Details = nil
		f.Message += fmt.Sprintf(" (its details, %d bytes, are left out: more than %d)", n, maxDetailsBytes)
	}
	return f
}

// unmarked is err without its Permanent marks.
func unmarked(err error) error {
	for {
		p, ok := err.(*permanentError) //nolint:errorlint // one mark at a time is taken off
		if !ok {
			return err
		}
		err = p.err
	}
}

// cut makes any string valid UTF-8 of at most n bytes, as a message requires.
func cut(s string, n int) string {
	const more = "…"
	s = strings.ToValidUTF8(s, "\ufffd")
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n-len(more)], "") + more
}

// errorOf is a recorded failure as the function sees it.
func errorOf(f *perdurev1.Failure) *Error {
	return &Error{Type: f.GetType(), Message: f.GetMessage(), Details: f.GetDetails(), NonRetryable: f.GetNonRetryable()}
}

// MismatchError says that the code asks for another operation than the journal has: the code changed under a
// running execution, or is not deterministic. The worker releases the task with this as its problem.
type MismatchError struct {
	// ID is the promise id in question.
	ID string
	// Journal is the recorded operation, Code the one that the function asks for.
	Journal, Code string
}

// Error names the id and both operations.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("durable: journal mismatch: %s is %s in the journal, %s", e.ID, e.Journal, e.Code)
}

// MisuseError says that a durable operation was called where it is not allowed: another goroutine than the
// function's, inside a step, or after the function ended. The worker releases the task with it.
type MisuseError struct {
	// ID is the execution, What the operation, Why the reason.
	ID, What, Why string
}

// Error names the operation, the execution and the reason.
func (e *MisuseError) Error() string {
	return fmt.Sprintf("durable: %s of %s %s", e.What, e.ID, e.Why)
}

var (
	// errLost is the cause of a context whose task is no longer this worker's.
	errLost = errors.New("durable: the task is no longer this worker's")
	// errRedial ends a session so that the next one reports the changes.
	errRedial = errors.New("durable: reconnecting")
	// errStopping is the cause of a context that ends with the worker's stop grace.
	errStopping = errors.New("durable: the worker is stopping")
)
