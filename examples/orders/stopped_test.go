package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/embed"
)

// TestStoppedWorker freezes a worker in the middle of a step for longer than its lease. Another worker
// continues; when the frozen one thaws, none of its results counts.
func TestStoppedWorker(t *testing.T) {
	t.Parallel() // most of it is waiting
	for _, c := range []struct {
		step    string
		attempt uint32 // in which the step succeeds: a lost attempt that was announced counts
	}{
		{StepCharge, 2}, // with its intent recorded
		{StepPick, 1},   // without
		{StepBook, 1},   // in a child
	} {
		t.Run(c.step, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && c.step == StepBook {
				t.Skip("the child is the last of the slow worker's steps; the other two steps are frozen in the same way")
			}
			stopWorkerIn(t, c.step, c.attempt)
		})
	}
}

func stopWorkerIn(t *testing.T, step string, attempt uint32) {
	ctx, cancel := context.WithTimeout(t.Context(), testTime)
	defer cancel()
	dir := t.TempDir()
	node, err := embed.Start(ctx, embed.Config{
		DataDir: filepath.Join(dir, "data"), CheckInvariants: true, Logger: slog.New(slog.DiscardHandler),
		DiskReserve: 1 << 20, GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := node.Close(context.Background()); err != nil {
			t.Errorf("closing the node: %v", err)
		}
	})
	work := filepath.Join(dir, "run")
	common := []string{"--addr", node.GRPCAddr(), "--work", work, "--orders", shortBook(t, dir), "--concurrency", "1"}
	worker := func(name, latency, lease string) *process {
		return start(t, ctx, slices.Concat(common, []string{"--worker", "--name", name, "--latency", latency, "--lease", lease})...)
	}

	// The slow worker gets the order; the step in question takes it so long that it can be frozen in the middle
	// also on a busy machine, and its lease does not end before.
	slow := worker("slow", "1500ms", "4s")
	driver := start(t, ctx, slices.Concat(common, []string{"--driver", "--json"})...)
	effects := follow(t, work)
	var frozen Effect
	waitFor(t, ctx, "the step "+step, func() (bool, string) {
		all := effects.read()
		i := slices.IndexFunc(all, func(e Effect) bool { return e.Step == step })
		if i < 0 {
			return false, fmt.Sprintf("%d effects", len(all))
		}
		frozen = all[i]
		return true, ""
	})
	slow.signal(syscall.SIGSTOP)
	waitFor(t, ctx, "the worker to be stopped", func() (bool, string) { s := stateOf(t, slow); return s == "T", s })
	if n := len(effects.read()); effects.all[n-1] != frozen {
		t.Fatalf("the worker was frozen too late, after %v", effects.all[n-1])
	}

	// Another worker gets it when the lease has ended.
	worker("quick", "200ms", longLease)
	waitFor(t, ctx, "the other worker to repeat the step", func() (bool, string) {
		all := effects.read()
		return slices.ContainsFunc(all, func(e Effect) bool {
			return e.Promise == frozen.Promise && strings.HasPrefix(e.Worker, "quick-")
		}), all[len(all)-1].String()
	})
	slow.signal(syscall.SIGCONT)
	id := frozen.Order
	if step == StepBook {
		id, _, _ = strings.Cut(frozen.Promise, ".") // the child's id
	}
	waitFor(t, ctx, "the thawed worker to notice", func() (bool, string) {
		said := slow.stderr.String()
		return slices.ContainsFunc(strings.Split(said, "\n"), func(line string) bool {
			return strings.Contains(line, "execution lost") && strings.HasSuffix(line, " id="+id)
		}), said
	})

	// The outcome is the same, and of the step there are two effects but one result.
	s := driver.finish(ctx)
	if s.Shipped != 1 || s.Repeats != 1 {
		t.Errorf("%d shipped and %d repeats, expected one of each: %+v", s.Shipped, s.Repeats, s)
	}
	var of []string
	for _, e := range effects.read() {
		if e.Promise == frozen.Promise {
			of = append(of, fmt.Sprintf("%s %d", e.Worker[:strings.Index(e.Worker, "-")], e.Attempt))
		}
	}
	if want := []string{"slow 1", fmt.Sprintf("quick %d", attempt)}; !slices.Equal(of, want) {
		t.Errorf("effects of %s: %v, expected %v", frozen.Promise, of, want)
	}
	c, err := client.Dial(client.Options{Addrs: []string{node.GRPCAddr()}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	checkJournal(t, ctx, c, id, frozen.Promise, attempt)
	if id != frozen.Order {
		checkJournal(t, ctx, c, frozen.Order, id, 1)
	}
}

// shortBook writes a book with one order of one line, for the fewest steps there can be.
func shortBook(t *testing.T, dir string) string {
	t.Helper()
	book, err := LoadBook("", 1)
	if err != nil {
		t.Fatal(err)
	}
	book.Orders[0].Lines = book.Orders[0].Lines[:1]
	data, err := json.Marshal(book)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "orders.json")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// checkJournal checks that every operation of a journal was scheduled and completed once, and each of its
// attempts begun once; that the journal has one end, its last entry; and that promise has succeeded in
// the given attempt.
func checkJournal(t *testing.T, ctx context.Context, c *client.Client, id, promise string, attempt uint32) {
	t.Helper()
	count := map[string]int{}
	var last *perdurev1.Event
	for entry, err := range c.Journal(ctx, id) {
		if err != nil {
			t.Fatal(err)
		}
		if last.GetExecutionCompleted() != nil {
			t.Errorf("%s: entry %d comes after the end: %v", id, entry.GetSeq(), entry.GetEvent())
		}
		last = entry.GetEvent()
		switch e := last.GetKind().(type) {
		case *perdurev1.Event_InvokeScheduled:
			count["scheduled "+e.InvokeScheduled.GetPromiseId()]++
		case *perdurev1.Event_InvokeStarted:
			count[fmt.Sprintf("started %s %d", e.InvokeStarted.GetPromiseId(), e.InvokeStarted.GetAttempt())]++
		case *perdurev1.Event_InvokeCompleted:
			count["completed "+e.InvokeCompleted.GetPromiseId()]++
			if got := e.InvokeCompleted; got.GetPromiseId() == promise && (got.GetAttempt() != attempt || got.GetResult().GetFailure() != nil) {
				t.Errorf("%s: %s ended in attempt %d, expected %d: %v", id, promise, got.GetAttempt(), attempt, got.GetResult())
			}
		}
	}
	if last.GetExecutionCompleted() == nil {
		t.Errorf("%s: the journal ends with %v", id, last)
	}
	if count["completed "+promise] == 0 {
		t.Errorf("%s: %s has not completed: %v", id, promise, count)
	}
	for what, n := range count {
		if n != 1 {
			t.Errorf("%s: %d times %s", id, n, what)
		}
	}
}

// stateOf is a process's state as the kernel reports it: R, S, T, …
func stateOf(t *testing.T, p *process) string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(data), ") ")
	return after[:1]
}
