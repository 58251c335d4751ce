package workload

import (
	"context"
	"encoding/json"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/durable"
)

// signal is an execution that waits for one signal.
var signal = &Workload{Letter: "D", Name: "signal", Unit: "executions", Title: "start, signal, result: an execution that waits for a signal",
	register: []durable.Registration{signalFunction}, run: runSignal}

// promise is an execution that waits for a promise that a client settles.
var promise = &Workload{Letter: "D2", Name: "promise", Unit: "executions", Title: "promise, start, settle, result: an execution that waits for a standalone promise",
	register: []durable.Registration{promiseFunction}, run: runPromise}

var signalFunction = durable.NewFunction("bench-signal", func(ctx durable.Context, n int64) (int64, error) {
	in, err := durable.WaitSignal[order](ctx, "go")
	return n + in.Number, err
})

var promiseFunction = durable.NewFunction("bench-promise", func(ctx durable.Context, id string) (int64, error) {
	f, err := durable.AwaitPromise[order](ctx, id)
	if err != nil {
		return 0, err
	}
	in, err := f.Get(ctx)
	return in.Number, err
})

func runSignal(ctx context.Context, e *env) (*Result, error) {
	return e.executions(ctx, func(ctx context.Context, n int64) error {
		h, err := signalFunction.Start(ctx, e.client(n), e.id(n), n)
		if err != nil {
			return err
		}
		if err := h.Signal(ctx, "go", order{1, e.text}); err != nil {
			return err
		}
		got, err := h.Result(ctx)
		if err != nil {
			return err
		}
		return unequal(h.ID(), got, n+1)
	})
}

func runPromise(ctx context.Context, e *env) (*Result, error) {
	return e.executions(ctx, func(ctx context.Context, n int64) error {
		c, id := e.client(n), e.Prefix+"p-"+e.id(n)
		if _, err := c.CreatePromise(ctx, id, client.PromiseOptions{Timeout: time.Hour}); err != nil {
			return err
		}
		h, err := promiseFunction.Start(ctx, c, e.id(n), id)
		if err != nil {
			return err
		}
		value, err := json.Marshal(order{n, e.text})
		if err != nil {
			return err
		}
		if _, err := c.SettlePromise(ctx, id, perdurev1.PromiseState_PROMISE_STATE_RESOLVED,
			&perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: value}}); err != nil {
			return err
		}
		got, err := h.Result(ctx)
		if err != nil {
			return err
		}
		return unequal(h.ID(), got, n)
	})
}
