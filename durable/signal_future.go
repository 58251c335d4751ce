package durable

import (
	"strconv"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

// NextSignal is the later payload of the next signal of a name, as a future for Select and join sets. A name
// has one next signal: until Get has returned it, further calls and WaitSignal mean the same one. Each signal
// goes to one wait in the order of arrival, as with WaitSignal, and a future that is cancelled or never read
// takes none. It needs feature level 6.
func NextSignal[T any](ctx Context, name string) (*Future[T], error) {
	t, err := enterNamed(ctx, "NextSignal", name)
	if err != nil {
		return nil, err
	}
	s := t.nextSignal(name)
	if s == nil {
		n, rec, err := t.take(opSignalFuture, name)
		if err != nil {
			return nil, err
		}
		s = &nextSignal{n: n, name: name, cleaning: t.cleaning()}
		if rec == nil {
			err = t.stage(nil, nil, &perdurev1.Event{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{
				PromiseId: t.child(n), Kind: perdurev1.InvokeKind_INVOKE_KIND_SIGNAL, FunctionName: name, RetryPolicy: "attempts=1"}}})
			if err != nil {
				return nil, err
			}
		}
		if t.signals == nil {
			t.signals = map[string]*nextSignal{}
		}
		t.signals[name] = s
	}
	return &Future[T]{t: t, n: s.n, cleaning: t.cleaning(), name: name, codec: t.codec, signal: s}, nil
}

// nextSignal is the next signal of a name, which a function waits for by a future. Its operation ends when
// there is a signal; the function then consumes that by a wait.
type nextSignal struct {
	n        uint32
	name     string
	cleaning bool // as of a Future
	received bool
	data     []byte
	err      error
}

// nextSignal returns the next signal of a name that the function waits for by a future; nil if it waits for none.
func (t *activation) nextSignal(name string) *nextSignal {
	if s := t.signals[name]; s != nil && s.cleaning == t.cleaning() {
		return s
	}
	return nil
}

// end sets what the wait has brought; the next one is another.
func (s *nextSignal) end(t *activation, data []byte, err error) {
	s.received, s.data, s.err = true, data, err
	if t.signals[s.name] == s {
		delete(t.signals, s.name)
	}
}

// receive waits for the signal and consumes it, once.
func (t *activation) receive(s *nextSignal) ([]byte, error) {
	if s.received {
		return s.data, s.err
	}
	if err := t.await(perdurev1.AwaitKind_AWAIT_KIND_SINGLE, s.n); err != nil {
		return nil, err
	}
	if _, err := t.outcome(s.n, t.codec); err != nil {
		s.end(t, nil, err)
		return nil, err
	}
	n, early, err := t.waitSignal(s.name, 0, true)
	if err != nil {
		return nil, err
	}
	data, err := t.payload(n, early)
	s.end(t, data, err)
	return data, err
}

// receiveWithin is receive with a bound.
func (t *activation) receiveWithin(s *nextSignal, d time.Duration) ([]byte, error) {
	if s.received || d <= 0 {
		return t.receive(s)
	}
	timer, err := t.timer(func() time.Duration { return d })
	if err != nil {
		return nil, err
	}
	both := []uint32{s.n, timer.n}
	if err := t.await(perdurev1.AwaitKind_AWAIT_KIND_ANY, both...); err != nil {
		return nil, err
	}
	signal, late := t.journal.op(s.n), t.journal.op(timer.n)
	if late.done && (!signal.done || late.doneSeq < signal.doneSeq) {
		return nil, &Error{Type: TypeTimeout, Message: "no signal " + strconv.Quote(s.name) + " came before the deadline"}
	}
	return t.receive(s)
}
