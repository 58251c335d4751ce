package embed_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"perdure/client"
	"perdure/durable"
	"perdure/embed"
)

// TestDueWhileDown stops a node over every kind of deadline. At its start the node runs the expirations, with
// the times of the deadlines.
func TestDueWhileDown(t *testing.T) {
	t.Parallel()
	cfg := nodeConfig(t.TempDir())
	cfg.GRPCAddr = fixedAddr(t)
	n := startNode(t, cfg)
	w := connect(t, cfg.GRPCAddr)
	const due = 10 * time.Second // everything waits, and the node is down, before that is over
	var runs tally
	sleeper := durable.NewFunction("sleeper", func(ctx durable.Context, _ int) (string, error) { return "awake", durable.Sleep(ctx, due) })
	waiter := durable.NewFunction("waiter", func(ctx durable.Context, _ int) (bool, error) {
		_, err := durable.WaitSignal[int](ctx, "never", durable.Timeout(due))
		return errors.Is(err, durable.ErrTimeout), nil
	})
	patient := durable.NewFunction("patient", func(ctx durable.Context, _ int) (int, error) { return durable.WaitSignal[int](ctx, "never") })
	retries := durable.NewFunction("retries", func(ctx durable.Context, _ int) (int, error) {
		return durable.Run(ctx, "step", func(context.Context) (int, error) {
			if runs.add("step") == 1 {
				return 0, errors.New("not yet")
			}
			return 7, nil
		}, durable.WithRetry(durable.RetryPolicy{MaxAttempts: 2, Initial: due}))
	})
	x := w.work(durable.WorkerOptions{}, sleeper, waiter, patient, retries)
	slept := begin(w, sleeper, "sleeper", 0)
	waited := begin(w, waiter, "waiter", 0)
	begin(w, patient, "patient", 0, durable.StartTimeout(due))
	retried := begin(w, retries, "retries", 0)
	begin(w, patient, "parted", 0)
	w.reaches("sleeper", blocked)
	w.reaches("waiter", blocked)
	w.reaches("patient", blocked)
	w.reaches("parted", blocked)
	x.saw(durable.EventAttempt, "retries", 1)
	p := w.create("promise", client.PromiseOptions{Timeout: due})
	if _, err := w.Cancel(soon(t), "parted", "enough", due); err != nil {
		t.Error(err)
	}
	x.stop() // the cancel stays unacknowledged, unless its acknowledgement was quicker
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	late := time.Until(time.UnixMilli(p.GetTimeoutAtMs()).Add(300 * time.Millisecond))
	receive(t, "every deadline", time.After(late))
	startNode(t, cfg)

	// The first entry of the new leader's clock carries it out: a read does not go by the node's clock.
	until(t, "the promise to be settled at its deadline", func() error {
		if got, err := w.GetPromise(soon(t), "promise"); err != nil || got.GetState() != timedOut || got.GetSettledAtMs() != p.GetTimeoutAtMs() {
			return fmt.Errorf("the promise is %v, %v; want it settled at %d", got, err, p.GetTimeoutAtMs())
		}
		return nil
	})
	ended := w.ended("patient", cancelled, "timeout", "timed out", timedOut)
	if ended.GetSettledAtMs() != ended.GetTimeoutAtMs() {
		t.Errorf("the execution's promise is %v", ended)
	}
	if end := w.ending("parted"); end.Failure.GetType() != "cancelled" {
		t.Errorf("the cancelled execution: %v", end)
	}
	y := w.work(durable.WorkerOptions{}, sleeper, waiter, patient, retries)
	if got := result(t, slept); got != "awake" {
		t.Errorf("the sleeper returned %q", got)
	}
	if !result(t, waited) {
		t.Error("the wait did not time out")
	}
	if got := result(t, retried); got != 7 || runs.of("step") != 2 {
		t.Errorf("the retried step returned %d after %d attempts", got, runs.of("step"))
	}
	y.noProblems()
	y.stop()
	w.validJournals()
}

