package workload

import (
	"context"

	"perdure/durable"
)

// echo is the smallest execution: its result is its input.
var echo = &Workload{Letter: "A", Name: "echo", Unit: "executions", Title: "an execution that returns its input",
	register: []durable.Registration{echoFunction}, run: runEcho}

var echoFunction = durable.NewFunction("bench-echo", func(_ durable.Context, text string) (string, error) { return text, nil })

func runEcho(ctx context.Context, e *env) (*Result, error) {
	return e.executions(ctx, func(ctx context.Context, n int64) error {
		got, err := echoFunction.Run(ctx, e.client(n), e.id(n), e.text)
		if err != nil {
			return err
		}
		return unequal(e.id(n), got, e.text)
	})
}
