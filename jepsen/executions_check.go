package jepsen

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Execution is one execution as its client saw it.
type Execution struct {
	ID string
	// Called is when its start was asked for, Acked when that was acknowledged, Done when its result was
	// there; -1 for what has not come.
	Called, Acked, Done time.Duration
	Result              string
	// Err is the client's error instead, if any.
	Err string
	// Found is what a later look-up found: the result, or Missing, or NotFinished.
	Found string
	// Journal names what is wrong with its journal; empty when nothing is, or when the journal was not read.
	Journal string
	// Word is the payload of the signal that it waits for; empty when it waits for none. WordAcked says that
	// the signal was acknowledged, WordSent counts how often it was sent, Words how often it was delivered:
	// -1 when unknown.
	Word            string
	WordAcked       bool
	WordSent, Words int
	// Box is the execution that it sends its signals to; empty when it sends none. Sent is how often each was found
	// there.
	Box  string
	Sent []int
}

// Outcomes of a lookup without a result.
const (
	Missing     = "(missing)"
	NotFinished = "(not finished)"
)

// StepRecord is one step as the world outside saw it.
type StepRecord struct {
	Execution, Promise string
	// Runs is how often it acted on the world.
	Runs int
	// Receipt is what the first acknowledged run returned; empty until one was acknowledged. Ran are the receipts that
	// Run returned, acknowledged or not.
	Receipt string
	Ran     []string
	// RunAfterAck is how often it acted after that, and Late says who did, and when. Changed are other
	// receipts that Run returned later.
	RunAfterAck   int
	Late, Changed []string
}

// ExecutionVerdict is the checker's result.
type ExecutionVerdict struct {
	Started, Finished int
	// Repeated counts runs of steps beyond the first whose result was not recorded yet: they are allowed.
	Repeated int
	// Errors are the clients' errors although the cluster could have done what they asked.
	Errors []string
	// Lost were acknowledged, as started or as finished, and are not there or not finished afterwards.
	Lost []string
	// Reruns are steps that acted again after their result was acknowledged.
	Reruns []string
	// Wrong are results and journals that contradict what was acknowledged.
	Wrong []string
	// Signals are signals that were not delivered exactly once; Delivered counts those that were.
	Signals   []string
	Delivered int
	// Early are sleeps that ended before their time; Slept counts all that ended, and Overslept is how much longer
	// they took.
	Early     []string
	Slept     int
	Overslept Spread
}

// OK says that every execution ended as it should.
func (v *ExecutionVerdict) OK() bool { return len(v.Violations()) == 0 }

// Violations are the sentences of a report.
func (v *ExecutionVerdict) Violations() []string {
	var out []string
	for _, part := range []struct {
		what string
		all  []string
	}{{"error", v.Errors}, {"lost", v.Lost}, {"ran again", v.Reruns}, {"wrong", v.Wrong}, {"signal", v.Signals}, {"timer", v.Early}} {
		for i, text := range part.all {
			if i == 10 {
				out = append(out, fmt.Sprintf("%s: and %d more", part.what, len(part.all)-i))
				break
			}
			out = append(out, part.what+": "+text)
		}
	}
	return out
}

// ResultOf is what the execution must return whose steps had these receipts, in order.
func ResultOf(id string, receipts []string) string {
	return id + "|" + strings.Join(receipts, "|")
}

// words are what the result is made of besides the id: the receipts, before the last one what it waited for, and the
// answers to its signals.
func (e Execution) words(receipts []string) []string {
	words := slices.Clone(receipts)
	if e.Word != "" && len(receipts) > 0 {
		words = slices.Insert(words, len(receipts)-1, e.Word)
	}
	if e.Box != "" {
		words = append(words, answersWanted...)
	}
	return words
}

// CheckExecutions compares what clients and the world outside saw with what was found afterwards. steps are
// of all executions; those of one in the order in which they ran first.
func CheckExecutions(executions []Execution, steps []StepRecord, stepsEach int) ExecutionVerdict {
	var v ExecutionVerdict
	of := map[string][]StepRecord{}
	for _, s := range steps {
		of[s.Execution] = append(of[s.Execution], s)
		again := max(0, s.Runs-1)
		if s.RunAfterAck > 0 {
			v.Reruns = append(v.Reruns, fmt.Sprintf("%s acted %d times after it was acknowledged: %s", s.Promise, s.RunAfterAck, strings.Join(s.Late, ", ")))
		}
		v.Repeated += again - s.RunAfterAck
		for _, other := range s.Changed {
			v.Wrong = append(v.Wrong, fmt.Sprintf("%s returned %q, and later %q", s.Promise, s.Receipt, other))
		}
	}
	known := map[string]bool{}
	for _, e := range executions {
		known[e.ID] = true
		v.check(e, of[e.ID], stepsEach)
	}
	for _, s := range steps {
		if !known[s.Execution] {
			v.Wrong = append(v.Wrong, fmt.Sprintf("%s ran, and no client started %s", s.Promise, s.Execution))
		}
	}
	slices.Sort(v.Reruns)
	return v
}

