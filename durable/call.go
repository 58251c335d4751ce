package durable

import (
	"strconv"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

// CallOption is an option of a child's start.
type CallOption func(*callOptions)

type callOptions struct {
	spread  bool
	timeout time.Duration
	tags    map[string]string
	retry   *RetryPolicy
}

// Spread places the child by a root id of its own, so that wide fan-outs use every partition. Without
// it, a child is in its parent's partition, and both advance in one round.
func Spread() CallOption { return func(o *callOptions) { o.spread = true } }

// CallTimeout cancels the child with a failure of type "timeout" when it has not finished by then.
func CallTimeout(d time.Duration) CallOption { return func(o *callOptions) { o.timeout = d } }

// CallTags are for people and searches.
func CallTags(tags map[string]string) CallOption { return func(o *callOptions) { o.tags = tags } }

// Call runs another durable function as a child execution and waits for its result. A child that failed
// or was cancelled is an *Error.
func Call[In, Out any](ctx Context, f *Function[In, Out], in In, opts ...CallOption) (Out, error) {
	return callChild[Out](ctx, "Call", f.name, f.codec, in, opts)
}

// CallName is Call for a function that this binary does not have.
func CallName[Out any](ctx Context, name string, in any, opts ...CallOption) (Out, error) {
	return callChild[Out](ctx, "CallName", name, nil, in, opts)
}

// Go starts another durable function as a child execution and does not wait for it. The child starts with
// the next commit, which is no later than the next operation that waits or runs a step. A child whose
// future is never read runs too.
func Go[In, Out any](ctx Context, f *Function[In, Out], in In, opts ...CallOption) (*Future[Out], error) {
	return startChild[Out](ctx, "Go", f.name, f.codec, in, opts)
}

// GoName is Go for a function that this binary does not have.
func GoName[Out any](ctx Context, name string, in any, opts ...CallOption) (*Future[Out], error) {
	return startChild[Out](ctx, "GoName", name, nil, in, opts)
}

func callChild[Out any](ctx Context, op, name string, codec Codec, in any, opts []CallOption) (Out, error) {
	f, err := startChild[Out](ctx, op, name, codec, in, opts)
	if err != nil {
		var none Out
		return none, err
	}
	return f.get()
}

func startChild[Out any](ctx Context, op, name string, codec Codec, in any, opts []CallOption) (*Future[Out], error) {
	t, err := enter(ctx, op+"("+strconv.Quote(name)+")")
	if err != nil {
		return nil, err
	}
	if codec == nil {
		codec = t.codec
	}
	if t.section != nil {
		return nil, entityError("%s: a critical section starts no child", op)
	}
	input, err := encode(codec, "the input of "+strconv.Quote(name), in)
	if err != nil {
		return nil, err
	}
	var o callOptions
	for _, opt := range opts {
		opt(&o)
	}
	for k, v := range o.tags {
		t.mustBeText("a tag's key", k)
		t.mustBeText("a tag's value", v)
	}
	n, rec, err := t.take(opChild, name)
	if err != nil {
		return nil, err
	}
	f := &Future[Out]{t: t, n: n, name: name, codec: codec}
	if rec != nil {
		return f, nil
	}
	var child *perdurev1.ChildOptions
	policy, retry := o.policy()
	if o.spread || o.timeout > 0 || len(o.tags) > 0 || retry != nil {
		child = &perdurev1.ChildOptions{PromiseId: t.child(n), TimeoutMs: client.Millis(o.timeout), Tags: o.tags, Spread: o.spread, Retry: retry}
	}
	return f, t.stage(child, nil, &perdurev1.Event{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{
		PromiseId: t.child(n), Kind: perdurev1.InvokeKind_INVOKE_KIND_FUNCTION, FunctionName: name, Input: input, RetryPolicy: policy}}})
}
