package jepsen

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/durable"
)

// sagaRecord is all that is known of a saga when it has ended.
type sagaRecord struct {
	In sagaInput
	// Cancel says that its client cancelled it. Answer is what the client heard, Err why it heard nothing.
	Cancel bool
	Answer client.Status
	Err    string
	// Status, Failure and Reason are what the cluster says; Failure is a type.
	Status          client.Status
	Failure, Reason string
	// Cleanup is the id of the clean-up; empty for none.
	Cleanup       string
	CleanupStatus client.Status
	CleanupTook   time.Duration
	// Steps are those whose beginning the journal has. Undone and Cleaned are the undos that the two journals
	// have as done, in order. Wrong is what is wrong with a journal in itself.
	Steps           []sagaStep
	Undone, Cleaned []string
	Wrong           []string
	// Ledger is what the workers did outside, in the order of time.
	Ledger []StepNote
}

// sagaStep is a step of a journal.
type sagaStep struct {
	Name, Key string
	// Proof is its result; empty when none is recorded. Refused: it failed for good, and had no effect.
	Proof   string
	Refused bool
}

// answer notes what the client heard, once or again.
func (rec *sagaRecord) answer(status client.Status) {
	if rec.Answer != 0 && rec.Answer != status {
		rec.Wrong = append(rec.Wrong, fmt.Sprintf("the client was answered %s, then %s", rec.Answer, status))
	}
	rec.Answer = status
}

// readJournal takes the steps and the undos from the saga's journal.
func (rec *sagaRecord) readJournal(entries []*perdurev1.JournalEntry) {
	rec.Undone = rec.read(entries)
	if rec.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED { // whose operations may be open
		if wrong := CheckJournal(entries); wrong != "" {
			rec.Wrong = append(rec.Wrong, wrong)
		}
	}
}

// readCleanup takes the undos from the clean-up's journal.
func (rec *sagaRecord) readCleanup(entries []*perdurev1.JournalEntry) {
	steps := len(rec.Steps)
	rec.Cleaned = rec.read(entries)
	if len(rec.Steps) > steps {
		rec.Wrong = append(rec.Wrong, fmt.Sprintf("the clean-up began the step %s", rec.Steps[steps].Name))
		rec.Steps = rec.Steps[:steps]
	}
	if wrong := CheckJournal(entries); wrong != "" {
		rec.Wrong = append(rec.Wrong, "the clean-up's journal: "+wrong)
	}
}

// read adds a journal's steps, and returns its undos that are done.
func (rec *sagaRecord) read(entries []*perdurev1.JournalEntry) (undone []string) {
	names := map[string]string{}
	for _, entry := range entries {
		if s := entry.GetEvent().GetInvokeScheduled(); s != nil {
			names[s.GetPromiseId()] = s.GetFunctionName()
			if !strings.HasPrefix(s.GetFunctionName(), "undo ") {
				rec.Steps = append(rec.Steps, sagaStep{Name: s.GetFunctionName(), Key: s.GetPromiseId()})
			}
		}
		c := entry.GetEvent().GetInvokeCompleted()
		if c == nil {
			continue
		}
		failure := c.GetResult().GetFailure()
		if name, undo := strings.CutPrefix(names[c.GetPromiseId()], "undo "); undo {
			if failure != nil {
				rec.Wrong = append(rec.Wrong, fmt.Sprintf("the undo of %s failed: %s", name, failure.GetMessage()))
			}
			undone = append(undone, name)
			continue
		}
		for i := range rec.Steps {
			s := &rec.Steps[i]
			if s.Key != c.GetPromiseId() {
				continue
			}
			if s.Refused = failure.GetNonRetryable(); failure == nil {
				if err := json.Unmarshal(c.GetResult().GetValue(), &s.Proof); err != nil || s.Proof == "" {
					rec.Wrong = append(rec.Wrong, fmt.Sprintf("the result of %s is %q", s.Name, c.GetResult().GetValue()))
				}
			}
		}
	}
	return undone
}