// TestStartRefuses starts nodes that must not start. Each refusal names what is wrong and leaves nothing
// behind: the right start works afterwards.
func TestStartRefuses(t *testing.T) {
	cfg := nodeConfig(t.TempDir())
	first := startNode(t, cfg)
	w := connect(t, first.GRPCAddr())
	w.create("p", client.PromiseOptions{Timeout: time.Hour})
	refuse := func(what string, cfg embed.Config, want ...string) {
		t.Helper()
		before := runtime.NumGoroutine()
		n, err := start(cfg)
		if err == nil {
			t.Errorf("%s: a node starts", what)
			_ = n.stop()
			return
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v; want it to name %q", what, err, part)
			}
		}
		until(t, what+": its goroutines to end", func() error {
			if now := runtime.NumGoroutine(); now > before+2 { // the innocent client's come and go
				return fmt.Errorf("%d of %d are left", now, before)
			}
			return nil
		})
	}
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	other := func(change func(*embed.Config)) embed.Config {
		c := nodeConfig(t.TempDir())
		change(&c)
		return c
	}
	refuse("the same data twice", cfg, cfg.DataDir)
	refuse("the gRPC port is taken", other(func(c *embed.Config) { c.GRPCAddr = busy.Addr().String() }), "gRPC port", busy.Addr().String(), "in use")
	refuse("the HTTP port is taken", other(func(c *embed.Config) { c.HTTPAddr = busy.Addr().String() }), "HTTP port", busy.Addr().String(), "in use")
	refuse("the peer port is taken", other(func(c *embed.Config) { c.PeerAddr = busy.Addr().String() }), "peer port", busy.Addr().String(), "in use")
	refuse("the data is a file", other(func(c *embed.Config) { c.DataDir = file }), file)
	refuse("two partitions", other(func(c *embed.Config) { c.Partitions = 2 }), "partitions")

	if err := first.NotReady(); err != nil {
		t.Errorf("the first node: %v", err)
	}
	if _, err := w.GetPromise(soon(t), "p"); err != nil {
		t.Errorf("the first node: %v", err)
	}
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	change := func(f func(*embed.Config)) embed.Config {
		c := cfg
		f(&c)
		return c
	}
	refuse("another number of partitions", change(func(c *embed.Config) { c.Partitions = 5 }), "4 partitions", "5")
	refuse("another node id", change(func(c *embed.Config) { c.NodeID = "n2" }), `"n1"`, `"n2"`)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if n, err := embed.Start(ctx, change(func(c *embed.Config) { c.Logger = first.cfg.Logger })); !errors.Is(err, context.Canceled) {
		t.Errorf("a start without a waiting caller: %v", err)
		if err == nil {
			_ = n.Close(context.Background())
		}
	}
	again := connect(t, startNode(t, change(func(c *embed.Config) { c.Partitions = 0 })).GRPCAddr())
	if _, err := again.GetPromise(soon(t), "p"); err != nil {
		t.Errorf("after all that: %v", err)
	}
}

// TestCloseLeavesNothing starts and stops a node, whose goroutines and files must all be gone; several
// close it at once, and again.
func TestCloseLeavesNothing(t *testing.T) {
	before, files := runtime.NumGoroutine(), openFiles(t)
	cfg := nodeConfig(t.TempDir())
	for range 2 {
		n, err := start(cfg)
		if err != nil {
			t.Fatal(err)
		}
		c, err := client.Dial(client.Options{Addrs: []string{n.GRPCAddr()}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.CreatePromise(soon(t), "p", client.PromiseOptions{Timeout: time.Hour}); err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				if err := n.stop(); err != nil {
					t.Errorf("stop: %v", err)
				}
			}()
		}
		wg.Wait()
		if err := n.stop(); err != nil {
			t.Errorf("stop again: %v", err)
		}
		select {
		case <-n.Done():
			t.Errorf("a node that was stopped is said to have halted: %v", n.Err())
		default:
		}
	}
	until(t, "all goroutines and files to be gone", func() error {
		if now := runtime.NumGoroutine(); now > before {
			stacks := make([]byte, 1<<20)
			return fmt.Errorf("%d goroutines, there were %d:\n%s", now, before, stacks[:runtime.Stack(stacks, true)])
		}
		if now := openFiles(t); len(now) > len(files) {
			return fmt.Errorf("%d files are open, there were %d: %v, were %v", len(now), len(files), now, files)
		}
		return nil
	})
}

// openFiles names the files and connections that the process has open, or none where the system does not show
// them. It leaves out the files of the shared node, which opens and closes tables at any time.
func openFiles(t *testing.T) (open []string) {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil
	}
	for _, name := range names {
		target, _ := os.Readlink("/proc/self/fd/" + name.Name())
		if strings.Contains(target, "/perdure-e2e-") {
			continue
		}
		open = append(open, name.Name()+" "+target)
	}
	return open
}
