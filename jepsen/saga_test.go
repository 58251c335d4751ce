package jepsen

import (
	"strings"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/durable"
	"perdure/internal/testkit"
)

// TestSagas has sagas undone while workers and leaders are killed and held up.
func TestSagas(t *testing.T) {
	c := sharedCluster(t)
	r, err := Sagas(t.Context(), c, SagaOptions{N: testkit.Choose(0, 30, 150), Clients: 16, Faults: faultsFor(t, c, "kill-worker,kill-leader"),
		Hold: 2 * time.Second, Seed: *flagSeed, Out: progress{t}})
	check(t, r, r.Violations, err)
}

// TestSagaPoints has a worker kill itself at every point of a saga that completes, fails or is cancelled.
func TestSagaPoints(t *testing.T) {
	testkit.NeedsLong(t, "TestSagas kills workers at random, TestSagaSurvivesCrashes at every commit")
	c := sharedCluster(t)
	r, err := Sagas(t.Context(), c, SagaOptions{Points: true, N: 1, Clients: 16, Prefix: "points", Seed: *flagSeed, Out: progress{t}})
	check(t, r, r.Violations, err)
}

// TestSagaBugsAreFound plants bugs in the function that a real worker runs: the driver must name each.
func TestSagaBugsAreFound(t *testing.T) {
	testkit.NeedsLong(t, "TestCheckSaga finds the same in records that it changes")
	c := sharedCluster(t)
	for bug, want := range map[string]string{bugSkip: "charge is left", bugForward: "undone in the order", bugTwice: "undone were"} {
		t.Run(bug, func(t *testing.T) {
			r, err := Sagas(t.Context(), c, SagaOptions{N: 30, Clients: 16, Rounds: -1, Bug: bug, Prefix: "saga-" + bug, Seed: *flagSeed})
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(strings.Join(r.Violations, "\n"), want) {
				t.Errorf("%d violations, none says %q: %q", len(r.Violations), want, r.Violations)
			}
		})
	}
}

// undoneSaga is a saga that was cancelled when the undo of its third step was done in line. The result of that step is
// unknown. Its first undo was repeated, and so was, too late, an effect.
func undoneSaga() *sagaRecord {
	note := func(kind NoteKind, key, proof string) StepNote {
		return StepNote{Kind: kind, Promise: key, Proof: proof}
	}
	cancelled := perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED
	return &sagaRecord{In: sagaInput{ID: "x", Fail: failAfter, At: 2}, Cancel: true, Answer: cancelled, Status: cancelled,
		Failure: durable.TypeCancelled, Reason: sagaReason, Cleanup: "x:c", CleanupTook: time.Second,
		CleanupStatus: perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED,
		Steps:         []sagaStep{{Name: "reserve", Key: "x:0", Proof: "p"}, {Name: "charge", Key: "x:2", Proof: "q"}, {Name: "book", Key: "x:4"}},
		Undone:        []string{"book"}, Cleaned: []string{"charge", "reserve"},
		Ledger: []StepNote{note(NoteApply, "x:0", "o"), note(NoteApply, "x:0", "p"), note(NoteApply, "x:2", "q"), note(NoteUndo, "x:4", "?"),
			note(NoteApply, "x:4", "r"), note(NoteUndo, "x:2", "q"), note(NoteUndo, "x:4", "?"), note(NoteUndo, "x:0", "p")}}
}

// The check of a saga notices each thing that can be wrong.
func TestCheckSaga(t *testing.T) {
	if wrong := undoneSaga().check(); len(wrong) > 0 {
		t.Fatalf("a sound saga: %q", wrong)
	}
	for want, change := range map[string]func(rec *sagaRecord){
		"its client: lost": func(rec *sagaRecord) { rec.Err = "lost" },
		"its client was answered EXECUTION_STATUS_COMP": func(rec *sagaRecord) { rec.Answer = rec.CleanupStatus },
		"it completed, must fail":                       func(rec *sagaRecord) { rec.Status = rec.CleanupStatus },
		"it failed with \"cancelled\"":                  func(rec *sagaRecord) { rec.Status = perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED },
		"it has not ended":                              func(rec *sagaRecord) { rec.Status = perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLING },
		"reason \"\"":                                   func(rec *sagaRecord) { rec.Reason = "" },
		"its clean-up is EXECUTION_STATUS_CANCELLED":    func(rec *sagaRecord) { rec.CleanupStatus = rec.Status },
		"its clean-up took":                             func(rec *sagaRecord) { rec.CleanupTook += sagaCleanup },
		"in line and [\"reserve\"]":                     func(rec *sagaRecord) { rec.Cleaned = rec.Cleaned[1:] },
		"in the clean-up, must be":                      func(rec *sagaRecord) { rec.Cleaned = []string{"reserve", "charge"} },
		"[\"book\" \"charge\" \"reserve\"] in the":      func(rec *sagaRecord) { rec.Cleaned = append(rec.Undone, rec.Cleaned...) },
		"apply of x:9, whose beginning no journal":      func(rec *sagaRecord) { rec.Ledger[1].Promise = "x:9" },
		"undo of x:9, whose beginning no journal":       func(rec *sagaRecord) { rec.Ledger[6].Promise = "x:9" },
		"charge was undone before its effect":           func(rec *sagaRecord) { rec.Ledger[2], rec.Ledger[5] = rec.Ledger[5], rec.Ledger[2] },
		"charge is recorded as done, and had no effect": func(rec *sagaRecord) { rec.Ledger = append(rec.Ledger[:2], rec.Ledger[3:]...) },
		"the undo of charge knows the result":           func(rec *sagaRecord) { rec.Ledger[5].Proof = unknownProof },
		"the undo of book knows the result":             func(rec *sagaRecord) { rec.Ledger[3].Proof = "r" },
		"reserve is left":                               func(rec *sagaRecord) { rec.Ledger = rec.Ledger[:7] },
		"undone in the order [\"book\" \"reserve\"":     func(rec *sagaRecord) { rec.Ledger[5], rec.Ledger[7] = rec.Ledger[7], rec.Ledger[5] },
		"book was refused, and had an effect": func(rec *sagaRecord) {
			rec.Steps[2].Refused, rec.Ledger[3], rec.Ledger[4] = true, rec.Ledger[4], rec.Ledger[3]
		},
	} {
		rec := undoneSaga()
		change(rec)
		if wrong := strings.Join(rec.check(), "\n"); !strings.Contains(wrong, want) {
			t.Errorf("%s: found %q", want, wrong)
		}
	}
}
