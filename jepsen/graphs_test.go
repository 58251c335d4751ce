package jepsen

import (
	"slices"
	"testing"
	"time"

	"perdure/internal/testkit"
)

// TestGraphs has a cluster of its own, whose nodes find half-done runs on their disks.
func TestGraphs(t *testing.T) {
	testkit.NeedsLong(t, "it breaks a cluster of its own; the tests of rpc and examples/graph run graphs to their ends")
	t.Parallel()
	t.Logf("reproduce with -jepsen.seed=%d", *flagSeed)
	c, err := startCluster(t.Context(), Options{Nodes: *flagNodes, Args: append(slices.Clone(SavedOften), "--snapshot-threshold=1")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Run("drawn", func(t *testing.T) { drawnGraphs(t, c) })
	t.Run("crash", func(t *testing.T) { graphCrash(t, c) })
	t.Run("speed", func(t *testing.T) { graphSpeed(t, c) })
}

func drawnGraphs(t *testing.T, c *Cluster) {
	r, err := Graphs(t.Context(), c, GraphOptions{N: 16, MaxNodes: 40, Active: 8, Faults: faultsFor(t, c, "kill-leader,kill-worker"), Lease: time.Second,
		Warm: time.Second / 2, Hold: time.Second, Cool: time.Second / 2, Bound: 2 * time.Minute, Seed: *flagSeed, Out: progress{t}})
	if err != nil {
		t.Fatal(err)
	}
	check(t, r, r.Violations, err)
	if r.Verdict.Runs != 16 || r.Verdict.Calls == 0 || r.Faults["kill-worker"] == 0 || r.Faults["kill-leader"] == 0 {
		t.Errorf("16 runs under two faults: %+v", r)
	}
}

func graphCrash(t *testing.T, c *Cluster) {
	if len(c.Nodes()) == 1 {
		t.Skip("the example is about three processes, of which one takes over from another")
	}
	r, err := GraphCrash(t.Context(), c, "diamond", progress{t})
	if err != nil {
		t.Fatal(err)
	}
	check(t, r, r.Violations, err)
	for i, want := range [][]string{{"completed", "running", "completed", "pending"}, {"completed", "failed, not observed", "running", "pending"}} {
		stages := r.Stories[i].Stages
		if len(stages) != 6 || !slices.Equal(words(stages[3].Status), want) || !slices.Equal(words(stages[4].Status), want) {
			t.Errorf("story %d: %d stages, expected %q in the fourth and fifth", i+1, len(stages), want)
		}
	}
}

func graphSpeed(t *testing.T, c *Cluster) {
	r, err := GraphSpeed(t.Context(), c, GraphSpeedOptions{Nodes: []int{500}, Width: 50, Out: progress{t}})
	if err != nil {
		t.Fatal(err)
	}
	check(t, r, r.Violations, err)
	if p := r.Graphs[0]; len(p.Rates) != 10 || p.Rate <= 0 {
		t.Errorf("no pace: %+v", p)
	}
}
