package jepsen

import (
	"testing"
)

// TestUpgrade has a cluster of its own, whose nodes run two versions.
func TestUpgrade(t *testing.T) {
	if testing.Short() {
		t.Skip("building two servers and restarting a cluster takes more than the few seconds of -short")
	}
	t.Parallel()
	t.Logf("reproduce with -jepsen.seed=%d", *flagSeed)
	newer, err := binary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	older, err := Build(t.Context(), t.TempDir(), BuildOptions{Previous: true})
	if err != nil {
		t.Fatal(err)
	}
	c, err := Start(t.Context(), Options{Binary: older, Seed: *flagSeed, Keep: *flagKeep})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := c.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := Upgrade(t.Context(), c, UpgradeOptions{Newer: newer, Executions: 8, Graphs: 3, MaxNodes: 12, Each: 20, Seed: *flagSeed, Out: progress{t}})
	if err != nil {
		t.Fatal(err)
	}
	check(t, r, r.Violations, err)
	if r.Restarts != 9 || r.To <= r.From || r.Executions == 0 || r.Verdict.Runs == 0 || r.TooEarly == "" || r.Refused == "" {
		t.Errorf("an upgrade, back, and again: %+v", r)
	}
}
