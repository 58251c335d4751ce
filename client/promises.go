package client

import (
	"context"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

// PromiseOptions describes the promise to create.
type PromiseOptions struct {
	// Param is opaque and stays with the promise; at most 4 MiB.
	Param []byte
	// Tags are for people and searches; at most 64.
	Tags map[string]string
	// Timeout is the time after which it times out unsettled; required, positive.
	Timeout time.Duration
}

// CreatePromise creates a standalone promise, or returns the existing one of this id and ignores the arguments.
// Errors as with Start.
func (c *Client) CreatePromise(ctx context.Context, id string, o PromiseOptions) (*perdurev1.Promise, error) {
	r := c.NewRequest()
	return c.promise(ctx, "create promise", id, true, 0, func(ctx context.Context, n *node) (*perdurev1.PromiseResponse, error) {
		return n.promises.Create(ctx, &perdurev1.CreatePromiseRequest{
			Request: r.Wire(), Namespace: c.opts.Namespace, Id: id, Param: o.Param, Tags: o.Tags, TimeoutMs: Millis(o.Timeout)})
	})
}

// GetPromise reads a promise, standalone or of an execution. Error: *api.Error with PROMISE_NOT_FOUND.
func (c *Client) GetPromise(ctx context.Context, id string, opts ...ReadOption) (*perdurev1.Promise, error) {
	o := readOpts(opts)
	return c.promise(ctx, "get promise", id, false, 0, func(ctx context.Context, n *node) (*perdurev1.PromiseResponse, error) {
		return n.promises.Get(ctx, &perdurev1.GetPromiseRequest{Namespace: c.opts.Namespace, Id: id, Level: o.level})
	})
}

// SettlePromise settles a pending standalone promise: RESOLVED with a value, REJECTED or REJECTED_CANCELED with
// a failure. A promise that is settled already is answered as it is: compare the state. Errors:
// *api.Error with NOT_SETTLEABLE (an execution's promise), PROMISE_NOT_FOUND; others as with Start.
func (c *Client) SettlePromise(ctx context.Context, id string, state perdurev1.PromiseState, value *perdurev1.Outcome) (*perdurev1.Promise, error) {
	r := c.NewRequest()
	return c.promise(ctx, "settle promise", id, true, 0, func(ctx context.Context, n *node) (*perdurev1.PromiseResponse, error) {
		return n.promises.Settle(ctx, &perdurev1.SettlePromiseRequest{
			Request: r.Wire(), Namespace: c.opts.Namespace, Id: id, State: state, Value: value})
	})
}

// AwaitPromise waits until the promise is settled or ctx ends.
func (c *Client) AwaitPromise(ctx context.Context, id string) (*perdurev1.Promise, error) {
	for {
		asked, wait := c.clock.Now(), c.held(ctx, pollWait)
		p, err := c.promise(ctx, "await promise", id, false, wait, func(ctx context.Context, n *node) (*perdurev1.PromiseResponse, error) {
			return n.promises.Await(ctx, &perdurev1.AwaitPromiseRequest{Namespace: c.opts.Namespace, Id: id, WaitMs: Millis(wait)})
		})
		if err != nil || p.GetState() != perdurev1.PromiseState_PROMISE_STATE_PENDING {
			return p, err
		}
		c.breathe(ctx, asked)
	}
}

func (c *Client) promise(ctx context.Context, op, id string, write bool, wait time.Duration,
	ask func(context.Context, *node) (*perdurev1.PromiseResponse, error)) (*perdurev1.Promise, error) {
	var resp *perdurev1.PromiseResponse
	err := c.call(ctx, op, id, write, wait, func(ctx context.Context, n *node) (err error) {
		resp, err = ask(ctx, n)
		return err
	})
	return resp.GetPromise(), err
}
