package embed_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"perdure/client"
	"perdure/durable"
)

// TestStartedOnce has many start the same thing at the same time.
func TestStartedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var runs atomic.Int64
	once := durable.NewFunction("once", func(ctx durable.Context, in int) (int, error) {
		return durable.Run(ctx, "step", func(context.Context) (int, error) { return int(runs.Add(1)), nil })
	})
	w.work(durable.WorkerOptions{}, once)
	for round := range 10 {
		var created atomic.Int64
		var wg sync.WaitGroup
		for range 20 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				h, err := once.Start(soon(t), w.Client, fmt.Sprint("once-", round), round)
				if err != nil {
					t.Errorf("start: %v", err)
					return
				}
				if h.Started().Created {
					created.Add(1)
				}
				if got, err := h.Result(soon(t)); err != nil || got != round+1 {
					t.Errorf("result %d, %v, want %d", got, err, round+1)
				}
			}()
		}
		wg.Wait()
		if n := created.Load(); n != 1 {
			t.Errorf("%d of the starts made the execution", n)
		}
	}
}

// TestSignalsInOrder sends signals faster and slower than they are asked for: each comes once, in order.
func TestSignalsInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const signals = 60
	reader := durable.NewFunction("reader", func(ctx durable.Context, n int) ([]int, error) {
		var got []int
		for range n {
			v, err := durable.WaitSignal[int](ctx, "n")
			if err != nil {
				return nil, err
			}
			got = append(got, v)
		}
		return got, nil
	})
	writer := durable.NewFunction("writer", func(ctx durable.Context, to string) (int, error) {
		for i := range signals {
			if err := durable.Signal(ctx, to, "n", i); err != nil {
				return 0, err
			}
			if i%7 == 0 {
				if err := durable.Sleep(ctx, time.Millisecond); err != nil {
					return 0, err
				}
			}
		}
		return signals, nil
	})
	x := w.work(durable.WorkerOptions{}, reader, writer)
	var want []int
	for i := range signals {
		want = append(want, i)
	}
	// From outside, and from an execution (in another partition or the same).
	h := begin(w, reader, "outside", signals)
	for i := range signals {
		w.signal("outside", "n", fmt.Sprint(i))
	}
	var inside []*durable.Handle[[]int]
	for i := range 6 {
		id := fmt.Sprint("inside-", i)
		inside = append(inside, begin(w, reader, id, signals))
		begin(w, writer, "to-"+id, id)
	}
	if got := result(t, h); !slices.Equal(got, want) {
		t.Errorf("from outside came %v", got)
	}
	for i, h := range inside {
		if got := result(t, h); !slices.Equal(got, want) {
			t.Errorf("%d: from an execution came %v", i, got)
		}
	}
	x.noProblems()
}

// TestSignalOrTimeout lets a signal and a deadline meet: the wait ends once, and no signal is lost.
func TestSignalOrTimeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const wait = 15 * time.Millisecond
	fn := durable.NewFunction("either", func(ctx durable.Context, _ int) (string, error) {
		first, err := durable.WaitSignal[string](ctx, "s", durable.Timeout(wait))
		if err == nil {
			return "in time " + first, nil
		}
		if !errors.Is(err, durable.ErrTimeout) {
			return "", err
		}
		second, err := durable.WaitSignal[string](ctx, "s")
		return "late " + second, err
	})
	x := w.work(durable.WorkerOptions{}, fn)
	const executions = 40
	var wg sync.WaitGroup
	var late atomic.Int64
	for i := range executions {
		wg.Add(1)
		go func() {
			defer wg.Done()
			id := fmt.Sprint("either-", i)
			h, err := fn.Start(soon(t), w.Client, id, 0)
			if err != nil {
				t.Errorf("start: %v", err)
				return
			}
			<-time.After(time.Duration(i) * time.Millisecond) // from well before to well after
			if err := w.Signal(soon(t), id, "s", []byte(`"signal"`)); err != nil {
				t.Errorf("signal: %v", err)
			}
			got, err := h.Result(soon(t))
			if err != nil || !strings.HasSuffix(got, " signal") {
				t.Errorf("%s returned %q, %v", id, got, err)
			}
			if strings.HasPrefix(got, "late") {
				late.Add(1)
			}
		}()
	}
	wg.Wait()
	t.Logf("%d of %d signals came late", late.Load(), executions)
	x.noProblems()
	w.validJournals()
}

