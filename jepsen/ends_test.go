package jepsen

import (
	"testing"
)

// TestEnds tries cancels without a worker and with one that hangs, and restarts while the child's leader is paused.
func TestEnds(t *testing.T) {
	c := sharedCluster(t)
	r, err := Ends(t.Context(), c, EndsOptions{Seed: *flagSeed, Out: progress{t}})
	check(t, r, r.Violations, err)
}
