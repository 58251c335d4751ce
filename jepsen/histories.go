package jepsen

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"
)

// HistoryOptions say how many register histories to record. The zero value is one without a fault.
type HistoryOptions struct {
	Histories int
	// Faults are taken in turn; default none.
	Faults []Fault
	// Warm, Hold and Cool are as with Failover; defaults 1 s, 3 s and 1 s.
	Warm, Hold, Cool time.Duration
	Load             RegisterOptions
	// AllowLate makes late answers (RegisterVerdict.Late) a count and no violation.
	AllowLate bool
	Seed      uint64
	Out       io.Writer
}

// leastOps is how many operations have to be answered before a fault.
const leastOps = 20

// HistoryReport is the outcome of all histories.
type HistoryReport struct {
	Histories, IDs, Ops, Open, Dropped int
	// TimedOut are promises that timed out.
	Undecided, Late, TimedOut int
	Violations                []string
}

// Histories records histories of registers while the cluster is broken and repaired, and has the checker
// verify each. An error means that the run could not be made.
func Histories(ctx context.Context, c *Cluster, o HistoryOptions) (*HistoryReport, error) {
	o.Histories = fallback(o.Histories, 1)
	o.Warm, o.Hold, o.Cool = fallback(o.Warm, time.Second), fallback(o.Hold, 3*time.Second), fallback(o.Cool, time.Second)
	if o.Out == nil {
		o.Out = io.Discard
	}
	if len(o.Faults) == 0 {
		o.Faults, _ = FindFaults("none")
	}
	rng := rand.New(rand.NewPCG(o.Seed, 2))
	report := &HistoryReport{}
	slack := time.Duration(0)
	if slices.ContainsFunc(o.Faults, func(f Fault) bool { return f.Patched }) {
		slack = clockSlack
	}
	for i := range o.Histories {
		f, load := o.Faults[i%len(o.Faults)], o.Load
		load.Seed = o.Seed + uint64(i)
		load.Prefix = fmt.Sprintf("%s-%x-%d", fallback(load.Prefix, "r"), o.Seed, i)
		run, err := StartRegisters(ctx, c, load)
		if err != nil {
			return report, err
		}
		w, err := underFault(ctx, c, f, o.Warm, f.holds(o.Hold, 0, rng), o.Cool, rng, func() error { return fewer(run.Answered(), leastOps, "operations") })
		h := run.Stop()
		if err != nil {
			return report, fmt.Errorf("history %d: %w", i+1, err)
		}
		v := CheckRegister(h.Ops, 0, slack)
		report.add(h, v, o.AllowLate)
		fmt.Fprintf(o.Out, "history %d: %s of %s: %d operations on %d promises, %d open, %d dropped: %s\n",
			i+1, f.Name, w.Names(), v.Ops, v.IDs, v.Open, h.Dropped, v.word())
		if v.Ops == 0 {
			report.Violations = append(report.Violations, fmt.Sprintf("history %d is empty: nothing was checked", i+1))
		}
	}
	report.Violations = append(report.Violations, Aftermath(ctx, c)...)
	return report, nil
}

func (r *HistoryReport) add(h RegisterHistory, v RegisterVerdict, allowLate bool) {
	r.Histories++
	r.IDs, r.Ops, r.Open, r.Dropped = r.IDs+v.IDs, r.Ops+v.Ops, r.Open+v.Open, r.Dropped+h.Dropped
	r.Undecided, r.TimedOut = r.Undecided+len(v.Undecided), r.TimedOut+v.TimedOut
	for _, text := range v.Violations {
		r.Violations = append(r.Violations, "not linearizable: "+text)
	}
	r.Late += len(v.Late)
	for _, text := range v.Late {
		if !allowLate {
			r.Violations = append(r.Violations, "late answer: "+text)
		}
	}
	for _, text := range v.Early {
		r.Violations = append(r.Violations, "too early: "+text)
	}
	for _, text := range v.Undecided {
		r.Violations = append(r.Violations, "undecided: "+text)
	}
	for _, text := range h.Refusals {
		r.Violations = append(r.Violations, "refused: "+text)
	}
}

// String is the summary.
func (r *HistoryReport) String() string {
	return fmt.Sprintf("%d histories: %d operations on %d promises, %d timed out, %d left open, %d surely not done, %d undecided, %d late answers, %d violations\n",
		r.Histories, r.Ops, r.IDs, r.TimedOut, r.Open, r.Dropped, r.Undecided, r.Late, len(r.Violations))
}
