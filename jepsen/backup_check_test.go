package jepsen

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// soundRestore is a restored cluster without a fault: one execution that had ended, one that waits, one transfer.
func soundRestore() *RestoreEvidence {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	note := func(s int, kind NoteKind, id, step, proof string) StepNote {
		return StepNote{at(s), "w", 1, kind, id, id + "." + step, proof}
	}
	return &RestoreEvidence{
		Cut: 10 * time.Second,
		Executions: []BackedExecution{
			{Execution: Execution{ID: "x-2", Acked: 1 * time.Second, Done: 2 * time.Second, Result: "x-2|a|b|c", Found: "x-2|a|b|c", Words: -1},
				WordAckedAt: -1, Restored: "x-2|a|b|c"},
			{Execution: Execution{ID: "x-3", Acked: 3 * time.Second, Done: -1, Found: "x-3|d|e|word|f|delivered|target_not_found|delivered", Box: "box",
				Word: "word", WordSent: 1, Words: 1, Sent: []int{1, 1}}, WordAckedAt: 4 * time.Second, Restored: NotFinished, RestoredWords: 1},
		},
		Transfers: []BackedTransfer{{ID: "t1", Acked: time.Second, Done: 2 * time.Second, Moved: true, Found: true, Ended: true, FoundMoved: true}},
		Ledgers:   map[string]ledger{"a": {true, 70, []entry{{"t1", "b", -30}}}, "b": {true, 130, []entry{{"t1", "a", 30}}}},
		Boxes:     map[string]map[string]int{"box": {sentPayload("x-3", 0): 1, sentPayload("x-3", 1): 1}},
		Completed: map[string]bool{"x-3.reserve": true},
		Before: []StepNote{note(1, NoteRan, "x-2", "reserve", "a"), note(1, NoteRan, "x-2", "charge", "b"), note(1, NoteRan, "x-2", "ship", "c"),
			note(3, NoteRan, "x-3", "reserve", "d")},
		After: []StepNote{note(20, NoteAct, "x-3", "charge", ""), note(21, NoteRan, "x-3", "charge", "e"),
			note(22, NoteAct, "x-3", "ship", ""), note(23, NoteRan, "x-3", "ship", "f")},
	}
}

// The checker of restores notices each thing that a restore can lose, double or do again.
func TestCheckRestore(t *testing.T) {
	if wrong := CheckRestore(soundRestore()); len(wrong) > 0 {
		t.Fatalf("a sound restore: %q", wrong)
	}
	for what, change := range map[string]func(ev *RestoreEvidence){
		"lost: x-3 was acknowledged": func(ev *RestoreEvidence) { ev.Executions[1].Restored, ev.Executions[1].Found = Missing, Missing },
		"lost: x-2 had the result":   func(ev *RestoreEvidence) { ev.Executions[0].Restored = NotFinished },
		"lost: x-3: its signal":      func(ev *RestoreEvidence) { ev.Executions[1].RestoredWords = 0 },
		"at the end is (not finished)": func(ev *RestoreEvidence) {
			ev.Executions[1].Found = NotFinished
		},
		"wrong: x-2 was restored with": func(ev *RestoreEvidence) { ev.Executions[0].Found = "x-2|a|b|g" },
		"and no such steps ran":        func(ev *RestoreEvidence) { ev.Before = ev.Before[:3] },
		"signal 1 was delivered 2 times": func(ev *RestoreEvidence) {
			ev.Boxes["box"][sentPayload("x-3", 1)] = 2
		},
		"its sender is not there": func(ev *RestoreEvidence) { ev.Boxes["box"][sentPayload("x-9", 0)] = 1 },
		"sent 1 times and delivered 2 times": func(ev *RestoreEvidence) {
			ev.Executions[1].Words = 2
		},
		"bank: a: t1 is booked twice": func(ev *RestoreEvidence) {
			ev.Ledgers["a"] = ledger{true, 40, slices.Repeat(ev.Ledgers["a"].Lines, 2)}
		},
		"bank: 170 in all accounts": func(ev *RestoreEvidence) {
			ev.Ledgers["a"] = ledger{true, 40, slices.Repeat(ev.Ledgers["a"].Lines, 2)}
		},
		"moved is true, and 4 accounts": func(ev *RestoreEvidence) {
			for account, l := range maps.Clone(ev.Ledgers) {
				ev.Ledgers[account] = ledger{true, l.Balance, slices.Repeat(l.Lines, 2)}
			}
		},
		"t1 was acknowledged before": func(ev *RestoreEvidence) { ev.Transfers[0].Found = false },
		"t1 was restored and did not": func(ev *RestoreEvidence) {
			ev.Transfers[0].Ended = false
		},
		"ran again: x-3.charge of x-3 acted": func(ev *RestoreEvidence) { ev.Completed["x-3.charge"] = true },
		"ran again: x-2.ship of x-2 acted": func(ev *RestoreEvidence) {
			ev.After = append(ev.After, StepNote{time.Unix(30, 0), "w", 1, NoteAct, "x-2", "x-2.ship", ""})
		},
	} {
		ev := soundRestore()
		change(ev)
		if wrong := CheckRestore(ev); !strings.Contains(strings.Join(wrong, "\n"), what) {
			t.Errorf("%s: found %q", what, wrong)
		}
	}
}

// An execution acknowledged after the backup began may be missing from it, but only as a whole.
func TestCheckRestoreAllowsWhatCameAfterTheCut(t *testing.T) {
	ev := soundRestore()
	ev.Cut = 0
	ev.Executions, ev.Transfers, ev.After, ev.Boxes, ev.Ledgers = ev.Executions[:1], nil, nil, nil, nil
	ev.Executions[0].Restored, ev.Executions[0].Found = Missing, Missing
	if wrong := CheckRestore(ev); len(wrong) > 0 {
		t.Fatalf("found %q", wrong)
	}
}
