package workload

import (
	"context"

	"perdure/durable"
)

// appends are executions of a hundred recorded steps: what one more step costs when its execution is running.
var appends = &Workload{Letter: "I", Name: "journal", Unit: "steps", Units: appendCount, Title: "journal appends: an execution of 100 recorded steps, each of which records the payload",
	register: []durable.Registration{appendFunction}, run: runAppends}

const appendCount = 100

var appendFunction = durable.NewFunction("bench-append", func(ctx durable.Context, in order) (int64, error) {
	total := in.Number
	for range appendCount {
		text, err := durable.Run(ctx, "append", func(context.Context) (string, error) { return in.Text, nil })
		if err != nil {
			return 0, err
		}
		total += int64(len(text))
	}
	return total, nil
})

func runAppends(ctx context.Context, e *env) (*Result, error) {
	return e.executions(ctx, func(ctx context.Context, n int64) error {
		h, err := appendFunction.Start(ctx, e.client(n), e.id(n), order{n, e.text})
		if err != nil {
			return err
		}
		got, err := h.Result(ctx)
		if err != nil {
			return err
		}
		return unequal(h.ID(), got, n+int64(appendCount*len(e.text)))
	})
}
