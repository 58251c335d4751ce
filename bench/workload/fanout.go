package workload

import (
	"context"

	"perdure/durable"
)

// fanOut is an execution that calls twenty others at once and adds up their results.
var fanOut = &Workload{Letter: "C", Name: "fanout", Unit: "executions", Title: "an execution that starts 20 children at once and awaits all",
	register: []durable.Registration{parentFunction, childFunction}, run: runFanOut}

const children = 20

var childFunction = durable.NewFunction("bench-child", func(_ durable.Context, in order) (int64, error) { return in.Number, nil })

var parentFunction = durable.NewFunction("bench-parent", func(ctx durable.Context, in order) (int64, error) {
	futures := make([]*durable.Future[int64], children)
	for i := range futures {
		var err error
		if futures[i], err = durable.Go(ctx, childFunction, order{in.Number + int64(i), in.Text}); err != nil {
			return 0, err
		}
	}
	if err := durable.AwaitAll(ctx, durable.Awaitables(futures)...); err != nil {
		return 0, err
	}
	var sum int64
	for _, f := range futures {
		n, err := f.Get(ctx)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
})

func runFanOut(ctx context.Context, e *env) (*Result, error) {
	return e.executions(ctx, func(ctx context.Context, n int64) error {
		got, err := parentFunction.Run(ctx, e.client(n), e.id(n), order{n, e.text})
		if err != nil {
			return err
		}
		return unequal(e.id(n), got, children*n+children*(children-1)/2)
	})
}