// TestWorkersComeAndGo stops and starts workers under load: everything finishes, nothing that was
// acknowledged runs again.
func TestWorkersComeAndGo(t *testing.T) {
	t.Parallel()
	executions, generations := 80, 6
	if testing.Short() {
		executions, generations = 30, 3
	}
	w := newWorld(t)
	l := newLedger()
	journey, leg := journeys(l)
	stays := w.work(durable.WorkerOptions{Concurrency: 2}, journey, leg)
	finished, wait := travel(w, journey, executions, 16)
	for i := range generations {
		x := w.work(durable.WorkerOptions{Concurrency: 8}, journey, leg)
		finishes(t, finished, i*executions/generations)
		x.stop()
		x.noProblems()
	}
	wait()
	l.verdict(t, executions*journeySteps)
	stays.noProblems()
	arrived(w, executions)
}

// TestMismatch runs an execution with other code than it began with. The worker reports the problem, and a
// worker with the right code continues.
func TestMismatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	version := func(step string) *durable.Function[int, string] {
		return durable.NewFunction("changed", func(ctx durable.Context, _ int) (string, error) {
			v, err := durable.Run(ctx, step, func(context.Context) (string, error) { return step, nil })
			if err != nil {
				return "", err
			}
			if _, err := durable.WaitSignal[int](ctx, "go"); err != nil {
				return "", err
			}
			return v, nil
		})
	}
	one, two := version("charge"), version("reserve")
	x := w.work(durable.WorkerOptions{}, one)
	h := begin(w, one, "changed", 0)
	w.waitsFor("changed", "go")
	x.stop()
	y := w.work(durable.WorkerOptions{}, two)
	w.signal("changed", "go", "1")
	y.saw(durable.EventProblem, "changed", 1)
	const problem = `durable: journal mismatch: changed:0 is step "charge" in the journal, the code asks for step "reserve"`
	until(t, "the problem to show", func() error {
		if e := w.describe("changed"); e.GetLastProblem() != problem || e.GetStatus() != running_ {
			return fmt.Errorf("it is %v", e)
		}
		return nil
	})
	before := len(w.journal("changed"))
	y.stop()
	if n := len(w.journal("changed")); n != before {
		t.Errorf("the wrong code wrote %d entries", n-before)
	}
	w.work(durable.WorkerOptions{}, one)
	if got := result(t, h); got != "charge" {
		t.Errorf("the result is %q", got)
	}
	if e := w.describe("changed"); e.GetLastProblem() != "" {
		t.Errorf("the problem is still %q", e.GetLastProblem())
	}
}

