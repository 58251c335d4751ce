package embed_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"perdure/client"
	"perdure/durable"
)

// ledger records the acknowledged steps, and reports one that runs again.
type ledger struct {
	mu     sync.Mutex
	acked  map[string]bool
	runs   map[string]int
	broken []string
}

func newLedger() *ledger { return &ledger{acked: map[string]bool{}, runs: map[string]int{}} }

func (l *ledger) begins(step string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs[step]++
	if l.acked[step] {
		l.broken = append(l.broken, step+" ran again after it was acknowledged")
	}
}

func (l *ledger) acknowledged(step string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked[step] = true
}

// verdict reports what is wrong, and how many steps ran more than once (before they were acknowledged).
func (l *ledger) verdict(t *testing.T, steps int) (repeated int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.broken {
		t.Error(b)
	}
	if len(l.acked) != steps {
		t.Errorf("%d steps were acknowledged, want %d", len(l.acked), steps)
	}
	for _, n := range l.runs {
		if n > 1 {
			repeated++
		}
	}
	return repeated
}

// step runs a step that the ledger knows of.
func (l *ledger) step(ctx durable.Context, name string, value int, opts ...durable.StepOption) (int, error) {
	key := durable.Info(ctx).ID + "/" + name
	v, err := durable.Run(ctx, name, func(context.Context) (int, error) {
		l.begins(key)
		return value, nil
	}, opts...)
	if err == nil {
		l.acknowledged(key)
	}
	return v, err
}

// The journey is a function with steps, a timer, a child (every other one in a partition of its own
// choice) and a signal: 5 steps in all. journeyValue is its result.
const journeySteps = 5

func journeyValue(in int) int { return 4*in + 111 }

func journeys(l *ledger) (journey, leg *durable.Function[int, int]) {
	leg = durable.NewFunction("leg", func(ctx durable.Context, in int) (int, error) {
		a, err := l.step(ctx, "out", in)
		if err != nil {
			return 0, err
		}
		b, err := l.step(ctx, "back", 1)
		return a + b, err
	})
	journey = durable.NewFunction("journey", func(ctx durable.Context, in int) (int, error) {
		a, err := l.step(ctx, "pack", in+10)
		if err != nil {
			return 0, err
		}
		if err := durable.Sleep(ctx, 10*time.Millisecond); err != nil {
			return 0, err
		}
		var opts []durable.CallOption
		if in%2 == 0 {
			opts = append(opts, durable.Spread())
		}
		b, err := durable.Call(ctx, leg, in, opts...)
		if err != nil {
			return 0, err
		}
		e, err := durable.WaitSignal[int](ctx, "ticket")
		if err != nil {
			return 0, err
		}
		c, err := l.step(ctx, "pay", in, durable.WithIntent())
		if err != nil {
			return 0, err
		}
		d, err := l.step(ctx, "unpack", 100)
		return a + b + c + d + e, err
	})
	return journey, leg
}

// travel starts journeys and waits for their results, some at a time, while the node comes and goes. It
// returns a counter of what is finished and a function that waits for all.
func travel(w *world, journey *durable.Function[int, int], executions, atOnce int) (finished *atomic.Int64, wait func()) {
	finished = new(atomic.Int64)
	var next atomic.Int64
	var wg sync.WaitGroup
	ctx, cancel := context.WithTimeout(context.Background(), 2*testTimeout)
	w.t.Cleanup(func() {
		cancel()
		wg.Wait() // they report failures to the test, so they end before it
	})
	for range atOnce {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for n := int(next.Add(1)); n <= executions; n = int(next.Add(1)) {
				h, err := journey.Start(ctx, w.Client, fmt.Sprintf("trip-%d", n), n)
				if err != nil {
					w.t.Errorf("start of trip %d: %v", n, err)
					continue
				}
				if err := w.Signal(ctx, h.ID(), "ticket", []byte(strconv.Itoa(n))); err != nil {
					w.t.Errorf("signal to trip %d: %v", n, err)
				}
				got, err := h.Result(ctx)
				if err != nil || got != journeyValue(n) {
					w.t.Errorf("trip %d returned %d, %v; want %d", n, got, err, journeyValue(n))
				}
				if !h.Started().Created {
					w.t.Errorf("trip %d is said to have been started before", n)
				}
				finished.Add(1)
			}
		}()
	}
	return finished, wg.Wait
}

// arrived checks the journals of all journeys: each is valid, and has its signal once.
func arrived(w *world, executions int) {
	w.t.Helper()
	all := w.list(client.ListOptions{})
	if len(all) != 2*executions {
		w.t.Errorf("%d executions, want %d", len(all), 2*executions)
	}
	for _, e := range all {
		if e.GetStatus() != completed || e.GetClosedMs() == 0 {
			w.t.Errorf("%v is not completed", e)
		}
		counts := w.validJournal(e.GetId())
		if e.GetFunction() == "journey" && (counts["SignalDelivered"] != 1 || counts["InvokeCompleted"] != 4) {
			w.t.Errorf("the journal of %s has %v", e.GetId(), counts)
		}
	}
}

// finishes waits until so many are finished.
func finishes(t *testing.T, finished *atomic.Int64, n int) {
	t.Helper()
	until(t, fmt.Sprintf("%d to finish", n), func() error {
		if got := finished.Load(); got < int64(n) {
			return fmt.Errorf("%d have", got)
		}
		return nil
	})
}

// TestRestart stops and starts a node while clients and workers live on: they notice nothing but time.
func TestRestart(t *testing.T) {
	t.Parallel()
	executions, restarts := 120, 2
	if testing.Short() {
		executions, restarts = 40, 1
	}
	cfg := nodeConfig(t.TempDir())
	cfg.GRPCAddr = fixedAddr(t)
	n := startNode(t, cfg)
	w := connect(t, cfg.GRPCAddr)
	l := newLedger()
	journey, leg := journeys(l)
	workers := []*worker{w.work(durable.WorkerOptions{}, journey, leg), w.work(durable.WorkerOptions{}, journey, leg)}

	finished, wait := travel(w, journey, executions, 16)
	for i := range restarts {
		finishes(t, finished, (i+1)*executions/(restarts+1))
		if err := n.stop(); err != nil {
			t.Fatalf("stop: %v", err)
		}
		n = startNode(t, cfg)
	}
	wait()
	if t.Failed() {
		return
	}
	repeated := l.verdict(t, executions*journeySteps)
	for _, x := range workers {
		x.noProblems()
		x.stop() // while there is a node to say goodbye to
	}
	arrived(w, executions)
	t.Logf("%d executions, %d restarts, %d of %d steps ran again before they were acknowledged", executions, restarts, repeated, executions*journeySteps)
}
