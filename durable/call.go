package durable

import (
	"fmt"
	"time"
	"unicode/utf8"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/id"
)

// CallOption is an option of a child's start.
type CallOption func(*callOptions)

type callOptions struct {
	spread  bool
	id      string
	delay   time.Duration
	timeout time.Duration
	policy  ClosePolicy
	tags    map[string]string
	retry   *RetryPolicy
}

// ClosePolicy says what becomes of a child that is open when its parent ends: completes, fails, is cancelled,
// misses its deadline, is terminated, or continues as new. A request to cancel the parent is one to cancel
// the child, too, except with CloseAbandon.
type ClosePolicy int32

const (
	// CloseFollow, the default: the child is cancelled if its parent was cancelled or missed its deadline,
	// and terminated if that was terminated. It runs on if its parent completes or fails. A parent that
	// continues as new ends a child in its own partition, and leaves a spread one alone.
	CloseFollow = ClosePolicy(perdurev1.ClosePolicy_CLOSE_POLICY_FOLLOW)
	// CloseCancel: the child is cancelled, and its clean-up runs.
	CloseCancel = ClosePolicy(perdurev1.ClosePolicy_CLOSE_POLICY_CANCEL)
	// CloseTerminate: the child is ended at once, without a clean-up.
	CloseTerminate = ClosePolicy(perdurev1.ClosePolicy_CLOSE_POLICY_TERMINATE)
	// CloseAbandon: the child runs on.
	CloseAbandon = ClosePolicy(perdurev1.ClosePolicy_CLOSE_POLICY_ABANDON)
)

// OnClose sets what becomes of the child when its parent ends first. Default: CloseFollow. CloseCancel and CloseAbandon
// place the child as Spread does.
func OnClose(p ClosePolicy) CallOption { return func(o *callOptions) { o.policy = p } }

// ChildID gives the child an id of its own, by which clients find it. An id that is taken is an *Error of type
// TypeConflict, as the child's result.
func ChildID(id string) CallOption { return func(o *callOptions) { o.id = id } }

// StartDelay keeps the child from a worker for d, rounded up to milliseconds. Its timeout counts from then. A cancel in
// the meantime ends it at once.
func StartDelay(d time.Duration) CallOption { return func(o *callOptions) { o.delay = d } }

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
	out, err := f.get()
	f.t.journal.forget(f.n)
	return out, err
}

func startChild[Out any](ctx Context, op, name string, codec Codec, in any, opts []CallOption) (*Future[Out], error) {
	t, err := enterNamed(ctx, op, name)
	if err != nil {
		return nil, err
	}
	if codec == nil {
		codec = t.codec
	}
	if t.section != nil {
		return nil, entityError("%s: a critical section starts no child", op)
	}
	input, err := encode(codec, "the input of", name, in)
	if err != nil {
		return nil, err
	}
	var o callOptions
	for _, opt := range opts {
		opt(&o)
	}
	if err := t.checkOptions(o); err != nil {
		return nil, err
	}
	n, rec, err := t.take(opChild, name)
	if err != nil {
		return nil, err
	}
	f := &Future[Out]{t: t, n: n, cleaning: t.cleaning(), name: name, codec: codec}
	if rec != nil {
		return f, nil
	}
	var child *perdurev1.ChildOptions
	policy, retry := o.retryPolicy()
	if o.spread || o.id != "" || o.delay > 0 || o.timeout > 0 || o.policy != CloseFollow || len(o.tags) > 0 || retry != nil {
		child = &perdurev1.ChildOptions{PromiseId: t.child(n), Id: o.id, DelayMs: client.Millis(o.delay), TimeoutMs: client.Millis(o.timeout),
			ClosePolicy: perdurev1.ClosePolicy(o.policy), Tags: o.tags, Spread: o.spread, Retry: retry}
	}
	return f, t.stage(child, nil, &perdurev1.Event{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{
		PromiseId: t.child(n), Kind: perdurev1.InvokeKind_INVOKE_KIND_FUNCTION, FunctionName: name, Input: input, RetryPolicy: policy}}})
}

// checkOptions refuses options that no server would take.
func (t *activation) checkOptions(o callOptions) error {
	for k, v := range o.tags {
		t.mustBeText("a tag's key", k)
		t.mustBeText("a tag's value", v)
	}
	if o.retry != nil {
		if err := o.retry.check(); err != nil {
			return err
		}
	}
	if o.id == "" {
		return nil
	}
	return checkRoot(o.id)
}

// checkRoot refuses what cannot be the id of an execution without a parent.
func checkRoot(root string) error { return badID(root, id.ValidateRoot(root)) }

// checkTarget refuses what cannot be the id of an execution or a promise.
func checkTarget(target string) error { return badID(target, id.Validate(target)) }

// badID is err, or that s is no text, as an *Error that the function can handle: ids often come from outside.
func badID(s string, err error) error {
	if err == nil && !utf8.ValidString(s) {
		err = fmt.Errorf("id %q is not valid UTF-8", s)
	}
	if err == nil {
		return nil
	}
	return &Error{Type: TypeBadRequest, Message: err.Error(), NonRetryable: true}
}

// StartDetached starts an execution that has no parent: it outlives this one, and no close policy reaches it.
// It does not wait. The future completes when the execution is there; its error is an *Error of type
// TypeConflict if the id is taken, unless by the same start. Of the options it takes StartDelay, CallTimeout
// and CallTags.
func StartDetached[In, Out any](ctx Context, f *Function[In, Out], id string, in In, opts ...CallOption) (*Future[struct{}], error) {
	return startDetached(ctx, "StartDetached", f.name, f.codec, id, in, opts)
}

// StartDetachedName is StartDetached for a function that this binary does not have.
func StartDetachedName(ctx Context, name, id string, in any, opts ...CallOption) (*Future[struct{}], error) {
	return startDetached(ctx, "StartDetachedName", name, nil, id, in, opts)
}

func startDetached(ctx Context, op, name string, codec Codec, root string, in any, opts []CallOption) (*Future[struct{}], error) {
	t, err := enterNamed(ctx, op, name)
	if err != nil {
		return nil, err
	}
	if codec == nil {
		codec = t.codec
	}
	if t.section != nil {
		return nil, entityError("%s: a critical section starts no execution", op)
	}
	var o callOptions
	for _, opt := range opts {
		opt(&o)
	}
	if o.spread || o.id != "" || o.policy != CloseFollow {
		return nil, &Error{Type: TypeBadRequest, Message: op + " takes the options StartDelay, CallTimeout and CallTags", NonRetryable: true}
	}
	if err := checkRoot(root); err != nil {
		return nil, err
	}
	if err := t.checkOptions(o); err != nil {
		return nil, err
	}
	input, err := encode(codec, "the input of", name, in)
	if err != nil {
		return nil, err
	}
	n, rec, err := t.take(opSend, name)
	if err != nil {
		return nil, err
	}
	f := &Future[struct{}]{t: t, n: n, cleaning: t.cleaning(), name: name, codec: codec}
	if rec != nil {
		return f, nil
	}
	send := &perdurev1.Send{PromiseId: t.child(n), What: &perdurev1.Send_Start{Start: &perdurev1.StartSend{
		Id: root, Function: name, Input: input, TimeoutMs: client.Millis(o.timeout), DelayMs: client.Millis(o.delay), Tags: o.tags}}}
	return f, t.stage(nil, send, &perdurev1.Event{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{
		PromiseId: t.child(n), Kind: perdurev1.InvokeKind_INVOKE_KIND_SEND, FunctionName: name, Input: []byte(root), RetryPolicy: "attempts=1"}}})
}