// TestNamespaces uses the same ids in two namespaces.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	a := newWorld(t)
	other, err := client.Dial(client.Options{Addrs: []string{a.addr}, Namespace: t.Name() + "-b", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	b := &world{other, t, a.addr}
	fn := func(says string) *durable.Function[int, string] {
		return durable.NewFunction("same", func(ctx durable.Context, _ int) (string, error) {
			s, err := durable.WaitSignal[string](ctx, "go")
			return durable.Info(ctx).Namespace + " " + says + " " + s, err
		})
	}
	fa, fb := fn("a"), fn("b")
	a.work(durable.WorkerOptions{}, fa)
	if _, err := fb.Start(soon(t), b.Client, "x", 0); err == nil {
		t.Error("a function is known in a namespace where no worker has registered it")
	}
	b.work(durable.WorkerOptions{}, fb)
	ha, hb := begin(a, fa, "x", 0), begin(b, fb, "x", 0)
	a.signal("x", "go", `"to a"`)
	if got := result(t, ha); got != t.Name()+" a to a" {
		t.Errorf("a returned %q", got)
	}
	if e := b.describe("x"); e.GetStatus() == completed {
		t.Error("a's signal reached b")
	}
	b.signal("x", "go", `"to b"`)
	if got := result(t, hb); got != t.Name()+"-b b to b" {
		t.Errorf("b returned %q", got)
	}
	if len(a.list(client.ListOptions{})) != 1 || len(b.list(client.ListOptions{})) != 1 {
		t.Error("a listing shows another namespace")
	}
	a.create("p", client.PromiseOptions{Timeout: time.Hour})
	_, err = b.GetPromise(soon(t), "p")
	wantReason(t, "get of another namespace's promise", err, "PROMISE_NOT_FOUND")
}

// TestNobodyWorks cancels and terminates what no worker has ever seen.
func TestNobodyWorks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, id := range []string{"cancelled", "terminated", "timed-out"} {
		o := client.StartOptions{ID: id, Function: "unserved", AllowUnknownFunction: true}
		if id == "timed-out" {
			o.Timeout = 50 * time.Millisecond
		}
		if _, err := w.Start(soon(t), o); err != nil {
			t.Fatal(err)
		}
	}
	if s, err := w.Cancel(soon(t), "cancelled", "why", 80*time.Millisecond); err != nil || s != cancelling {
		t.Errorf("cancel: %v, %v", s, err)
	}
	if s, err := w.Terminate(soon(t), "terminated", "why"); err != nil || s != cancelled {
		t.Errorf("terminate: %v, %v", s, err)
	}
	w.ended("cancelled", cancelled, "cancelled", "the grace period ended", canceled)
	w.ended("terminated", cancelled, "cancelled", "why", canceled)
	w.ended("timed-out", cancelled, "timeout", "timed out", timedOut)
	// A worker that comes afterwards finds nothing to do.
	unserved := durable.NewFunction("unserved", func(ctx durable.Context, _ []byte) (int, error) { return 1, nil })
	x := w.work(durable.WorkerOptions{}, unserved)
	if got := result(t, begin(w, unserved, "now", nil)); got != 1 {
		t.Errorf("the result is %d", got)
	}
	if n := x.count(durable.EventTask, ""); n != 1 {
		t.Errorf("the worker got %d tasks", n)
	}
}

// TestSeveralAddresses gives a client and a worker addresses of which some are dead.
func TestSeveralAddresses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dead := []string{fixedAddr(t), w.addr, fixedAddr(t)}
	c, err := client.Dial(client.Options{Addrs: dead, Namespace: w.Namespace(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fn := durable.NewFunction("f", func(ctx durable.Context, in int) (int, error) { return in + 1, nil })
	x := durable.NewWorker(c, durable.WorkerOptions{})
	x.Register(fn)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- x.Run(ctx) }()
	receive(t, "the worker's welcome", closedAsValue(x.Ready()))
	for i := range 10 {
		h, err := fn.Start(soon(t), c, fmt.Sprint("f-", i), i)
		if err != nil {
			t.Fatal(err)
		}
		if got := result(t, h); got != i+1 {
			t.Errorf("the result is %d", got)
		}
	}
	cancel()
	if err := receive(t, "the worker's end", ended); err != nil {
		t.Error(err)
	}
}

// TestFrozenAddress gives a client an address that accepts its calls and never answers: it tries the next
// address, and a request that was sent to both takes effect once.
func TestFrozenAddress(t *testing.T) {
	if testing.Short() {
		t.Skip("waits until an unanswered call is given up, which takes seconds; left out with -short")
	}
	t.Parallel()
	w := newWorld(t)
	p := newProxy(t, w.addr)
	c, err := client.Dial(client.Options{Addrs: []string{p.addr(), w.addr}, Namespace: w.Namespace(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Start(soon(t), client.StartOptions{ID: "x", Function: "unserved", AllowUnknownFunction: true}); err != nil {
		t.Fatal(err)
	}
	p.deafen() // calls arrive, answers are lost
	for i := range 3 {
		if err := c.Signal(soon(t), "x", "s", fmt.Append(nil, i)); err != nil {
			t.Errorf("signal: %v", err)
		}
	}
	if counts := w.validJournal("x"); counts["SignalDelivered"] != 3 {
		t.Errorf("3 signals were delivered as %v", counts)
	}
}

// closedAsValue turns the closing of a channel into a value.
func closedAsValue(c <-chan struct{}) <-chan bool {
	out := make(chan bool, 1)
	go func() {
		<-c
		out <- true
	}()
	return out
}
