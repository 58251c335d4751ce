// Command bench measures a cluster from outside: it starts executions of a durable function with a few steps,
// --concurrency at a time, and reports how many finish per second and how long they take.
//
// It owns the load and its clock, nothing of the server. Every figure is of executions whose result came
// back, and a run ends by itself. It stores nothing; the executions stay in the cluster's store.
//
//	go run ./cmd/node dev &
//	go run ./bench --concurrency 64 --duration 5s
package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"perdure/client"
	"perdure/durable"
)

type order struct {
	Number int    `json:"number"`
	Text   string `json:"text"`
}

func main() {
	addr := flag.String("addr", "127.0.0.1:7400", "gRPC addresses of the cluster, comma separated")
	concurrency := flag.Int("concurrency", 64, "executions under way at once")
	duration := flag.Duration("duration", 5*time.Second, "how long to start new executions")
	count := flag.Int("count", 0, "stop after so many executions instead; 0 means no limit")
	steps := flag.Int("steps", 3, "steps of each execution")
	payload := flag.Int("payload", 64, "bytes of input")
	noResult := flag.Bool("no-wait", false, "only start, do not wait for results (for filling a store)")
	flag.Parse()
	if err := run(*addr, *concurrency, *duration, *count, *steps, *payload, *noResult); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(addr string, concurrency int, duration time.Duration, count, steps, payload int, noResult bool) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, err := client.Dial(client.Options{Addrs: strings.Split(addr, ",")})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	work, err := client.Dial(client.Options{Addrs: strings.Split(addr, ",")})
	if err != nil {
		return err
	}
	defer func() { _ = work.Close() }()

	fn := durable.NewFunction("bench", func(ctx durable.Context, in order) (int, error) {
		sum := in.Number
		for i := range steps {
			n, err := durable.Run(ctx, "step", func(context.Context) (int, error) { return i + 1, nil })
			if err != nil {
				return 0, err
			}
			sum += n
		}
		return sum, nil
	})
	worker := durable.NewWorker(work, durable.WorkerOptions{Concurrency: 2 * concurrency, Logger: slog.New(slog.DiscardHandler)})
	worker.Register(fn)
	stopped := make(chan error, 1)
	go func() { stopped <- worker.Run(ctx) }()
	select {
	case <-worker.Ready():
	case err := <-stopped:
		return fmt.Errorf("the worker could not start: %w", err)
	}

	var tag [6]byte
	if _, err := rand.Read(tag[:]); err != nil {
		return err
	}
	prefix := "bench-" + hex.EncodeToString(tag[:])
	text := strings.Repeat("x", payload)
	var next, failed atomic.Int64
	var mu sync.Mutex
	var all []time.Duration
	began := time.Now()
	end := began.Add(duration)
	var wg sync.WaitGroup
	for range concurrency {
		wg.Add(1)
		go func() {
			defer wg.Done()
			var mine []time.Duration
			for {
				n := int(next.Add(1))
				if count > 0 && n > count || count == 0 && time.Now().After(end) {
					break
				}
				start := time.Now()
				h, err := fn.Start(ctx, c, fmt.Sprintf("%s-%d", prefix, n), order{n, text})
				if err == nil && !noResult {
					var got int
					got, err = h.Result(ctx)
					if want := n + steps*(steps+1)/2; err == nil && got != want {
						err = fmt.Errorf("execution %s returned %d, not %d", h.ID(), got, want)
					}
				}
				if err != nil {
					if failed.Add(1) <= 3 {
						fmt.Fprintln(os.Stderr, "bench:", err)
					}
					continue
				}
				mine = append(mine, time.Since(start))
			}
			mu.Lock()
			all = append(all, mine...)
			mu.Unlock()
		}()
	}
	wg.Wait()
	took := time.Since(began)
	slices.Sort(all)
	if len(all) == 0 {
		return fmt.Errorf("no execution finished, %d failed", failed.Load())
	}
	at := func(p float64) time.Duration { return all[min(int(p*float64(len(all))), len(all)-1)] }
	fmt.Printf("%d executions of %d steps at concurrency %d in %.2fs: %.0f per second, p50 %s, p99 %s, %d failed\n",
		len(all), steps, concurrency, took.Seconds(), float64(len(all))/took.Seconds(),
		at(0.50).Round(10*time.Microsecond), at(0.99).Round(10*time.Microsecond), failed.Load())
	if failed.Load() > 0 {
		return fmt.Errorf("%d executions failed", failed.Load())
	}
	return nil
}
