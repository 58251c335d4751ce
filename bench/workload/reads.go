package workload

import (
	"context"
	"fmt"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/durable"
)

// reads describe a finished execution; the answer is linearizable.
var reads = &Workload{Letter: "J", Name: "reads", Unit: "reads", Title: "a linearizable read of a finished execution",
	register: []durable.Registration{echoFunction}, run: func(ctx context.Context, e *env) (*Result, error) { return runReads(ctx, e) }}

// staleReads are answered by any replica, without a round.
var staleReads = &Workload{Letter: "J2", Name: "stale-reads", Unit: "reads", Title: "a stale read of a finished execution, answered by any replica",
	register: []durable.Registration{echoFunction}, run: func(ctx context.Context, e *env) (*Result, error) {
		return runReads(ctx, e, client.Stale())
	}}

// readTargets is how many executions are read.
const readTargets = 64

func runReads(ctx context.Context, e *env, opts ...client.ReadOption) (*Result, error) {
	id := func(n int64) string { return fmt.Sprintf("%s-read-%d", e.Prefix, n%readTargets) }
	read := func(ctx context.Context, c *client.Client, id string) error {
		x, err := c.Describe(ctx, id, opts...)
		if err != nil {
			return err
		}
		if got := x.GetStatus(); got != perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED {
			return fmt.Errorf("%s is %v", id, got)
		}
		return unequal(id, len(x.GetOutcome().GetValue()), e.Payload+len(`""`))
	}
	for n := range int64(readTargets) {
		h, err := echoFunction.Start(ctx, e.client(n), id(n), e.text)
		if err == nil {
			_, err = h.Result(ctx)
		}
		if err != nil {
			return nil, err
		}
	}
	// A replica may be behind, and a stale read shows that: wait until all clients see the last execution.
	for _, c := range e.clients {
		for n := range int64(readTargets) {
			if err := waitFor(ctx, func() error { return read(ctx, c, id(n)) }); err != nil {
				return nil, err
			}
		}
	}
	return e.measure(ctx, func(ctx context.Context, n int64) error { return read(ctx, e.client(n), id(n)) })
}

// waitFor repeats f until it returns nil, for ten seconds at most.
func waitFor(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}
