package embed_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"perdure/client"
	"perdure/durable"
)

// blocker is a function with one step that reports its worker and waits until the test opens its gate.
type blocker struct {
	*durable.Function[int, string]
	runs tally // by worker

	gates map[string]chan struct{} // by worker
	begun chan string              // who has begun the step
}

// newBlocker makes the function for one worker of several: each has its own name.
func newBlockers(workers ...string) map[string]*blocker {
	shared := &blocker{gates: map[string]chan struct{}{}, begun: make(chan string, 1000)}
	all := map[string]*blocker{}
	for _, name := range workers {
		shared.gates[name] = make(chan struct{})
		b := &blocker{gates: shared.gates, begun: shared.begun}
		b.Function = durable.NewFunction("blocker", func(ctx durable.Context, in int) (string, error) {
			if _, err := durable.Run(ctx, "before", func(context.Context) (int, error) {
				return b.runs.add("before"), nil
			}); err != nil {
				return "", err
			}
			return durable.Run(ctx, "blocked", func(ctx context.Context) (string, error) {
				b.runs.add("blocked")
				b.begun <- name
				select {
				case <-b.gates[name]:
					return fmt.Sprintf("%s did %d", name, in), nil
				case <-time.After(2 * testTimeout):
					return "", errors.New("the gate stayed closed")
				}
			}, durable.NoRetry())
		})
		all[name] = b
	}
	return all
}

// open lets the worker's steps continue.
func (b *blocker) open(name string) { close(b.gates[name]) }

// TestWorkersShare gives two workers more work than one has capacity for.
func TestWorkersShare(t *testing.T) {
	t.Parallel()
	const each = 8
	w := newWorld(t)
	fns := newBlockers("a", "b")
	w.work(durable.WorkerOptions{Name: "a", Concurrency: each}, fns["a"])
	w.work(durable.WorkerOptions{Name: "b", Concurrency: each}, fns["b"])
	for i := range 2 * each {
		begin(w, fns["a"].Function, fmt.Sprintf("share-%d", i), i)
	}
	at := map[string]int{}
	for range 2 * each {
		at[receive(t, "a step to begin", fns["a"].begun)]++
	}
	if at["a"] != each || at["b"] != each {
		t.Errorf("the workers run %v of %d executions, want %d each", at, 2*each, each)
	}
	fns["a"].open("a")
	fns["b"].open("b")
	for i := range 2 * each {
		result(t, fns["a"].Attach(w.Client, fmt.Sprintf("share-%d", i)))
	}
}

// TestWorkerVanishes freezes the network of a worker. After its lease another one does its work, and what
// the first says when the network is back changes nothing.
func TestWorkerVanishes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newProxy(t, w.addr)
	fns := newBlockers("a", "b")
	const lease = 8 * time.Second // long enough for a busy machine to keep it until the network is frozen
	// It has capacity for one task: with more, the worker without heartbeats would get the task again, each time for a
	// lease.
	a := w.workAt(p.addr(), durable.WorkerOptions{Name: "a", Lease: lease, Concurrency: 1}, fns["a"])
	h := begin(w, fns["a"].Function, "vanishing", 7)
	if who := receive(t, "the step to begin", fns["a"].begun); who != "a" {
		t.Fatalf("%s runs the step", who)
	}
	b := w.work(durable.WorkerOptions{Name: "b"}, fns["b"])
	if b.count(durable.EventTask, "") != 0 {
		t.Error("b has a task that a holds")
	}
	p.freeze()
	frozen := time.Now()
	fns["a"].open("a") // a's commit is on its way, and will arrive late
	if who := receive(t, "the step to begin again", fns["a"].begun); who != "b" {
		t.Fatalf("%s runs the step", who)
	}
	// The last heartbeat was at most a third of a lease before, and may have been on its way.
	if took := time.Since(frozen); took < lease/3 {
		t.Errorf("b got the task %v after a last sent a message, the lease is %v", took, lease)
	}
	before := w.journal("vanishing")
	p.thaw()
	a.saw(durable.EventLost, "vanishing", 1)
	after := w.journal("vanishing")
	if len(before) != len(after) {
		t.Errorf("a's late commit made %v of the journal %v", after, before)
	}
	fns["b"].open("b")
	if got := result(t, h); got != "b did 7" {
		t.Errorf("the result is %q", got)
	}
	if n := fns["a"].runs.of("before") + fns["b"].runs.of("before"); n != 1 {
		t.Errorf("a recorded step ran %d times", n)
	}
	w.validJournal("vanishing")
	a.noProblems()
	b.noProblems()

	// It is back: with b gone, a serves again.
	b.stop()
	h = begin(w, fns["a"].Function, "again", 8)
	if got := result(t, h); got != "a did 8" {
		t.Errorf("the result is %q", got)
	}
}