// check returns what is wrong with a saga that has ended.
func (rec *sagaRecord) check() []string {
	wrong := slices.Clone(rec.Wrong)
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if rec.Err != "" {
		say("its client: %s", rec.Err)
	} else if rec.Answer != rec.Status {
		say("its client was answered %s, it is %s", rec.Answer, rec.Status)
	}
	rec.checkEnd(say)
	rec.checkCleanup(say)
	completed := rec.Status == perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED
	var want []string // the undos that must be done
	steps := map[string]sagaStep{}
	for _, s := range rec.Steps {
		steps[s.Key] = s
		if !completed && !s.Refused {
			want = append([]string{s.Name}, want...)
		}
	}
	if got := slices.Concat(rec.Undone, rec.Cleaned); !slices.Equal(got, want) {
		say("journals: undone were %q in line and %q in the clean-up, must be %q", rec.Undone, rec.Cleaned, want)
	}
	if completed && len(rec.Steps) != len(sagaSteps) {
		say("it completed after %d steps", len(rec.Steps))
	}
	rec.checkLedger(steps, want, say)
	return wrong
}

// checkEnd checks how the saga ended, and why.
func (rec *sagaRecord) checkEnd(say func(string, ...any)) {
	switch rec.Status {
	case perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED:
		if rec.In.Fail != failNot {
			say("it completed, must fail: %s", rec.In.Fail)
		}
	case perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED:
		if rec.In.Fail == failNot || rec.Failure != sagaRefused {
			say("it failed with %q, its plan is %q", rec.Failure, rec.In.Fail)
		}
	case perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED:
		if !rec.Cancel || rec.Failure != durable.TypeCancelled || rec.Reason != sagaReason {
			say("it is cancelled with %q, reason %q; its client has cancelled it: %t", rec.Failure, rec.Reason, rec.Cancel)
		}
	default:
		say("it has not ended: %s", rec.Status)
	}
}

// checkCleanup checks that a clean-up is there if there must be one, and that it succeeded in time.
func (rec *sagaRecord) checkCleanup(say func(string, ...any)) {
	if rec.Cleanup == "" {
		return // what it left is seen in the journals and the ledger
	}
	if rec.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED {
		say("it is %s, and has the clean-up %s", rec.Status, rec.Cleanup)
	}
	if rec.CleanupStatus != perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED {
		say("its clean-up is %s", rec.CleanupStatus)
	}
	if rec.CleanupTook > sagaCleanup {
		say("its clean-up took %s, longer than %s", rec.CleanupTook, sagaCleanup)
	}
}

// checkLedger checks the effects outside. The ledger refuses an effect that comes after its undo, so what
// counts is each key's first undo.
func (rec *sagaRecord) checkLedger(steps map[string]sagaStep, want []string, say func(string, ...any)) {
	charged, undone := map[string]bool{}, map[string]bool{}
	var order []string
	for _, n := range rec.Ledger {
		s, known := steps[n.Promise]
		switch {
		case !known:
			say("ledger: %s of %s, whose beginning no journal has", n.Kind, n.Promise)
		case n.Kind == NoteApply:
			charged[n.Promise] = charged[n.Promise] || !undone[n.Promise]
		case s.Proof != "" && !charged[n.Promise]:
			say("ledger: %s was undone before its effect", s.Name)
		case n.Proof != s.Proof && (n.Proof != unknownProof || s.Proof != ""):
			say("ledger: the undo of %s knows the result %q, recorded is %q", s.Name, n.Proof, s.Proof)
		case !undone[n.Promise]:
			undone[n.Promise] = true
			order = append(order, s.Name)
		}
	}
	for key, s := range steps {
		switch {
		case s.Proof != "" && !charged[key]:
			say("ledger: %s is recorded as done, and had no effect", s.Name)
		case charged[key] && !undone[key] && slices.Contains(want, s.Name):
			say("ledger: %s is left", s.Name)
		case charged[key] && s.Refused:
			say("ledger: %s was refused, and had an effect", s.Name)
		}
	}
	if !slices.Equal(order, want) {
		say("ledger: undone in the order %q, must be %q", order, want)
	}
}
