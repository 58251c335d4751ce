package workload

import (
	"context"
	"fmt"
	"sync"
	"time"

	"perdure/bench/load"
	"perdure/durable"
)

// sleepers are executions that sleep until an instant. The latency is how late each one woke.
var sleepers = &Workload{Letter: "F", Name: "sleepers", Unit: "wakes", Title: "executions that sleep until an instant; latencies are how late they woke",
	Counted: true, register: []durable.Registration{sleeperFunction}, run: runSleepers}

// Starts of sleepers must have ended when the first is due: startsAtLeast is the rate that the time between allows.
const (
	startsAtLeast = 400
	startsLead    = 2 * time.Second
	// readers is how many results are awaited at once.
	readers = 64
)

// sleeperFunction returns how late it woke, by the clock of the worker's host, which is the one that drew the instant.
var sleeperFunction = durable.NewFunction("bench-sleeper", func(ctx durable.Context, due time.Time) (time.Duration, error) {
	f, err := durable.At(ctx, due)
	if err != nil {
		return 0, err
	}
	_, err = f.Get(ctx)
	return time.Since(due), err
})

func runSleepers(ctx context.Context, e *env) (*Result, error) {
	n := e.Load.Count
	first := time.Now().Add(startsLead + time.Duration(n)*time.Second/startsAtLeast)
	due := func(i int64) time.Time { return first.Add(e.Spread * time.Duration(i) / time.Duration(n)) }
	e.mark(Empty)
	starts, err := load.Run(ctx, load.Options{Concurrency: e.Load.Concurrency, Count: n}, func(ctx context.Context, i int64) error {
		_, err := sleeperFunction.Start(ctx, e.client(i), e.id(i), due(i))
		return err
	})
	if err == nil {
		err = starts.Check()
	}
	if err != nil {
		return nil, err
	}
	left := time.Until(first)
	if left < 0 {
		return nil, fmt.Errorf("%d sleepers started at %.0f per second, too slowly to be asleep at one time", n, starts.Rate())
	}
	time.Sleep(left / 2) // what the starts have left to do is done
	e.mark(Asleep)
	time.Sleep(time.Until(first))
	e.mark(Begin)
	var mu sync.Mutex
	late := load.NewHistogram()
	awake, err := load.Run(ctx, load.Options{Concurrency: readers, Count: n}, func(ctx context.Context, i int64) error {
		took, err := sleeperFunction.Attach(e.client(i), e.id(i)).Result(ctx)
		if err != nil {
			return err
		}
		if took < 0 {
			return fmt.Errorf("%s woke %v too early", e.id(i), -took)
		}
		mu.Lock()
		defer mu.Unlock()
		load.Record(late, took)
		return nil
	})
	e.mark(End)
	if err == nil {
		err = awake.Check()
	}
	if err != nil {
		return nil, err
	}
	awake.Latency = late
	return &Result{Result: awake, Extra: map[string]float64{"starts per second": starts.Rate()}}, e.completed(ctx, n)
}
