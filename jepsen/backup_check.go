package jepsen

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// BackedExecution is an execution of a cluster that was backed up, and what the restored cluster has of it.
type BackedExecution struct {
	// Execution is as its client saw it; Found, Journal, Words and Sent are of the restored cluster, at the end.
	Execution
	// WordAckedAt is when the signal that it waits for was acknowledged first; -1 for never.
	WordAckedAt time.Duration
	// Restored is what the restored cluster had of it before any worker came there: a result, Missing or NotFinished.
	// RestoredWords is how often its signal was delivered by then, if it had not finished.
	Restored      string
	RestoredWords int
}

// BackedTransfer is a transfer of a cluster that was backed up. Acked and Done are as of an Execution.
type BackedTransfer struct {
	ID          string
	Acked, Done time.Duration
	Moved       bool
	// Found and FoundMoved are of the restored cluster at the end: whether it has it, ended, and its result.
	Found, Ended, FoundMoved bool
}

// RestoreEvidence is all that a restored cluster is judged by. Times count from the beginning of the load.
type RestoreEvidence struct {
	// Cut is when the backup that was restored was begun, at the latest.
	Cut        time.Duration
	Executions []BackedExecution
	Transfers  []BackedTransfer
	// Ledgers are all accounts, Boxes the payloads that each box was given; of the restored cluster.
	Ledgers map[string]ledger
	Boxes   map[string]map[string]int
	// Completed are the steps whose completion the restored journals had before any worker came.
	Completed map[string]bool
	// Before are the notes of the first cluster's workers, After those of the restored cluster's.
	Before, After []StepNote
}

// CheckRestore lists what a restored cluster has lost, doubled or done again. Whatever was acknowledged before the
// backup began has to be there; what was not may be, but then with its causes and all of its effects.
func CheckRestore(ev *RestoreEvidence) []string {
	var lost, signals, wrong []string
	there := map[string]bool{}
	over := map[string]bool{}
	proofs := map[string]map[string]bool{}
	for _, n := range slices.Concat(ev.Before, ev.After) {
		if n.Kind == NoteRan {
			if proofs[n.Execution] == nil {
				proofs[n.Execution] = map[string]bool{}
			}
			proofs[n.Execution][n.Proof] = true
		}
	}
	for i := range ev.Executions {
		e := &ev.Executions[i]
		there[e.ID], over[e.ID] = e.Restored != Missing, e.Restored != Missing && e.Restored != NotFinished
		lost = append(lost, e.lost(ev.Cut)...)
		if there[e.ID] {
			s, w := e.afterwards(ev.Boxes[e.Box], proofs[e.ID])
			signals, wrong = append(signals, s...), append(wrong, w...)
		}
	}
	for box, payloads := range ev.Boxes {
		for payload := range payloads {
			if from, _, _ := strings.Cut(payload, "/"); !there[from] {
				signals = append(signals, fmt.Sprintf("%s has the signal %s, and its sender is not there", box, payload))
			}
		}
	}
	var out []string
	for _, part := range []struct {
		what string
		all  []string
	}{{"lost", lost}, {"signal", signals}, {"wrong", wrong}, {"ran again", ranAgain(ev, over)}, {"bank", checkBank(ev)}} {
		slices.Sort(part.all)
		for i, text := range part.all {
			if i == 10 {
				text = fmt.Sprintf("and %d more", len(part.all)-i)
			}
			if i <= 10 {
				out = append(out, part.what+": "+text)
			}
		}
	}
	return out
}

// before reports whether something was acknowledged before a moment.
func before(at, moment time.Duration) bool { return at >= 0 && at < moment }

// lost lists what the restored cluster lacks of what was acknowledged before the cut.
func (e *BackedExecution) lost(cut time.Duration) []string {
	var out []string
	switch {
	case e.Restored == Missing && before(e.Acked, cut):
		out = append(out, fmt.Sprintf("%s was acknowledged %s before the backup began, and is not there", e.ID, short3(cut-e.Acked)))
	case before(e.Done, cut) && e.Restored != e.Result:
		out = append(out, fmt.Sprintf("%s had the result %q %s before the backup began, and was restored as %q", e.ID, e.Result, short3(cut-e.Done), e.Restored))
	case e.Restored == NotFinished && before(e.WordAckedAt, cut) && e.RestoredWords == 0:
		out = append(out, fmt.Sprintf("%s: its signal was acknowledged %s before the backup began, and is not there", e.ID, short3(cut-e.WordAckedAt)))
	}
	return out
}

