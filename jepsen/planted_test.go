package jepsen

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"perdure/internal/overlay"
	"perdure/internal/testkit"
)

// unconfirmedReads makes a leader answer reads without a confirmation that it still leads.
var unconfirmedReads = []overlay.Patch{{Package: "perdure/partition/group", File: "read.go",
	From: "if err := r.confirm(ctx); err != nil {",
	To:   "if r.serving() == nil {\n\t\t\tvar err error = r.NotServing()"}}

// staleVersions makes a server take an earlier version of a task for the present one.
var staleVersions = []overlay.Patch{{Package: "perdure/recovery", File: "ref.go",
	From: "if t.Version != ref.Version {", To: "if t.Version < ref.Version {"}}

// lateCluster is a cluster in network namespaces of a server with a bug planted in it, or none.
func lateCluster(ctx context.Context, t *testing.T, bug []overlay.Patch) *Cluster {
	t.Helper()
	if err := CheckNetns(); err != nil {
		testkit.Lacks(t, "network namespaces", err)
	}
	return plantedCluster(ctx, t, Options{Netns: true}, bug)
}

// plantedCluster is a cluster of a server with a bug planted in it, or none.
func plantedCluster(ctx context.Context, t *testing.T, o Options, bug []overlay.Patch) *Cluster {
	t.Helper()
	o.Seed, o.Keep = *flagSeed, *flagKeep
	var err error
	if bug == nil {
		o.Binary, err = binary(ctx)
	} else {
		var dir string
		if dir, err = os.MkdirTemp("", "perdure-jepsen-planted-"); err == nil {
			t.Cleanup(func() { os.RemoveAll(dir) })
			o.Binary, err = Build(ctx, dir, BuildOptions{Patches: bug})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := c.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	return c
}

// plantedTimeout bounds a test that builds a server first, on a machine that builds others.
const plantedTimeout = 10 * time.Minute

// TestLateAnswers: late answers confirm no read.
func TestLateAnswers(t *testing.T) {
	testkit.NeedsLong(t, "it cuts a cluster twice; the rule of reads has tests in partition")
	t.Parallel()
	ctx := within(t, plantedTimeout)
	r, err := Late(ctx, lateCluster(ctx, t, nil), LateOptions{Rounds: 2, Seed: *flagSeed, Out: progress{t}})
	check(t, r, r.Violations, err)
}

// TestUnconfirmedReadsAreFound plants reads without a confirmation of leadership: the driver must see a stale read.
func TestUnconfirmedReadsAreFound(t *testing.T) {
	testkit.NeedsLong(t, "it builds a server with the bug planted")
	t.Parallel()
	ctx := within(t, plantedTimeout)
	c := lateCluster(ctx, t, unconfirmedReads)
	for round := range 8 {
		r, err := Late(ctx, c, LateOptions{Rounds: 1, Seed: *flagSeed + uint64(round), Out: progress{t}})
		if err != nil {
			t.Fatal(err)
		}
		if r.StaleReads > 0 {
			return
		}
	}
	t.Error("8 rounds, and no stale read was found")
}

// TestStaleVersionsAreFound plants former holders that act, in the server alone: the checker has the rules as they are.
func TestStaleVersionsAreFound(t *testing.T) {
	testkit.NeedsLong(t, "it builds a server with the bug planted; the checker finds the same in histories that a test makes up")
	t.Parallel()
	ctx := within(t, plantedTimeout)
	c := plantedCluster(ctx, t, Options{}, staleVersions)
	for round := range 8 {
		r, err := ResonateHistories(ctx, c, ResonateHistoryOptions{Seed: *flagSeed + uint64(round), Out: progress{t}})
		if err != nil {
			t.Fatal(err)
		}
		if r.Refuted > 0 {
			return
		}
	}
	t.Error("8 rounds, and no former holder was found")
}

// TestPatchesFit: the planted bugs still fit the sources, also where they are not tried.
func TestPatchesFit(t *testing.T) {
	if _, err := overlay.Write(within(t, time.Minute), ".", t.TempDir(), slices.Concat(unconfirmedReads, staleVersions)); err != nil {
		t.Error(err)
	}
}
