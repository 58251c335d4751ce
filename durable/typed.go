package durable

import (
	"context"
	"fmt"
	"time"

	"perdure/client"
)

// This file has a client's calls of functions and entities, with typed values and the codecs of both.

// SignalWithStart sends a signal to the execution with an id, and starts it by this function and input in the
// same change unless one is open: an open execution gets the signal whatever its input. started reports
// whether this call has started it. Errors are those of client.Client.SignalWithStart, and an *Error for a
// value that cannot be encoded.
func (f *Function[In, Out]) SignalWithStart(ctx context.Context, c *client.Client, id string, in In, signal string, payload any, opts ...StartOption) (h *Handle[Out], started bool, err error) {
	o, err := f.startOptions(id, in, opts)
	if err != nil {
		return nil, false, err
	}
	data, err := encode(f.codecFor(JSON{}), "signal", signal, payload)
	if err != nil {
		return nil, false, err
	}
	if started, err = c.SignalWithStart(ctx, o, signal, data); err != nil {
		return nil, false, err
	}
	return f.Attach(c, id), started, nil
}

// Signal asks the entity with a key to run an operation, once, and does not wait for it. Errors are those of
// client.Client.SignalEntity, and an *Error for an input that cannot be encoded.
func (e *Entity[S]) Signal(ctx context.Context, c *client.Client, key, operation string, input any, opts ...SignalOption) error {
	s, err := entitySignal(e.codecOr(JSON{}), e.ID(key), operation, input, opts)
	if err != nil {
		return err
	}
	return c.SignalEntity(ctx, s.GetId(), operation, s.GetInput(), time.Duration(s.GetDelayMs())*time.Millisecond)
}

// Call runs an operation of the entity with a key, once, waits for its result until ctx ends, and decodes
// that into the pointer result; nil drops it. An operation that failed is both a *client.ExecutionError and
// an *Error. Other errors are those of client.Client.CallEntity.
func (e *Entity[S]) Call(ctx context.Context, c *client.Client, key, operation string, input, result any) error {
	codec := e.codecOr(JSON{})
	s, err := entitySignal(codec, e.ID(key), operation, input, nil)
	if err != nil {
		return err
	}
	data, err := c.CallEntity(ctx, s.GetId(), operation, s.GetInput())
	if err != nil {
		return typed(codec, err)
	}
	if result == nil {
		return nil
	}
	if err := decode(codec, "the result of", operation, data, result); err != nil {
		return fmt.Errorf("durable: %s: %w", e.ID(key), err)
	}
	return nil
}

// Get reads the value of the entity with a key; exists is false for one that has none.
func (e *Entity[S]) Get(ctx context.Context, c *client.Client, key string, opts ...client.ReadOption) (value S, exists bool, err error) {
	found, err := c.GetEntity(ctx, string(e.ID(key)), opts...)
	if err != nil || !found.GetExists() {
		return value, false, err
	}
	if err := decode(e.codecOr(JSON{}), "the value", "", found.GetValue(), &value); err != nil {
		return value, true, fmt.Errorf("durable: %s: %w", e.ID(key), err)
	}
	return value, true, nil
}

// codecOr is the codec of the entity's values when c is the default around it.
func (e *Entity[S]) codecOr(c Codec) Codec {
	if e.codec != nil {
		return e.codec
	}
	return c
}
