package client

import (
	"context"
	"iter"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

// GetEntity reads an entity, by its id NAME@KEY. One that was never used is answered without a value.
func (c *Client) GetEntity(ctx context.Context, id string, opts ...ReadOption) (*perdurev1.Entity, error) {
	o := readOpts(opts)
	var resp *perdurev1.GetEntityResponse
	err := c.call(ctx, "get entity", id, false, 0, func(ctx context.Context, n *node) (err error) {
		resp, err = n.entities.Get(ctx, &perdurev1.GetEntityRequest{Namespace: c.opts.Namespace, Id: id, Level: o.level})
		return err
	})
	return resp.GetEntity(), err
}

// SignalEntity asks an entity to run an operation, once and after delay, and does not wait for it. Errors: *api.Error
// with FUNCTION_UNKNOWN (no worker ever registered the entity), OVERLOADED (too many operations wait) and others;
// ErrOutcomeUnknown; ErrUnavailable.
func (c *Client) SignalEntity(ctx context.Context, id, operation string, input []byte, delay time.Duration) error {
	r := c.NewRequest()
	return c.call(ctx, "signal entity", id, true, 0, func(ctx context.Context, n *node) error {
		_, err := n.entities.Signal(ctx, &perdurev1.SignalEntityRequest{
			Request: r.Wire(), Namespace: c.opts.Namespace, Id: id, Operation: operation, Input: input, DelayMs: Millis(delay)})
		return err
	})
}

// CallEntity runs an operation of an entity, once, and waits for its result until ctx ends. An operation that failed is
// an *ExecutionError. Other errors are those of SignalEntity.
func (c *Client) CallEntity(ctx context.Context, id, operation string, input []byte) ([]byte, error) {
	r := c.NewRequest()
	for {
		asked, wait := c.clock.Now(), c.held(ctx, pollWait)
		var resp *perdurev1.CallEntityResponse
		err := c.call(ctx, "call entity", id, true, wait, func(ctx context.Context, n *node) (err error) {
			resp, err = n.entities.Call(ctx, &perdurev1.CallEntityRequest{
				Request: r.Wire(), Namespace: c.opts.Namespace, Id: id, Operation: operation, Input: input, WaitMs: Millis(wait)})
			return err
		})
		if err != nil {
			return nil, err
		}
		if resp.GetDone() {
			if f := resp.GetOutcome().GetFailure(); f != nil {
				return nil, &ExecutionError{ID: id, Operation: operation, Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED, Failure: f}
			}
			return resp.GetOutcome().GetValue(), nil
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c.breathe(ctx, asked)
	}
}

// ListEntities yields the entities that have a value or are in use, by id and without their values; with a name, those
// of this name. limit 0 is all.
func (c *Client) ListEntities(ctx context.Context, name string, limit int) iter.Seq2[*perdurev1.Entity, error] {
	return func(yield func(*perdurev1.Entity, error) bool) {
		var cursor []byte
		for left := limit; ; {
			var resp *perdurev1.ListEntitiesResponse
			err := c.call(ctx, "list entities", name, false, 0, func(ctx context.Context, n *node) (err error) {
				resp, err = n.entities.List(ctx, &perdurev1.ListEntitiesRequest{Namespace: c.opts.Namespace, Name: name, Limit: uint32(min(max(left, 0), 1000)), Cursor: cursor})
				return err
			})
			if err != nil {
				yield(nil, err)
				return
			}
			for _, e := range resp.GetEntities() {
				if !yield(e, nil) {
					return
				}
				if left--; limit > 0 && left == 0 {
					return
				}
			}
			if cursor = resp.GetCursor(); len(cursor) == 0 {
				return
			}
		}
	}
}
