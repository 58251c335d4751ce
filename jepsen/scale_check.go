package jepsen

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	perdurev1 "perdure/api/perdure/v1"
)

// findings collects sentences of one kind and keeps the first ten.
type findings struct {
	all  []string
	more int
}

func (f *findings) add(format string, args ...any) {
	if len(f.all) == 10 {
		f.more++
		return
	}
	f.all = append(f.all, fmt.Sprintf(format, args...))
}

func (f *findings) list() []string {
	if f.more > 0 {
		return append(slices.Clone(f.all), fmt.Sprintf("and %d more", f.more))
	}
	return f.all
}

// scaleWord is the payload of a sender's n-th signal.
func scaleWord(sender, n int) string { return fmt.Sprintf("%d/%d", sender, n) }

// CheckScaleSignals reports signals that were lost, doubled or reordered. sent is how many signals each
// sender sent, one after the other, all acknowledged. delivered and received are the payloads in the order of
// the receiver's journal, result is what the receiver returned.
func CheckScaleSignals(sent []int, delivered, received []string, result string) []string {
	var f findings
	order := func(what string, words []string) {
		next := make([]int, len(sent))
		for i, word := range words {
			s, n, ok := strings.Cut(word, "/")
			sender, err := strconv.Atoi(s)
			seq, err2 := strconv.Atoi(n)
			switch {
			case !ok || err != nil || err2 != nil || sender < 0 || sender >= len(sent):
				f.add("%s signal %d holds %q, which no client sent", what, i, word)
				continue
			case seq < next[sender]:
				f.add("%s signal %d is %s, for the second time or too late: %d was expected", what, i, word, next[sender])
				continue
			case seq > next[sender]:
				f.add("%s signal %d is %s, and %d to %d of that sender did not come before it", what, i, word, next[sender], seq-1)
			}
			next[sender] = seq + 1
		}
		for sender, n := range sent {
			if next[sender] != n {
				f.add("sender %d: %d signals were acknowledged, the last %s is %d", sender, n, what, next[sender]-1)
			}
		}
	}
	order("delivered", delivered)
	order("received", received)
	if !slices.Equal(delivered, received) {
		f.add("%d signals were received in another order or number than the %d were delivered", len(received), len(delivered))
	}
	if want := scaleDigest(received); result != want {
		f.add("the function returned %q, its journal makes %q", result, want)
	}
	return f.list()
}

// CheckScaleSteps reports steps that were lost or counted twice. proofs are the results that the journal
// completes with, in order; records are the steps in the workers' books.
func CheckScaleSteps(n int, proofs []string, records []StepRecord, result string) []string {
	var f findings
	if len(proofs) != n {
		f.add("%d steps are completed in the journal, not %d", len(proofs), n)
	}
	if len(records) != n {
		f.add("%d steps acted, not %d", len(records), n)
	}
	seen := map[string]bool{}
	for i, proof := range proofs {
		if seen[proof] {
			f.add("step %d has the result %s of an earlier one", i, proof)
		}
		seen[proof] = true
	}
	for i, r := range records {
		if r.Receipt == "" && i == len(records)-1 && i < len(proofs) && slices.Contains(r.Ran, proofs[i]) {
			r.Receipt = proofs[i] // it was recorded together with the end
		}
		switch {
		case r.RunAfterAck > 0:
			f.add("%s acted %d times after its acknowledgement: %s", r.Promise, r.RunAfterAck, strings.Join(r.Late, ", "))
		case len(r.Changed) > 0:
			f.add("%s returned %q, and later %q", r.Promise, r.Receipt, r.Changed)
		case i < len(proofs) && r.Receipt != proofs[i]:
			f.add("%s returned %q to its function, the journal has %q", r.Promise, r.Receipt, proofs[i])
		}
	}
	if want := scaleDigest(proofs); result != want {
		f.add("the function returned %q, its journal makes %q", result, want)
	}
	return f.list()
}

// ScaleChild is the result of a child as its parent's journal has it.
type ScaleChild struct {
	// Promise is the child's id, Result what it returned.
	Promise, Result string
}

// CheckScaleChildren reports children whose result is lost, doubled or wrong. scheduled are the children's ids in the
// order in which the parent started them, completed their results in the order in which they came.
func CheckScaleChildren(parent string, n int, scheduled []string, completed []ScaleChild, result string) []string {
	var f findings
	if len(scheduled) != n {
		f.add("%d children were started, not %d", len(scheduled), n)
	}
	results := map[string]string{}
	for _, c := range completed {
		if _, again := results[c.Promise]; again {
			f.add("%s completed twice", c.Promise)
		}
		results[c.Promise] = c.Result
	}
	var words []string
	for i, id := range scheduled {
		got, ok := results[id]
		switch {
		case !ok:
			f.add("%s was started, and its result is not there", id)
		case got != scaleChildResult(parent, i):
			f.add("%s has the result %q, not %q", id, got, scaleChildResult(parent, i))
		}
		delete(results, id)
		words = append(words, got)
	}
	for id := range results {
		f.add("%s completed, and was never started", id)
	}
	if want := scaleDigest(words); result != want {
		f.add("the function returned %q, its journal makes %q", result, want)
	}
	return f.list()
}

// ScaleTimer is one timer: a promise with a deadline, or an execution that sleeps. Times are Unix milliseconds.
type ScaleTimer struct {
	ID string
	// DueMs is the deadline that the cluster gave it.
	DueMs int64
	// Sleeper says that it is an execution; FiredMs are the times at which its journal says that the timer fired.
	Sleeper bool
	FiredMs []int64
	// State is a promise's state after the run, SettledMs the time at which it was settled.
	State     perdurev1.PromiseState
	SettledMs int64
	// HeardMs is when a client that awaited the promise was answered; 0 when no client awaited it.
	HeardMs int64
}

// heardSlackMs is by how much the clock of a cluster on one machine may differ from that machine's.
const heardSlackMs = 50

// CheckScaleTimers reports timers that were lost, doubled or early, and how late each fired that can be seen to fire: a
// sleeper by its journal, an awaited promise by its client.
func CheckScaleTimers(n int, timers []ScaleTimer) (wrong []string, lateMs []int64) {
	var f findings
	if len(timers) != n {
		f.add("%d timers were set, not %d", len(timers), n)
	}
	seen := map[string]bool{}
	for _, t := range timers {
		if seen[t.ID] {
			f.add("%s is there twice", t.ID)
		}
		seen[t.ID] = true
		switch {
		case t.Sleeper && len(t.FiredMs) != 1:
			f.add("%s fired %d times", t.ID, len(t.FiredMs))
		case t.Sleeper && t.FiredMs[0] < t.DueMs:
			f.add("%s fired %d ms early", t.ID, t.DueMs-t.FiredMs[0])
		case t.Sleeper:
			lateMs = append(lateMs, t.FiredMs[0]-t.DueMs)
		case t.State != perdurev1.PromiseState_PROMISE_STATE_REJECTED_TIMEDOUT:
			f.add("%s has expired and is %s", t.ID, t.State)
		case t.SettledMs < t.DueMs:
			f.add("%s timed out %d ms early", t.ID, t.DueMs-t.SettledMs)
		case t.HeardMs > 0 && t.HeardMs < t.DueMs-heardSlackMs:
			f.add("%s: a client was answered %d ms before its deadline", t.ID, t.DueMs-t.HeardMs)
		case t.HeardMs > 0:
			lateMs = append(lateMs, max(0, t.HeardMs-t.DueMs))
		}
	}
	return f.list(), lateMs
}
