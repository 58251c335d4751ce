package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"perdure/client"
	"perdure/embed"
	"perdure/examples/internal/cluster"
)

// newCluster is a cluster of one node in this process, with its id.
func newCluster(t *testing.T, ctx context.Context) (addr, id string) {
	t.Helper()
	node, err := embed.Start(ctx, embed.Config{
		DataDir: t.TempDir(), CheckInvariants: true, Logger: slog.New(slog.DiscardHandler),
		DiskReserve: 1 << 20, GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := node.Close(context.Background()); err != nil {
			t.Errorf("closing the node: %v", err)
		}
	})
	id, _, err = cluster.Which(ctx, client.Options{Addrs: []string{node.GRPCAddr()}})
	if err != nil {
		t.Fatal(err)
	}
	return node.GRPCAddr(), id
}

// TestFolders runs the example on a node of its own, on a cluster, and on the cluster that comes after that one
// was wiped, all from one folder, as a user does: no run meets the files of another.
func TestFolders(t *testing.T) {
	t.Parallel() // most of it is waiting
	ctx, cancel := context.WithTimeout(t.Context(), testTime)
	defer cancel()
	dir := t.TempDir()
	run := func(args ...string) (Summary, string) {
		t.Helper()
		p := startIn(t, ctx, dir, append(args, "--only", "12", "--pick-timeout", "300ms", "--latency", "1ms", "--lease", longLease, "--json")...)
		s := p.finish(ctx)
		_, orders, _ := strings.Cut(p.stderr.String(), ", orders ")
		first, _, _ := strings.Cut(orders, " to ")
		return s, first
	}
	expect := func(what string, s Summary, done int) {
		t.Helper()
		if s.Orders != 12 || s.AlreadyDone != done || s.Repeats != 0 {
			t.Errorf("%s: %d of %d orders were done before, expected %d; %d repeats", what, s.AlreadyDone, s.Orders, done, s.Repeats)
		}
	}
	addr, id := newCluster(t, ctx)
	folder := filepath.Join(dir, folderOf(id, client.DefaultNamespace))

	s, _ := run()
	expect("a node of its own", s, 0)
	s, first := run("--addr", addr)
	expect("then a cluster", s, 0)
	s, again := run("--addr", addr)
	expect("the cluster again", s, 12)
	if first != again {
		t.Errorf("the run's first order was %s, and is %s", first, again)
	}
	if n := len((&follower{t: t, path: filepath.Join(folder, effectsFile)}).read()); n == 0 {
		t.Errorf("nothing has happened in %s", folder)
	}
	s, _ = run()
	expect("the node of its own again", s, 12)

	s, again = run("--addr", addr, "--fresh")
	expect("the cluster, and a new run", s, 0)
	if first == again {
		t.Errorf("the new run is the old one: %s", first)
	}
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	s, _ = run("--addr", addr)
	expect("the cluster, and the folder is lost", s, 0)
	s, _ = run("--addr", addr, "--namespace", "other")
	expect("another namespace", s, 0)

	// A cluster that was wiped is another one at the same address; what matters is that it has another id.
	wiped, _ := newCluster(t, ctx)
	s, _ = run("--addr", wiped)
	expect("the wiped cluster", s, 0)
	p := startIn(t, ctx, dir, "--addr", wiped, "--work", folder)
	if code := p.exit(ctx); code != exitFailed || !strings.Contains(p.stderr.String(), "on another cluster ("+id) {
		t.Errorf("the folder of the former cluster: exit %d, said %q", code, p.stderr.String())
	}
	s, _ = run("--addr", wiped, "--work", folder, "--fresh")
	expect("the folder of the former cluster, made again", s, 0)
}

