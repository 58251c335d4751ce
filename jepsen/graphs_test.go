package jepsen

import (
	"slices"
	"testing"
	"time"
)

func TestGraphs(t *testing.T) {
	c := sharedCluster(t)
	r, err := Graphs(t.Context(), c, GraphOptions{N: 24, MaxNodes: 40, Active: 8, Faults: faultsFor(t, c, "kill-leader,kill-worker"), Lease: time.Second,
		Warm: time.Second / 2, Hold: time.Second, Cool: time.Second / 2, Bound: 30 * time.Second, Seed: *flagSeed, Out: progress{t}})
	if err != nil {
		t.Fatal(err)
	}
	judge(t, r, r.Violations, err)
	if r.Verdict.Runs != 24 || r.Verdict.Calls == 0 || r.Faults["kill-worker"] == 0 || r.Faults["kill-leader"] == 0 {
		t.Errorf("24 runs under two faults: %+v", r)
	}
}

func TestGraphCrash(t *testing.T) {
	c := sharedCluster(t)
	if len(c.Nodes()) == 1 {
		t.Skip("the example is about three processes, of which one takes over from another")
	}
	r, err := GraphCrash(t.Context(), c, "diamond", progress{t})
	if err != nil {
		t.Fatal(err)
	}
	judge(t, r, r.Violations, err)
	for i, want := range [][]string{{"completed", "running", "completed", "pending"}, {"completed", "failed, not observed", "running", "pending"}} {
		stages := r.Stories[i].Stages
		if len(stages) != 5 || !slices.Equal(words(stages[3].Status), want) {
			t.Errorf("recovered: %q, expected %q", words(stages[3].Status), want)
		}
	}
}

func TestGraphSpeed(t *testing.T) {
	c := sharedCluster(t)
	r, err := GraphSpeed(t.Context(), c, GraphSpeedOptions{Nodes: []int{500}, Width: 50, Out: progress{t}})
	if err != nil {
		t.Fatal(err)
	}
	judge(t, r, r.Violations, err)
	if p := r.Graphs[0]; len(p.Rates) != 10 || p.Rate <= 0 {
		t.Errorf("no pace: %+v", p)
	}
}
