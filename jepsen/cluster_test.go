package jepsen

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"perdure/internal/testkit"
)

// progress writes what a driver says into the test's log.
type progress struct{ t *testing.T }

func (p progress) Write(line []byte) (int, error) {
	p.t.Log(strings.TrimSpace(string(line)))
	return len(line), nil
}

// check fails the test for each violation.
func check(t *testing.T, report fmt.Stringer, violations []string, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Log(report)
	for _, v := range violations {
		t.Error(v)
	}
}

// faultsFor are faults by name, without those that this machine or a single node cannot have.
func faultsFor(t *testing.T, c *Cluster, names string) []Fault {
	t.Helper()
	all, err := FindFaults(names)
	if err != nil {
		t.Fatal(err)
	}
	var out []Fault
	for _, f := range all {
		switch {
		case f.Netns && c.wires == nil:
			t.Logf("%s is left out: %v", f.Name, CheckNetns())
		case len(c.nodes) == 1 && (f.Target == Follower || f.Target == LeaderAnd):
			t.Logf("%s is left out: a single node has no others", f.Name)
		default:
			out = append(out, f)
		}
	}
	return out
}

func TestFailover(t *testing.T) {
	c := sharedCluster(t)
	o := FailoverOptions{Faults: faultsFor(t, c, testkit.Choose("", "kill", "kill,cut")), Least: 100, Warm: time.Second, Hold: 2 * time.Second, Cool: time.Second / 2,
		Seed: *flagSeed, Out: progress{t}}
	o.Rounds, o.Load.Pause = len(o.Faults), 5*time.Millisecond
	r, err := Failover(t.Context(), c, o)
	check(t, r, r.Violations, err)
	for _, x := range r.Rounds {
		if x.Verdict.Acked < o.Least {
			t.Errorf("%s: only %d writes were acknowledged", x.Fault, x.Verdict.Acked)
		}
	}
}

func TestHistories(t *testing.T) {
	c := sharedCluster(t)
	o := HistoryOptions{Faults: faultsFor(t, c, testkit.Choose("", "isolate", "kill,pause,isolate")), Hold: 2 * time.Second, Cool: time.Second / 2,
		Seed: *flagSeed, Out: progress{t}}
	o.Histories = len(o.Faults)
	r, err := Histories(t.Context(), c, o)
	check(t, r, r.Violations, err)
}

func TestExecutions(t *testing.T) {
	c := sharedCluster(t)
	r, err := Executions(t.Context(), c, ExecutionOptions{N: testkit.Choose(0, 100, 200), Clients: 16, Faults: faultsFor(t, c, "kill,kill-worker"), Lease: 8 * time.Second, LongEvery: -1, Warm: time.Second,
		Hold: 2 * time.Second, Cool: time.Second, Timeout: 2 * time.Minute, Journals: testkit.Choose(0, 50, 100), Seed: *flagSeed, Out: progress{t}})
	check(t, r, r.Violations, err)
}

func TestRecoverKillAll(t *testing.T) {
	c := sharedCluster(t)
	all, err := FindRecoverCase("kill-all")
	if err != nil {
		t.Fatal(err)
	}
	r, err := Recover(t.Context(), c, all, RecoverOptions{Writes: testkit.Choose(0, 150, 1000), Seed: *flagSeed, Out: progress{t}})
	check(t, r, r.Violations, err)
}

// TestSteady is the one test with a cluster that -short runs: a history without a fault.
func TestSteady(t *testing.T) {
	t.Parallel()
	nodes := *flagNodes
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if testing.Short() {
		ctx, cancel = context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
	}
	c, err := startCluster(ctx, Options{Nodes: nodes})
	if testing.Short() && errors.Is(err, context.DeadlineExceeded) {
		t.Skip("the cluster was not built and ready within the 5 s that -short has for it")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := Histories(t.Context(), c, HistoryOptions{Warm: 500 * time.Millisecond, Hold: time.Millisecond, Cool: time.Millisecond, Seed: *flagSeed})
	check(t, r, r.Violations, err)
	if !testing.Short() { // which has no time to build the command line
		wrong, err := c.Verify(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range append(wrong, Evidence(c)...) {
			t.Error(text)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(c.Dir()); !*flagKeep && !os.IsNotExist(err) {
		t.Errorf("the cluster's folder after Close: %v", err)
	}
}

// TestAmnesiaIsFound breaks a promise for real: a node that is alone loses its disk. Every checker must see
// it; if one does not, its passes mean nothing.
func TestAmnesiaIsFound(t *testing.T) {
	testkit.NeedsLong(t, "the checkers' own tests find the same in recorded histories")
	t.Parallel()
	ctx := within(t, 5*time.Minute)
	c, err := startCluster(ctx, Options{Nodes: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	commits, err := StartCommits(ctx, c, CommitOptions{Clients: 4, Pause: 5 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	// A few promises that live long, so that each has operations before the loss and after it.
	registers, err := StartRegisters(ctx, c, RegisterOptions{Live: 3, OpsPerID: 10_000, Pause: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	// enough says that so many more writes were acknowledged, and so many more operations on the promises answered.
	enough := func(n, ops int) func(context.Context) error {
		n, ops = n+commits.Acked(), ops+registers.Answered()
		return func(context.Context) error {
			return errors.Join(fewer(commits.Acked(), n, "writes"), fewer(registers.Answered(), ops, "operations"))
		}
	}
	if err := waitFor(ctx, "200 writes", enough(200, 100)); err != nil {
		t.Fatal(err)
	}
	n := c.Nodes()[0]
	if err := errors.Join(n.Kill(), n.Wipe(), n.Start(), c.WaitReady(ctx)); err != nil {
		t.Fatal(err)
	}
	if err := waitFor(ctx, "more writes", enough(200, 100)); err != nil {
		t.Fatal(err)
	}
	writes, _ := commits.Stop()
	h := registers.Stop()
	if err := ReadWrites(ctx, c, writes); err != nil {
		t.Fatal(err)
	}
	if v := CheckCommits(writes); len(v.Lost) < 100 || len(v.Lost) == v.Acked {
		t.Errorf("%d of %d acknowledged writes are called lost, expected those before the loss", len(v.Lost), v.Acked)
	}
	if v := CheckRegister(h.Ops, time.Second, 0); v.OK() {
		t.Errorf("%d operations on %d promises pass", v.Ops, v.IDs)
	}
}
