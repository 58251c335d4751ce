package jepsen

import (
	"testing"
	"time"

	"perdure/internal/testkit"
)

// TestResonateHistories: whatever is broken, some order of what the clients asked explains all answers by the rules.
func TestResonateHistories(t *testing.T) {
	c := sharedCluster(t)
	o := ResonateHistoryOptions{Faults: faultsFor(t, c, testkit.Choose("", "kill", ResonateFaults)), Hold: time.Second, Seed: *flagSeed, Out: progress{t}}
	o.Rounds = len(o.Faults)
	r, err := ResonateHistories(t.Context(), c, o)
	check(t, r, r.Violations, err)
	if r.Disturbed == 0 {
		t.Error("no history has a request during a fault")
	}
}

// TestTamperedRun: a run whose answers are changed before the check fails, and says how many were refuted.
func TestTamperedRun(t *testing.T) {
	c := sharedCluster(t)
	o := ResonateHistoryOptions{Tamper: "all", Hold: time.Millisecond, Load: ResonateOptions{Live: 2}, Seed: *flagSeed + 1, Out: progress{t}}
	r, err := ResonateHistories(t.Context(), c, o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Tampered == 0 || r.Refuted != r.Tampered || len(r.Violations) == 0 {
		t.Errorf("%d histories tampered with, %d refuted, violations %q", r.Tampered, r.Refuted, r.Violations)
	}
	o.Tamper = "unknown"
	if _, err := ResonateHistories(t.Context(), c, o); err == nil {
		t.Error("an unknown change is taken")
	}
}
