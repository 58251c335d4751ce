package durable

import (
	"crypto/rand"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/id"
)

// Promise is a value that a function awaits and that a client settles, for a person or a webhook. NewPromise makes one.
type Promise[T any] struct {
	*Future[T]
	secret []byte
}

// Token names the promise for a client that settles it: `perdure promise resolve TOKEN` or
// client.SettlePromise. The first settlement counts. Its value must be encoded as the worker's codec does. It
// is the promise's id, the execution's incarnation and a secret: after ContinueAsNew or a restart, a late answer does
// not settle the promise that has the same id then, and nobody settles it who knows only the execution's id.
func (p Promise[T]) Token() string { return id.PromiseID(p.ID()).Token(p.t.key.incarnation, p.secret) }

// namePromise is the name of the operation that makes a promise. Its input is the promise's secret.
const namePromise = "promise"

// PromiseOption is an option of NewPromise.
type PromiseOption func(*perdurev1.NewPromise)

// PromiseTimeout bounds the wait for a client to settle the promise: its error then matches ErrTimeout.
func PromiseTimeout(d time.Duration) PromiseOption {
	return func(o *perdurev1.NewPromise) { o.TimeoutMs = max(1, client.Millis(d)) }
}

// NewPromise makes a promise with the next commit, which is no later than the next operation that waits or
// runs a step. So a step that follows may give its token away. A promise that was rejected is an *Error. It
// needs feature level 6.
func NewPromise[T any](ctx Context, opts ...PromiseOption) (Promise[T], error) {
	options := &perdurev1.NewPromise{}
	for _, opt := range opts {
		opt(options)
	}
	secret := make([]byte, id.PromiseSecretBytes)
	_, _ = rand.Read(secret) // it never fails
	f, err := startSend[T](ctx, "NewPromise", namePromise, "", secret, &perdurev1.Send{What: &perdurev1.Send_NewPromise{NewPromise: options}})
	if err != nil {
		return Promise[T]{}, err
	}
	if f.t.journal.op(f.n) != nil {
		secret = f.t.journal.secrets[f.ID()] // none in a journal of a former version
	}
	return Promise[T]{f, secret}, nil
}

// AwaitPromise is the later value of any promise of the namespace by its id: a standalone promise, another function's
// NewPromise, the result of an execution. Its error matches ErrTargetNotFound if there is no such promise when the
// target's partition is asked. It needs feature level 6.
//
// promiseID may be a token; the incarnation and the secret in it do not count.
func AwaitPromise[T any](ctx Context, promiseID string) (*Future[T], error) {
	promiseID, _, _ = id.CutToken(promiseID)
	if err := checkTarget(promiseID); err != nil {
		return nil, err
	}
	return startSend[T](ctx, "AwaitPromise", "await promise", promiseID, []byte(promiseID),
		&perdurev1.Send{What: &perdurev1.Send_AwaitedPromise{AwaitedPromise: &perdurev1.AwaitedPromise{Id: promiseID}}})
}

func startSend[T any](ctx Context, op, name, target string, input []byte, send *perdurev1.Send) (*Future[T], error) {
	t, err := enterNamed(ctx, op, target)
	if err != nil {
		return nil, err
	}
	if t.section != nil {
		return nil, entityError("%s: a critical section awaits the entities that it has locked, and no others", operation(op, target))
	}
	n, err := t.sendOperation(name, input, send)
	if err != nil {
		return nil, err
	}
	return &Future[T]{t: t, n: n, cleaning: t.cleaning(), name: name, codec: t.codec}, nil
}
