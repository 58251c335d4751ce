package jepsen

import (
	"testing"

	"perdure/internal/testkit"
)

// TestEnds tries cancels without a worker and with one that hangs, and restarts while the child's leader is paused.
func TestEnds(t *testing.T) {
	testkit.NeedsLong(t, "TestPausedFormerWorkerEffects and the machine's tests of restarts and graces")
	c := sharedCluster(t)
	r, err := Ends(t.Context(), c, EndsOptions{Seed: *flagSeed, Out: progress{t}})
	check(t, r, r.Violations, err)
}
