package durable

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"perdure/client"
)

// Registration is a *Function or an *Entity, which a Worker can run.
type Registration interface {
	// Name is the function's name, for Start.
	Name() string
	call(ctx Context, t *activation) ([]byte, error)
}

// Function is a durable function: a name, and the code that a worker runs for it.
type Function[In, Out any] struct {
	name  string
	fn    func(Context, In) (Out, error)
	codec Codec
}

// FunctionOption is an option of NewFunction.
type FunctionOption func(*functionOptions)

type functionOptions struct{ codec Codec }

// WithCodec sets the codec of a function's input, its result and the values of its operations.
func WithCodec(c Codec) FunctionOption { return func(o *functionOptions) { o.codec = c } }

// NewFunction makes a function. The name is how it is started and how journals refer to it: it outlives
// the code. It panics when the name is empty or not valid UTF-8.
func NewFunction[In, Out any](name string, fn func(ctx Context, in In) (Out, error), opts ...FunctionOption) *Function[In, Out] {
	if name == "" {
		panic("durable: a function needs a name")
	}
	if !utf8.ValidString(name) {
		panic(fmt.Sprintf("durable: the function name %q is not valid UTF-8", name))
	}
	var o functionOptions
	for _, opt := range opts {
		opt(&o)
	}
	return &Function[In, Out]{name: name, fn: fn, codec: o.codec}
}

// Name is the name the function was made with.
func (f *Function[In, Out]) Name() string { return f.name }

// call runs the function for an activation, from its beginning.
func (f *Function[In, Out]) call(ctx Context, t *activation) ([]byte, error) {
	if f.codec != nil {
		t.codec = f.codec
	}
	var in In
	if err := decode(t.codec, "the input", "", t.journal.input, &in); err != nil {
		if len(t.journal.ops) > 0 {
			t.failTask(err) // it could be read once, so it is the code that changed
		}
		return nil, err
	}
	t.takesInput = func(data []byte) error {
		return decode(t.codec, "the input of the next incarnation", "", data, new(In))
	}
	out, err := f.fn(ctx, in)
	if err != nil {
		return nil, err
	}
	return encode(t.codec, "the result", "", out)
}

// codecFor is the codec of the function's values when c is the default around it.
func (f *Function[In, Out]) codecFor(c Codec) Codec {
	if f.codec != nil {
		return f.codec
	}
	return c
}

// StartOption is an option of an execution's start.
type StartOption func(*client.StartOptions)

// StartTimeout cancels the execution with "timed out" when it has not finished by then.
func StartTimeout(d time.Duration) StartOption {
	return func(o *client.StartOptions) { o.Timeout = d }
}

// StartTags are for people and searches.
func StartTags(tags map[string]string) StartOption {
	return func(o *client.StartOptions) { o.Tags = tags }
}

// StartDigest records the version of the code that is expected to run it.
func StartDigest(digest string) StartOption {
	return func(o *client.StartOptions) { o.Digest = digest }
}

// AllowUnknownFunction starts it even if no worker ever registered the function.
func AllowUnknownFunction() StartOption {
	return func(o *client.StartOptions) { o.AllowUnknownFunction = true }
}

// StartReuse says which ended execution of the same id a start replaces by a new incarnation.
func StartReuse(r client.Reuse) StartOption {
	return func(o *client.StartOptions) { o.Reuse = r }
}

// Start starts the function under an id, and does not wait for it. Starting it again with the same id
// and input is the same execution. Errors are those of client.Client.Start, and an *Error for an input
// that cannot be encoded.
func (f *Function[In, Out]) Start(ctx context.Context, c *client.Client, id string, in In, opts ...StartOption) (*Handle[Out], error) {
	o, err := f.startOptions(id, in, opts)
	if err != nil {
		return nil, err
	}
	started, err := c.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	h := f.Attach(c, id)
	h.started = started
	return h, nil
}

func (f *Function[In, Out]) startOptions(id string, in In, opts []StartOption) (client.StartOptions, error) {
	input, err := encode(f.codecFor(JSON{}), "the input", "", in)
	o := client.StartOptions{ID: id, Function: f.name, Input: input}
	for _, opt := range opts {
		opt(&o)
	}
	return o, err
}

// Run starts the function under an id, waits until it has finished or ctx ends, and returns its result: Start
// and Result in one call to the cluster. A Run with the same id and input waits for the same execution.
// Errors are those of Start, then those of Handle.Result.
func (f *Function[In, Out]) Run(ctx context.Context, c *client.Client, id string, in In, opts ...StartOption) (out Out, err error) {
	o, err := f.startOptions(id, in, opts)
	if err != nil {
		return out, err
	}
	data, err := c.Run(ctx, o)
	return f.Attach(c, id).decoded(data, err)
}

// Attach is a handle of an execution that exists already, or will. It does no I/O.
func (f *Function[In, Out]) Attach(c *client.Client, id string) *Handle[Out] {
	return &Handle[Out]{c: c, id: id, codec: f.codecFor(JSON{})}
}

// Handle is one execution, seen from outside.
type Handle[Out any] struct {
	c       *client.Client
	id      string
	codec   Codec
	started client.Started
}

// ID is the execution's id.
func (h *Handle[Out]) ID() string { return h.id }

// Started is the answer of Start; zero after Attach.
func (h *Handle[Out]) Started() client.Started { return h.started }

// Signal sends a signal to the execution, with a payload that passes the function's codec.
func (h *Handle[Out]) Signal(ctx context.Context, name string, payload any) error {
	data, err := encode(h.codec, "signal", name, payload)
	if err != nil {
		return err
	}
	return h.c.Signal(ctx, h.id, name, data)
}

// Result waits until the execution has finished or ctx ends, and returns its result. A failure is both a
// *client.ExecutionError and an *Error (errors.As finds either); other errors are those of
// client.Client.Result.
func (h *Handle[Out]) Result(ctx context.Context) (Out, error) {
	if h.started.ID != "" {
		return h.decoded(h.c.ResultOf(ctx, h.started))
	}
	return h.decoded(h.c.Result(ctx, h.id))
}

func (h *Handle[Out]) decoded(data []byte, err error) (out Out, _ error) {
	if err != nil {
		return out, typed(h.codec, err)
	}
	if err := decode(h.codec, "the result", "", data, &out); err != nil {
		return out, fmt.Errorf("durable: %s: %w", h.id, err)
	}
	return out, nil
}

// typed makes an *Error, too, of the failure in a client's error.
func typed(c Codec, err error) error {
	var ended *client.ExecutionError
	if errors.As(err, &ended) {
		return &resultError{ended, errorBy(c, ended.Failure)}
	}
	return err
}

// resultError is a failed execution, both as the client's error and as *Error.
type resultError struct {
	*client.ExecutionError
	cause *Error
}

// Unwrap lists both.
func (e *resultError) Unwrap() []error { return []error{e.ExecutionError, e.cause} }