func TestClaim(t *testing.T) {
	mine := func() Claim { return Claim{Cluster: "c1", Namespace: "default", Run: newRun()} }
	dir := t.TempDir()
	var runs [8]string
	var wait sync.WaitGroup
	for i := range runs {
		wait.Go(func() {
			var err error
			if runs[i], err = claim(dir, mine()); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	for _, run := range runs {
		if run != runs[0] || run == "" {
			t.Errorf("processes that share a folder got the runs %q", runs)
			break
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v: the folder holds %v, and not the claim alone", err, entries)
	}
	refused := func(what string, c Claim, says string) {
		t.Helper()
		if run, err := claim(dir, c); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: run %q, %v", what, run, err)
		}
	}
	other := mine()
	other.Cluster = "c2"
	refused("another cluster", other, "another cluster (c1; this one is c2)")
	other = mine()
	other.Namespace = "mine"
	refused("another namespace", other, `in the namespace "default", not "mine"`)

	// Without a claim, the world's files are of an unknown run.
	w, err := OpenWorld(dir, nil, "shop-1", 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if run, err := claim(dir, mine()); err != nil || run != runs[0] {
		t.Errorf("the run continues as %q, %v; it was %q", run, err, runs[0])
	}
	if err := os.Remove(filepath.Join(dir, claimName)); err != nil {
		t.Fatal(err)
	}
	refused("no claim", mine(), "--fresh")
	if err := removeRun(dir); err != nil {
		t.Fatal(err)
	}
	if run, err := claim(dir, mine()); err != nil || run == "" || run == runs[0] {
		t.Errorf("after a removal the run is %q, %v; it was %q", run, err, runs[0])
	}
}

// TestNoNode connects to an address without a cluster.
func TestNoNode(t *testing.T) {
	t.Parallel() // it is all waiting
	ctx, cancel := context.WithTimeout(t.Context(), testTime)
	defer cancel()
	dir := t.TempDir()
	p := startIn(t, ctx, dir, "--addr", noNode)
	code := p.exit(ctx)
	said := p.stderr.String()
	if code != exitFailed || strings.Count(said, "\n") != 1 || !strings.HasPrefix(said, "orders: no node answers at 127.0.0.1:1 (") {
		t.Errorf("exit %d, said %q", code, said)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v: it has left %v", err, left)
	}
}

// TestLostInbox has the warehouse called about an order that its inbox does not have.
func TestLostInbox(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTime)
	defer cancel()
	dir := t.TempDir()
	var lines strings.Builder
	for i, e := range []Effect{
		{Order: "known", Step: StepPick, Outcome: outcomeDone, Detail: "BER1"},
		{Order: "silent", Step: StepPick, Outcome: outcomeDone, Detail: silentWarehouse},
		{Order: "silent", Step: StepCall, Outcome: outcomeRefused, Detail: "no answer"},
		{Order: "asked", Step: StepPick, Outcome: outcomeDone, Detail: "BER1"},
		{Order: "asked", Step: StepCall, Outcome: outcomeDone, Detail: "BER1 is at it"},
		{Order: "lost", Step: StepCall, Outcome: outcomeDone, Detail: "BER1 is at it"},
		{Order: "last", Step: StepPick, Outcome: outcomeDone, Detail: "BER1"},
	} {
		e.Promise, e.Attempt, e.Worker, e.Currency = fmt.Sprint("p", i), 1, "shop-1", "EUR"
		lines.WriteString(e.String() + "\n")
	}
	if err := os.WriteFile(filepath.Join(dir, effectsFile), []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	list := make(chan pick)
	var got []string
	reading, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() {
		done <- (&Warehouse{dir: dir, delay: time.Second}).readInbox(reading, map[string]bool{"known": true}, list)
	}()
	for !slices.Contains(got, "last") {
		select {
		case p := <-list:
			got = append(got, p.order)
		case <-ctx.Done():
			t.Fatalf("on the list: %q", got)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if want := []string{"asked", "lost", "last"}; !slices.Equal(got, want) {
		t.Errorf("on the list: %q, expected %q", got, want)
	}
}
