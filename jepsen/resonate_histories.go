package jepsen

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// ResonateHistoryOptions say how many rounds of histories to record. The zero value is one without a fault.
type ResonateHistoryOptions struct {
	// Rounds are so many faults at least, one after the other; they go on until Histories were checked.
	Rounds, Histories int
	// Faults are taken in turn; default none.
	Faults []Fault
	// Warm, Hold and Cool are as with Failover; defaults 500 ms, 2 s and 500 ms.
	Warm, Hold, Cool time.Duration
	Load             ResonateOptions
	// Check bounds the check of one history; default 10 s.
	Check time.Duration
	// Tamper names a change that is made to recorded answers before the check: all of these histories must be refuted, so
	// the run fails. Empty for none.
	Tamper string
	Seed   uint64
	Out    io.Writer
}

// ResonateFaults are the faults of a run unless it names others.
const ResonateFaults = "kill-leader,isolate-leader,pause-leader,cut-leader,mute-leader,deafen-leader,kill-follower,part-leader"

// maxUndecided is the share of histories, one in so many, that may stay undecided.
const maxUndecided = 100

// ResonateReport is the outcome of all rounds.
type ResonateReport struct {
	// Histories are those of one origin each; Disturbed of them had requests under way during a fault.
	Rounds, Histories, Disturbed int
	// Open are requests without an answer, Dropped are those that say nothing.
	Ops, Open, Dropped, Undecided int
	// Refuted histories have no explanation. Tampered ones were checked instead of the recorded ones.
	Tampered, Refuted int
	// Outcomes counts requests by kind and status. Slowest is the longest check of a round.
	Outcomes   map[string]int
	Slowest    time.Duration
	Violations []string
}

// ResonateHistories records histories of clients of the Resonate protocol while the cluster is broken and repaired, and
// has the checker verify each. An error means that the run could not be made.
func ResonateHistories(ctx context.Context, c *Cluster, o ResonateHistoryOptions) (*ResonateReport, error) {
	o.Rounds = fallback(o.Rounds, 1)
	o.Warm, o.Hold, o.Cool = fallback(o.Warm, time.Second/2), fallback(o.Hold, 2*time.Second), fallback(o.Cool, time.Second/2)
	if o.Out == nil {
		o.Out = io.Discard
	}
	if len(o.Faults) == 0 {
		o.Faults, _ = FindFaults("none")
	}
	report := &ResonateReport{Outcomes: map[string]int{}}
	if o.Tamper != "" && o.Tamper != "all" && !slices.Contains(ResonateTampers(), o.Tamper) {
		return report, fmt.Errorf("there is no change %q; there are all, %s", o.Tamper, strings.Join(ResonateTampers(), ", "))
	}
	rng := rand.New(rand.NewPCG(o.Seed, 2))
	slack := time.Duration(0)
	if slices.ContainsFunc(o.Faults, func(f Fault) bool { return f.Patched }) {
		slack = clockSlack
	}
	for i := 0; i < o.Rounds || report.Histories < o.Histories; i++ {
		f, load := o.Faults[i%len(o.Faults)], o.Load
		load.Seed = o.Seed + uint64(i)
		load.Prefix = fmt.Sprintf("%s-%x-%d", fallback(load.Prefix, "res"), o.Seed, i)
		run := StartResonate(ctx, c, load)
		w, err := underFault(ctx, c, f, o.Warm, f.holds(o.Hold, 0, rng), o.Cool, rng, func() error { return fewer(run.Answered(), leastOps, "requests") })
		h := run.Stop()
		if err != nil {
			return report, fmt.Errorf("round %d: %w", i+1, err)
		}
		began := time.Now()
		v := report.check(h, o, slack)
		took := time.Since(began)
		report.Slowest = max(report.Slowest, took)
		report.Disturbed += h.during(w.At.Sub(run.began), w.Healed.Sub(run.began))
		fmt.Fprintf(o.Out, "round %d, seed %d: %s of %s: %d histories of %d requests, %d open, %d dropped, checked in %s: %d violations, %d undecided\n",
			i+1, load.Seed, f.Name, w.Names(), v.Histories, v.Ops, v.Open, h.Dropped, short3(took), len(v.Violations), len(v.Undecided))
		if v.Ops == 0 {
			report.Violations = append(report.Violations, fmt.Sprintf("round %d has no history: nothing was checked", i+1))
		}
	}
	if report.Undecided*maxUndecided > report.Histories {
		report.Violations = append(report.Violations, fmt.Sprintf("%d of %d histories were not decided", report.Undecided, report.Histories))
	}
	if o.Tamper != "" {
		report.Violations = append(report.Violations, fmt.Sprintf("%d histories were tampered with (%s), %d of them were refuted", report.Tampered, o.Tamper, report.Refuted))
	}
	report.Violations = append(report.Violations, Aftermath(ctx, c)...)
	return report, nil
}

// during counts the histories with a request under way between two times.
func (h ResonateHistory) during(from, to time.Duration) int {
	n := 0
	for _, history := range h.Origins {
		if slices.ContainsFunc(history, func(o ResonateOp) bool { return o.Called < to && (o.Open || o.Answered > from) }) {
			n++
		}
	}
	return n
}

// check checks the histories of a round.
func (r *ResonateReport) check(h ResonateHistory, o ResonateHistoryOptions, slack time.Duration) ResonateVerdict {
	if o.Tamper != "" {
		h.Origins = tampered(o.Tamper, h.Origins)
		r.Tampered += len(h.Origins)
	}
	v := CheckResonate(h.Origins, o.Check, slack)
	r.Rounds++
	r.Histories, r.Ops, r.Open, r.Dropped = r.Histories+v.Histories, r.Ops+v.Ops, r.Open+v.Open, r.Dropped+h.Dropped
	r.Undecided += len(v.Undecided)
	for what, n := range h.Outcomes { //lint:sorted each is a count of its own
		r.Outcomes[what] += n
	}
	for _, text := range v.Violations {
		if o.Tamper == "" || r.Refuted == 0 { // one example will do of those that must be refuted
			r.Violations = append(r.Violations, "not linearizable: "+text)
		}
		r.Refuted++
	}
	for _, text := range h.Refusals {
		r.Violations = append(r.Violations, "refused: "+text)
	}
	return v
}

// String is the summary.
func (r *ResonateReport) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d rounds, %d histories, %d of them under a fault: %d requests, %d left open, %d say nothing, %d histories undecided; a round checked within %s; %d violations\n",
		r.Rounds, r.Histories, r.Disturbed, r.Ops, r.Open, r.Dropped, r.Undecided, short3(r.Slowest), len(r.Violations))
	for _, what := range slices.Sorted(maps.Keys(r.Outcomes)) {
		fmt.Fprintf(&b, "  %-34s %d\n", what, r.Outcomes[what])
	}
	return b.String()
}