// clockSlack is the largest error of the cluster's time while a node's clock is wrong.
const clockSlack = 500 * time.Millisecond

// CheckSleeps adds the sleeps in the workers' books. Each may end sooner by slack.
func (v *ExecutionVerdict) CheckSleeps(sleeps []SleepRecord, slack time.Duration) {
	var over []time.Duration
	for _, s := range sleeps {
		switch {
		case s.Took == 0:
			continue
		case s.Took < s.For-slack:
			v.Early = append(v.Early, fmt.Sprintf("%s slept %s of %s", s.Execution, short3(s.Took), short3(s.For)))
		default:
			over = append(over, max(0, s.Took-s.For))
		}
		v.Slept++
	}
	v.Overslept = SpreadOf(over)
}

// signals checks the signals of one execution: those that it sent, and the one that it waits for.
func (v *ExecutionVerdict) signals(e Execution) {
	ended := e.Found != Missing && e.Found != NotFinished && e.Found != ""
	for i, n := range e.Sent {
		switch {
		case n < 0:
			v.Signals = append(v.Signals, fmt.Sprintf("%s: signal %d was not read back", e.ID, i))
		case n > 1, n == 0 && ended:
			v.Signals = append(v.Signals, fmt.Sprintf("%s: signal %d was delivered to %s %d times", e.ID, i, e.Box, n))
		default:
			v.Delivered += n
		}
	}
	if e.Word == "" || e.Words < 0 {
		return
	}
	least := 0
	if e.WordAcked {
		least = 1
	}
	if e.Words < least || e.Words > e.WordSent {
		v.Signals = append(v.Signals, fmt.Sprintf("%s: the signal %q was sent %d times (acknowledged: %v) and delivered %d times",
			e.ID, e.Word, e.WordSent, e.WordAcked, e.Words))
	}
}

// check adds one execution.
func (v *ExecutionVerdict) check(e Execution, steps []StepRecord, stepsEach int) {
	if e.Acked >= 0 {
		v.Started++
	}
	if e.Done >= 0 {
		v.Finished++
	}
	if e.Err != "" {
		v.Errors = append(v.Errors, e.ID+": "+e.Err)
	}
	v.signals(e)
	if e.Journal != "" {
		v.Wrong = append(v.Wrong, e.ID+": journal: "+e.Journal)
	}
	switch {
	case e.Found == Missing && e.Acked < 0 && e.Done < 0:
		return // it was never there
	case e.Found == Missing || e.Found == NotFinished || e.Found == "":
		v.Lost = append(v.Lost, fmt.Sprintf("%s was acknowledged (start %.3f s, result %.3f s) and is %s",
			e.ID, e.Acked.Seconds(), e.Done.Seconds(), fallback(e.Found, "unchecked")))
		return
	case e.Done >= 0 && e.Found != e.Result:
		v.Wrong = append(v.Wrong, fmt.Sprintf("%s: the result was %q and is %q", e.ID, e.Result, e.Found))
	}
	var receipts []string
	for i, s := range steps {
		if s.Receipt == "" && i == len(steps)-1 {
			s.Receipt = recordedAtTheEnd(s, e.Found)
		}
		if s.Receipt == "" {
			v.Wrong = append(v.Wrong, fmt.Sprintf("%s ran, was never acknowledged, and yet %s has ended", s.Promise, e.ID))
		}
		receipts = append(receipts, s.Receipt)
	}
	if len(steps) != stepsEach {
		v.Wrong = append(v.Wrong, fmt.Sprintf("%s has ended after %d steps, not %d", e.ID, len(steps), stepsEach))
	} else if want := ResultOf(e.ID, e.words(receipts)); e.Found != want {
		v.Wrong = append(v.Wrong, fmt.Sprintf("%s: the result is %q, its steps make %q", e.ID, e.Found, want))
	}
}

// recordedAtTheEnd is the receipt of the last step that was recorded together with the end, if no client saw the result.
func recordedAtTheEnd(s StepRecord, found string) string {
	words := strings.Split(found, "|")
	for _, proof := range s.Ran {
		if slices.Contains(words, proof) {
			return proof
		}
	}
	return ""
}