// afterwards lists what is wrong at the end with an execution that was restored.
func (e *BackedExecution) afterwards(box map[string]int, proofs map[string]bool) (signals, wrong []string) {
	switch {
	case e.Found == Missing || e.Found == NotFinished:
		return nil, []string{e.ID + " was restored, and at the end is " + e.Found}
	case e.Restored != NotFinished && e.Found != e.Restored:
		return nil, []string{fmt.Sprintf("%s was restored with the result %q, and then has %q", e.ID, e.Restored, e.Found)}
	}
	if e.Journal != "" {
		wrong = append(wrong, e.ID+": journal: "+e.Journal)
	}
	words := strings.Split(e.Found, "|")
	var receipts []string
	for _, w := range words[1:] {
		if proofs[w] {
			receipts = append(receipts, w)
		}
	}
	if len(receipts) != len(stepNames) || ResultOf(e.ID, e.words(receipts)) != e.Found {
		wrong = append(wrong, fmt.Sprintf("%s has the result %q, and no such steps ran", e.ID, e.Found))
	}
	if e.Word != "" && e.Words >= 0 && (e.Words < 1 || e.Words > max(1, e.WordSent)) {
		signals = append(signals, fmt.Sprintf("%s: its signal was sent %d times and delivered %d times", e.ID, e.WordSent, e.Words))
	}
	for i := range e.Sent {
		if n := box[sentPayload(e.ID, i)]; n != 1 {
			signals = append(signals, fmt.Sprintf("%s: its signal %d was delivered %d times to %s", e.ID, i, n, e.Box))
		}
	}
	return signals, wrong
}

// ranAgain lists the steps that the restored cluster's workers began although its journals had their completion, and
// those that acted after one of these workers had their acknowledgement. over are the executions that had ended.
func ranAgain(ev *RestoreEvidence, over map[string]bool) []string {
	var out []string
	for _, n := range ev.After {
		if n.Kind == NoteAct && (ev.Completed[n.Promise] || over[n.Execution]) {
			out = append(out, fmt.Sprintf("%s of %s acted on %s at %s, and the backup has its completion", n.Promise, n.Execution, n.Worker, clockTime(n.At)))
		}
	}
	for _, s := range StepRecords(ev.After) {
		if s.RunAfterAck > 0 {
			out = append(out, fmt.Sprintf("%s acted %d times after it was acknowledged: %s", s.Promise, s.RunAfterAck, strings.Join(s.Late, ", ")))
		}
	}
	return out
}

// checkBank compares the restored accounts with each other and with the transfers.
func checkBank(ev *RestoreEvidence) []string {
	out := checkLedgers(ev.Ledgers)
	total := 0
	booked := map[string]int{}
	for _, l := range ev.Ledgers {
		total += l.Balance
		for _, e := range l.Lines {
			booked[e.ID]++
		}
	}
	if want := len(ev.Ledgers) * openingBalance; total != want {
		out = append(out, fmt.Sprintf("%d in all accounts, they began with %d", total, want))
	}
	for _, t := range ev.Transfers {
		halves := booked[t.ID]
		switch {
		case !t.Found && before(t.Acked, ev.Cut):
			out = append(out, t.ID+" was acknowledged before the backup began, and is not there")
		case !t.Found && halves > 0:
			out = append(out, fmt.Sprintf("%s is not there, and %d accounts have it", t.ID, halves))
		case t.Found && !t.Ended:
			out = append(out, t.ID+" was restored and did not end")
		case t.Found && (t.FoundMoved && halves != 2 || !t.FoundMoved && halves != 0):
			out = append(out, fmt.Sprintf("%s: moved is %t, and %d accounts have it", t.ID, t.FoundMoved, halves))
		case before(t.Done, ev.Cut) && t.Moved != t.FoundMoved:
			out = append(out, fmt.Sprintf("%s had ended before the backup began, moved: %t, and now %t", t.ID, t.Moved, t.FoundMoved))
		}
	}
	return out
}
