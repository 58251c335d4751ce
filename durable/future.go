package durable

import (
	"errors"

	perdurev1 "perdure/api/perdure/v1"
)

// Future is the later result of an operation that does not wait: of a child (Go), a step (GoStep), a timer
// (After, At), a call of an entity (GoCallEntity), a signal (GoSignal, NextSignal), a promise. It belongs to
// the execution that started it.
type Future[T any] struct {
	t     *activation
	n     uint32
	name  string
	codec Codec
	timer bool
	// cleaning: it was made by a clean-up execution, not by the replay of the cancelled one.
	cleaning bool
	// step and entity say what the operation is; signal is that of NextSignal.
	step, entity bool
	signal       *nextSignal
	// over: the function has the result, or has cancelled the operation.
	over bool
}

// Awaitable is a Future of any type.
type Awaitable interface {
	// ID is the promise id. A child in its parent's partition has it as its execution id, too.
	ID() string
	// Cancel gives the operation up: see Future.Cancel.
	Cancel(ctx Context) error
	origin() (*activation, uint32)
	ofCleanup() bool
	payloads() Codec
}

// Awaitables are futures of one type as AwaitAny and AwaitAll take them.
func Awaitables[T any](futures []*Future[T]) []Awaitable {
	out := make([]Awaitable, len(futures))
	for i, f := range futures {
		out[i] = f
	}
	return out
}

// ID is the promise id. A child in its parent's partition has it as its execution id, too.
func (f *Future[T]) ID() string { return f.t.child(f.n) }

func (f *Future[T]) origin() (*activation, uint32) { return f.t, f.n }
func (f *Future[T]) ofCleanup() bool               { return f.cleaning }
func (f *Future[T]) payloads() Codec               { return f.codec }

// Get waits for the result. A child that failed or was cancelled is an *Error, and so is a signal that was not
// delivered. It may be called again.
func (f *Future[T]) Get(ctx Context) (T, error) {
	if _, err := enterWith(ctx, "Get", f.name, f); err != nil {
		var none T
		return none, err
	}
	return f.get()
}

func (f *Future[T]) get() (T, error) {
	var out T
	if f.signal != nil {
		data, err := f.t.receive(f.signal)
		if f.over = f.signal.received; err != nil {
			return out, err
		}
		return out, decode(f.codec, "signal", f.name, data, &out)
	}
	if err := f.t.await(perdurev1.AwaitKind_AWAIT_KIND_SINGLE, f.n); err != nil {
		return out, err
	}
	f.over = true
	data, err := f.t.outcome(f.n, f.codec)
	if err != nil {
		return out, err
	}
	return out, decode(f.codec, "the result of", f.name, data, &out)
}

// AwaitAny waits until at least one of the futures has its result, and returns the index of the first to have
// it, the same at every replay. Get then returns at once. It fails with ErrCancelled, or when there are no
// futures.
func AwaitAny(ctx Context, futures ...Awaitable) (int, error) {
	t, err := enterWith(ctx, "AwaitAny", "", futures...)
	if err != nil {
		return -1, err
	}
	if len(futures) == 0 {
		return -1, errors.New("durable: AwaitAny of no futures would wait for ever")
	}
	if err := t.await(perdurev1.AwaitKind_AWAIT_KIND_ANY, numbers(futures)...); err != nil {
		return -1, err
	}
	return firstDone(t, futures), nil
}

// firstDone is the index of the future whose result is first in the journal; -1 if none has one.
// Later entries come later in the journal, so a replay that knows more results chooses the same one.
func firstDone(t *activation, futures []Awaitable) int {
	first, seq := -1, uint64(0)
	for i, f := range futures {
		_, n := f.origin()
		if rec := t.journal.op(n); rec != nil && rec.done && (first < 0 || rec.doneSeq < seq) {
			first, seq = i, rec.doneSeq
		}
	}
	return first
}

// AwaitAll waits until all futures have their results, failed ones included, and returns the error of
// the first of them, in the order given, that failed. ErrCancelled means that not all have.
func AwaitAll(ctx Context, futures ...Awaitable) error {
	t, err := enterWith(ctx, "AwaitAll", "", futures...)
	if err != nil || len(futures) == 0 {
		return err
	}
	ns := numbers(futures)
	if err := t.await(perdurev1.AwaitKind_AWAIT_KIND_ALL, ns...); err != nil {
		return err
	}
	for _, f := range futures {
		_, n := f.origin()
		if _, err := t.outcome(n, f.payloads()); err != nil {
			return err
		}
	}
	return nil
}

// numbers are the child numbers of futures, each once.
func numbers(futures []Awaitable) []uint32 {
	seen := make(map[uint32]bool, len(futures))
	ns := make([]uint32, 0, len(futures))
	for _, f := range futures {
		if _, n := f.origin(); !seen[n] {
			seen[n] = true
			ns = append(ns, n)
		}
	}
	return ns
}

// enterWith is enter for an operation on futures, which must be this execution's own.
func enterWith(ctx Context, op, name string, futures ...Awaitable) (*activation, error) {
	t, err := enterNamed(ctx, op, name)
	if err != nil {
		return nil, err
	}
	for _, f := range futures {
		why := ""
		switch of, _ := f.origin(); {
		case of != t:
			why = "was given a future of another execution, or of an earlier run of this one: " + f.ID()
		case f.ofCleanup() != t.cleaning():
			why = "was given a future of the cancelled function: a clean-up reads what the function has stored in variables, and starts operations of its own"
		}
		if why != "" {
			err := &MisuseError{ID: t.info.ID, What: operation(op, name), Why: why}
			t.misuse.CompareAndSwap(nil, err)
			return nil, err
		}
	}
	return t, nil
}
