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

// Starts of sleepers must have ended when the first is due: startsAtLeast is the rate that the time between allows if
// the job does not say how long it is.
const (
	startsAtLeast = 400
	startsLead    = 2 * time.Second
	// readers is how many results are awaited at once.
	readers = 64
)

// sleeperFunction returns how late it woke, by the clock of the worker's host, which is the one that drew the instant.
var sleeperFunction = durable.NewFunction(SleeperFunction, func(ctx durable.Context, due time.Time) (time.Duration, error) {
	f, err := durable.At(ctx, due)
	if err != nil {
		return 0, err
	}
	_, err = f.Get(ctx)
	return time.Since(due), err
})

// SleeperFunction is the name of the function that sleeps. Its input is when it wakes, in JSON.
const SleeperFunction = "bench-sleeper"

// SleepersLead is the time in which n sleepers are started.
func SleepersLead(n int64) time.Duration {
	return startsLead + time.Duration(n)*time.Second/startsAtLeast
}

// Due is when sleeper n of a job wakes.
func (j *Job) Due(n int64) time.Time {
	return j.First.Add(j.Spread * time.Duration(n) / time.Duration(j.Load.Count))
}

func runSleepers(ctx context.Context, e *env) (*Result, error) {
	extra := map[string]float64{}
	if e.First.IsZero() {
		rate, err := startSleepers(ctx, e)
		if err != nil {
			return nil, err
		}
		extra["starts per second"] = rate
		time.Sleep(time.Until(e.First) / 2) // what the starts have left to do is done
	}
	e.mark(Asleep)
	if time.Until(e.First) < 0 {
		return nil, fmt.Errorf("the first sleeper was due %v ago", -time.Until(e.First))
	}
	time.Sleep(time.Until(e.First))
	e.mark(Begin)
	var mu sync.Mutex
	late := load.NewHistogram()
	awake, err := load.Run(ctx, load.Options{Concurrency: readers, Count: e.Load.Count}, func(ctx context.Context, i int64) error {
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
	return &Result{Result: awake, Extra: extra}, e.completed(ctx, e.Load.Count)
}

// startSleepers starts all sleepers, draws when the first is due, and returns how many it started per second.
func startSleepers(ctx context.Context, e *env) (rate float64, err error) {
	n, lead := e.Load.Count, e.Lead
	if lead == 0 {
		lead = SleepersLead(n)
	}
	e.First = time.Now().Add(lead)
	e.mark(Empty)
	starts, err := load.Run(ctx, load.Options{Concurrency: e.Load.Concurrency, Count: n}, func(ctx context.Context, i int64) error {
		_, err := sleeperFunction.Start(ctx, e.client(i), e.id(i), e.Due(i))
		return err
	})
	if err == nil {
		err = starts.Check()
	}
	if err == nil && time.Until(e.First) < 0 {
		err = fmt.Errorf("%d sleepers started at %.0f per second, too slowly to be asleep at one time", n, starts.Rate())
	}
	return starts.Rate(), err
}
