package workload

import (
	"context"

	"perdure/durable"
)

// steps is an execution of three recorded steps, each of which returns a number.
var steps = &Workload{Letter: "B", Name: "steps", Unit: "executions", Title: "an execution of three recorded steps",
	register: []durable.Registration{stepsFunction}, run: runSteps}

// failover is steps, with a leader killed in the middle.
var failover = &Workload{Letter: "G", Name: "failover", Unit: "executions", Title: "three recorded steps while the leader of most partitions is killed",
	Killed: true, register: []durable.Registration{stepsFunction}, run: runSteps}

// order is the input of an execution with a payload.
type order struct {
	Number int64  `json:"number"`
	Text   string `json:"text"`
}

// stepCount is how many steps an execution has, and stepSum what they add up to.
const (
	stepCount = 3
	stepSum   = stepCount * (stepCount + 1) / 2
)

var stepsFunction = durable.NewFunction("bench-steps", func(ctx durable.Context, in order) (int64, error) {
	sum := in.Number
	for i := range stepCount {
		n, err := durable.Run(ctx, "step", func(context.Context) (int64, error) { return int64(i) + 1, nil })
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
})

func runSteps(ctx context.Context, e *env) (*Result, error) {
	return e.executions(ctx, func(ctx context.Context, n int64) error {
		got, err := stepsFunction.Run(ctx, e.client(n), e.id(n), order{n, e.text})
		if err != nil {
			return err
		}
		return unequal(e.id(n), got, n+stepSum)
	})
}
