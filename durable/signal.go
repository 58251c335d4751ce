package durable

import (
	"fmt"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

// WaitOption is an option of WaitSignal.
type WaitOption func(*waitOptions)

type waitOptions struct{ timeout time.Duration }

// Timeout ends a wait after d, rounded up to milliseconds: its error then matches ErrTimeout.
func Timeout(d time.Duration) WaitOption {
	return func(o *waitOptions) { o.timeout = max(d, time.Millisecond) }
}

// WaitSignal waits for the next signal of a name and returns its payload. Signals are buffered from the
// start of the execution and come in the order they were sent, each to one wait. An empty payload is the
// zero value; one that cannot be decoded is consumed and an *Error of type "encoding".
func WaitSignal[T any](ctx Context, name string, opts ...WaitOption) (T, error) {
	var out T
	t, err := enterNamed(ctx, "WaitSignal", name)
	if err != nil {
		return out, err
	}
	var o waitOptions
	for _, opt := range opts {
		opt(&o)
	}
	var data []byte
	if s := t.nextSignal(name); s != nil {
		data, err = t.receiveWithin(s, o.timeout)
	} else {
		var n uint32
		var early *perdurev1.SignalArrived
		if n, early, err = t.waitSignal(name, o.timeout, false); err == nil {
			data, err = t.payload(n, early)
		}
	}
	if err != nil {
		return out, err
	}
	return out, decode(t.codec, "signal", name, data, &out)
}

// waitSignal waits for the next signal of a name, or for the timeout, and returns the number of the wait. early is the
// signal if the journal does not have yet that the function has received it.
// here says that the signal is there, so that the wait ends at once.
func (t *activation) waitSignal(name string, timeout time.Duration, here bool) (n uint32, early *perdurev1.SignalArrived, err error) {
	n, rec, err := t.take(opSignal, name)
	if err != nil {
		return 0, nil, err
	}
	if rec == nil {
		if !here {
			if err := t.settleSteps(perdurev1.AwaitKind_AWAIT_KIND_SIGNAL, nil); err != nil {
				return 0, nil, err
			}
			began := t.w.clock.Now()
			early, missed := t.arrival(name, timeout)
			if !missed {
				defer func() { t.w.lingers.waited(t.info.Function, elapsed(began, t.w.clock.Now())) }()
			}
			if early != nil {
				return n, early, t.receiveArrived(n, early)
			}
		}
		wait := &perdurev1.ExecutionAwaiting{WaitingOn: []string{t.child(n)}, Kind: perdurev1.AwaitKind_AWAIT_KIND_SIGNAL, SignalName: name}
		err := t.commit(commit{mayEnd: true, waitTimeout: timeout,
			events: []*perdurev1.Event{{Kind: &perdurev1.Event_ExecutionAwaiting{ExecutionAwaiting: wait}}}})
		if err != nil {
			return 0, nil, err
		}
	}
	if !t.journal.resolved(n) {
		if t.cancelling() {
			return 0, nil, ErrCancelled
		}
		t.frontier("the code waits for the signal")
		t.failTask(fmt.Errorf("durable: %s: wait for signal %q (%s) ended without an answer", t.info.ID, name, t.child(n)))
	}
	return n, nil, nil
}

// payload is what the n-th operation, a wait for a signal, has brought.
func (t *activation) payload(n uint32, early *perdurev1.SignalArrived) ([]byte, error) {
	if early == nil {
		return t.consume(n, t.codec)
	}
	if f := early.GetPayload().GetFailure(); f != nil {
		return nil, errorBy(t.codec, f)
	}
	return early.GetPayload().GetValue(), nil
}

// Signal sends a signal to another execution, once, with the next commit. It does not wait for the delivery, and the
// function does not learn whether that execution exists: the journal does. Use GoSignal to learn it.
func Signal(ctx Context, id, name string, payload any) error {
	_, err := sendSignal(ctx, "Signal", id, name, payload)
	return err
}

// GoSignal is Signal with a future of the delivery. Get waits until the target's partition has answered. Its error
// matches ErrTargetNotFound when no execution had the id as the signal came, and ErrTargetFinished when the execution
// had ended. It is nil once the signal is in the target's journal, whether or not the target ever waits for it.
// Servers before feature level 4 answer nil in every case.
func GoSignal(ctx Context, id, name string, payload any) (*Future[struct{}], error) {
	return sendSignal(ctx, "GoSignal", id, name, payload)
}

func sendSignal(ctx Context, op, id, name string, payload any) (*Future[struct{}], error) {
	t, err := enterNamed(ctx, op, name)
	if err != nil {
		return nil, err
	}
	data, err := encode(t.codec, "signal", name, payload)
	if err != nil {
		return nil, err
	}
	if err := checkTarget(id); err != nil {
		return nil, err
	}
	n, rec, err := t.take(opSend, name)
	if err != nil {
		return nil, err
	}
	f := &Future[struct{}]{t: t, n: n, cleaning: t.cleaning(), name: name, codec: t.codec}
	if rec != nil {
		return f, nil
	}
	send := &perdurev1.Send{PromiseId: t.child(n), What: &perdurev1.Send_Signal{Signal: &perdurev1.SignalSend{Id: id, Name: name, Payload: data}}}
	return f, t.stage(nil, send, &perdurev1.Event{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{
		PromiseId: t.child(n), Kind: perdurev1.InvokeKind_INVOKE_KIND_SEND, FunctionName: name, Input: []byte(id), RetryPolicy: "attempts=1"}}})
}