// TestWorkerReconnects breaks a worker's connection while an answer to a commit is on its way. Within
// the lease it comes back, keeps its task, and the commit counts once.
func TestWorkerReconnects(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newProxy(t, w.addr)
	fns := newBlockers("a", "b")
	a := w.workAt(p.addr(), durable.WorkerOptions{Name: "a", Lease: longLease}, fns["a"])
	h := begin(w, fns["a"].Function, "kept", 9)
	receive(t, "the step to begin", fns["a"].begun)
	b := w.work(durable.WorkerOptions{Name: "b"}, fns["b"]) // ready to take it
	fns["b"].open("b")
	held := w.describe("kept").GetTask()

	// Broken between two commits: the task stays.
	p.cut()
	a.saw(durable.EventConnected, "", 2)
	if now := w.describe("kept").GetTask(); now.GetVersion() != held.GetVersion() || now.GetWorker() != held.GetWorker() {
		t.Errorf("after a reconnect the task is %v, it was %v", now, held)
	}

	// Broken between a commit and its answer: the commit is repeated, and answered once.
	p.deafen()
	fns["a"].open("a")
	until(t, "the commit to be applied", func() error {
		if n := len(w.journal("kept")); n < 1+2*3 {
			return fmt.Errorf("the journal has %d entries", n)
		}
		return nil
	})
	if e := w.describe("kept"); e.GetTask().GetVersion() != held.GetVersion() {
		t.Errorf("without an answer the task continued: %v", e)
	}
	p.heal()
	p.cut()
	if got := result(t, h); got != "a did 9" {
		t.Errorf("the result is %q", got)
	}
	counts := w.validJournal("kept")
	if counts["InvokeCompleted"] != 2 || counts["ExecutionCompleted"] != 1 {
		t.Errorf("the journal has %v", counts)
	}
	if a := fns["a"].runs.all(); a["before"] != 1 || a["blocked"] != 1 {
		t.Errorf("a's steps ran %v", a)
	}
	if n := a.count(durable.EventLost, "") + b.count(durable.EventTask, ""); n != 0 {
		t.Errorf("the task left a %d times", n)
	}
	a.noProblems()
}

// TestDrain stops a node under a worker that is in the middle of a step. The worker gets the drain message,
// keeps its task over the restart, and continues.
func TestDrain(t *testing.T) {
	t.Parallel()
	cfg := nodeConfig(t.TempDir())
	cfg.GRPCAddr = fixedAddr(t)
	n := startNode(t, cfg)
	w := connect(t, cfg.GRPCAddr)
	fns := newBlockers("a")
	a := w.work(durable.WorkerOptions{Name: "a", Lease: longLease}, fns["a"])
	h := begin(w, fns["a"].Function, "drained", 1)
	receive(t, "the step to begin", fns["a"].begun)
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	a.saw(durable.EventDraining, "", 1)
	a.saw(durable.EventDisconnected, "", 1)
	fns["a"].open("a") // it ends while there is no node
	startNode(t, cfg)
	if got := result(t, h); got != "a did 1" {
		t.Errorf("the result is %q", got)
	}
	if got := fns["a"].runs.all(); got["before"] != 1 || got["blocked"] != 1 {
		t.Errorf("steps ran %v", got)
	}
	if a.count(durable.EventLost, "") != 0 {
		t.Error("the task was lost")
	}
	w.validJournal("drained")
	a.stop()
}

// TestWorkerComesAfterStart starts an execution before any worker knows its function.
func TestWorkerComesAfterStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	fns := newBlockers("a")
	_, err := fns["a"].Start(soon(t), w.Client, "early", 3)
	wantReason(t, "start of an unknown function", err, "FUNCTION_UNKNOWN")
	if got := w.list(client.ListOptions{}); len(got) != 0 {
		t.Errorf("a refused start left %v", got)
	}
	h := begin(w, fns["a"].Function, "early", 3, durable.AllowUnknownFunction())
	if e := w.describe("early"); e.GetWakeSource() != "no worker" {
		t.Errorf("it waits for %q", e.GetWakeSource())
	}
	fns["a"].open("a")
	a := w.work(durable.WorkerOptions{Name: "a"}, fns["a"])
	if got := result(t, h); got != "a did 3" {
		t.Errorf("the result is %q", got)
	}
	a.stop()

	// Known from now on, also when no worker is there.
	begin(w, fns["a"].Function, "later", 3)

	// The same start again is the same execution; another one is a conflict.
	again, err := fns["a"].Start(soon(t), w.Client, "early", 3)
	if err != nil || again.Started().Created {
		t.Errorf("the same start again: %+v, %v", again, err)
	}
	if _, err = fns["a"].Start(soon(t), w.Client, "early", 4); err == nil {
		t.Error("a start with another input is no conflict")
	}
	wantReason(t, "another input", err, "ID_CONFLICT")
	_, err = durable.NewFunction("other", func(durable.Context, int) (int, error) { return 0, nil }).
		Start(soon(t), w.Client, "early", 3, durable.AllowUnknownFunction())
	wantReason(t, "another function", err, "ID_CONFLICT")
	if e := w.describe("early"); !proto.Equal(e, w.describe("early")) || e.GetFunction() != "blocker" {
		t.Errorf("conflicts changed the execution: %v", e)
	}
}
