package workload

import (
	"context"
	"encoding/json"
	"fmt"

	"perdure/client"
	"perdure/durable"
)

// increments adds one to one of 64 entities and returns the sum.
var increments = &Workload{Letter: "E", Name: "entity", Unit: "increments", Title: "an increment of one of 64 entities, called by a client",
	register: []durable.Registration{counter}, run: runIncrements}

const keys = 64

// count is a counter's value.
type count struct {
	Sum  int64  `json:"sum"`
	Text string `json:"text,omitempty"`
}

var counter = durable.NewEntity("bench-counter",
	durable.Op("add", func(_ *durable.EntityContext, c *count, in order) (int64, error) {
		c.Sum += in.Number
		c.Text = in.Text
		return c.Sum, nil
	}),
)

func (e *env) counterID(key int64) string {
	return string(counter.ID(fmt.Sprintf("%s-%d", e.Prefix, key)))
}

func runIncrements(ctx context.Context, e *env) (*Result, error) {
	input, err := json.Marshal(order{1, e.text})
	if err != nil {
		return nil, err
	}
	r, err := e.measure(ctx, func(ctx context.Context, n int64) error {
		out, err := e.client(n).CallEntity(ctx, e.counterID(n%keys), "add", input)
		if err != nil {
			return err
		}
		var sum int64
		if err := json.Unmarshal(out, &sum); err != nil {
			return err
		}
		if sum < 1 || sum > n/keys+int64(e.Load.Concurrency)+1 {
			return fmt.Errorf("increment %d makes %d", n, sum)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var sum int64
	for key := range min(keys, r.Begun) {
		value, err := e.readCounter(ctx, e.clients[0], e.counterID(key))
		if err != nil {
			return nil, err
		}
		sum += value
	}
	if sum != r.Begun {
		return nil, fmt.Errorf("%d increments began, and the counters add up to %d", r.Begun, sum)
	}
	return r, nil
}

func (e *env) readCounter(ctx context.Context, c *client.Client, id string) (int64, error) {
	got, err := c.GetEntity(ctx, id)
	if err != nil {
		return 0, err
	}
	var value count
	if err := json.Unmarshal(got.GetValue(), &value); err != nil {
		return 0, fmt.Errorf("%s: %w", id, err)
	}
	return value.Sum, nil
}
