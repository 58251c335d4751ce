package jepsen

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// FailoverOptions say how to measure failovers. The zero value is one round of kill-leader.
type FailoverOptions struct {
	Rounds int
	// Faults are taken in turn; default kill-leader.
	Faults []Fault
	// Warm is how long the load runs before the fault, default 2 s. Hold is how long the fault lasts, default
	// 5 s. Cool is how long the load continues once all nodes are ready again, default 1 s.
	Warm, Hold, Cool time.Duration
	Load             CommitOptions
	// Least is how many writes have to be acknowledged before the fault, however long that takes beyond Warm.
	Least int
	// MaxGap, if set, makes a longer gap under a fault that leaves a majority a violation.
	MaxGap time.Duration
	Seed   uint64
	// Out gets a line for each round; nil discards them.
	Out io.Writer
}

// FailoverRound is one fault and what it cost.
type FailoverRound struct {
	Fault, Hit string
	// At is when the fault was injected, to find it in the logs.
	At time.Time
	// Before is the longest time without an acknowledged write before the fault; Gap the longest that the
	// fault caused; SecondGap the longest that began after healing had.
	Before, Gap, SecondGap time.Duration
	// Slow is how long less than half of the earlier rate was acknowledged, healing included.
	Slow time.Duration
	// Slowest is the longest that one acknowledged write took which was under way after the fault; it began SlowestAt
	// after the fault (negative: before it).
	Slowest, SlowestAt time.Duration
	// Over counts acknowledged writes that were under way after the fault and took longer than overTime.
	Over int
	// After are acknowledged writes in each 100 ms from the fault on, for afterTime.
	After []int
	// Rate is acknowledged writes a second before the fault.
	Rate float64
	// Restart is how long the nodes hit took from their start until they were ready.
	Restart time.Duration
	Verdict CommitVerdict
}

const (
	// overTime is the bound of a write, for any fault of one node.
	overTime = time.Second
	// afterTime is how long the rate after a fault is followed.
	afterTime = 5 * time.Second
)

// FailoverReport is all rounds.
type FailoverReport struct {
	Rounds     []FailoverRound
	Violations []string
}

// Failover breaks and repairs the cluster under a load of small writes, round by round, and reads back every
// write afterwards. An error means that the run could not be made; violations are in the report. It lasts
// about Rounds times (Warm + Hold + Cool), and the time of repairs and lookups.
func Failover(ctx context.Context, c *Cluster, o FailoverOptions) (*FailoverReport, error) {
	o.Rounds = fallback(o.Rounds, 1)
	o.Warm, o.Hold, o.Cool = fallback(o.Warm, 2*time.Second), fallback(o.Hold, 5*time.Second), fallback(o.Cool, time.Second)
	if o.Out == nil {
		o.Out = io.Discard
	}
	if len(o.Faults) == 0 {
		o.Faults, _ = FindFaults("kill-leader")
	}
	rng := rand.New(rand.NewPCG(o.Seed, 1))
	report := &FailoverReport{}
	for i := range o.Rounds {
		load := o.Load
		load.Prefix = fmt.Sprintf("%s-%x-%d", fallback(load.Prefix, "f"), o.Seed, i)
		round, err := failoverRound(ctx, c, o, o.Faults[i%len(o.Faults)], load, rng, report)
		if err != nil {
			return report, fmt.Errorf("round %d: %w", i+1, err)
		}
		report.Rounds = append(report.Rounds, round)
		fmt.Fprintf(o.Out, "round %d: %s\n", i+1, round)
	}
	report.Violations = append(report.Violations, Aftermath(ctx, c)...)
	return report, nil
}

// String is one line.
func (r FailoverRound) String() string {
	v := r.Verdict
	return fmt.Sprintf("%s of %s at %s: gap %s (before the fault %s, after healing %s), slow for %s, slowest write %s (begun %s after the fault), %d over %s, restart %s; "+
		"%.0f/s, %d acknowledged, %d unknown, %d given up, %d lost, %d doubled",
		r.Fault, r.Hit, r.At.UTC().Format("15:04:05.000Z"), short3(r.Gap), short3(r.Before), short3(r.SecondGap), short3(r.Slow), short3(r.Slowest), short3(r.SlowestAt), r.Over, short3(overTime), short3(r.Restart),
		r.Rate, v.Acked, v.Open, v.NotDone, len(v.Lost), len(v.Doubled))
}

func failoverRound(ctx context.Context, c *Cluster, o FailoverOptions, f Fault, load CommitOptions, rng *rand.Rand,
	report *FailoverReport) (FailoverRound, error) {
	out := FailoverRound{Fault: f.Name}
	run, err := StartCommits(ctx, c, load)
	if err != nil {
		return out, err
	}
	w, err := underFault(ctx, c, f, o.Warm, f.holds(o.Hold, 0, rng), o.Cool, rng, func() error { return fewer(run.Acked(), o.Least, "writes") })
	end := time.Now()
	writes, refusals := run.Stop()
	if err != nil {
		return out, err
	}
	out.Hit, out.At, out.Restart = w.Names(), w.At, w.Restart()
	out.measure(writes, run.Since(w.At), run.Since(w.Healing), run.Since(end))

	if o.MaxGap > 0 && f.Quorum && out.Gap > o.MaxGap {
		report.Violations = append(report.Violations, fmt.Sprintf("%s of %s at %s: no write was acknowledged for %s, at most %s is allowed",
			f.Name, out.Hit, out.At.UTC().Format("15:04:05.000Z"), short3(out.Gap), short3(o.MaxGap)))
	}

	reading, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if err := ReadWrites(reading, c, writes); err != nil {
		return out, fmt.Errorf("reading the writes back: %w", err)
	}
	out.Verdict = CheckCommits(writes)
	report.Violations = append(report.Violations, out.Verdict.Violations()...)
	for _, r := range refusals {
		report.Violations = append(report.Violations, "refused: "+r)
	}
	return out, nil
}

// underFault lets a load run: before a fault, under it, and after it. The fault waits until warmed, unless it is
// nil, returns nil: on a busy machine a load may need longer than warm to begin.
func underFault(ctx context.Context, c *Cluster, f Fault, warm, hold, cool time.Duration, rng *rand.Rand, warmed func() error) (*Wound, error) {
	if err := pause(ctx, warm); err != nil {
		return nil, err
	}
	if warmed != nil {
		begin, cancel := context.WithTimeout(ctx, healTimeout)
		defer cancel()
		if err := waitFor(begin, "the load to be under way", func(context.Context) error { return warmed() }); err != nil {
			return nil, err
		}
	}
	w, err := c.Inject(ctx, f, rng)
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, hold); err != nil {
		return nil, err
	}
	healing, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	if err := w.Heal(healing, c); err != nil {
		return nil, err
	}
	return w, pause(ctx, cool)
}

// fewer is the error that there are fewer than there should be.
func fewer(have, want int, of string) error {
	if have < want {
		return fmt.Errorf("%d %s, not %d", have, of, want)
	}
	return nil
}

// healTimeout bounds how long a cluster may take to be ready again.
const healTimeout = 90 * time.Second

// pause waits.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// measure reads the figures from the times of acknowledgements. All times count from the run's begin.
func (r *FailoverRound) measure(writes []Write, at, healing, end time.Duration) {
	var acks []time.Duration
	var first time.Duration = -1
	before := 0
	r.After = make([]int, max(0, min(end-at, afterTime))/slowBucket)
	for _, w := range writes {
		if w.Fate != Acked {
			continue
		}
		acks = append(acks, w.Answered)
		if first < 0 || w.Answered < first {
			first = w.Answered
		}
		if w.Answered < at {
			before++
			continue
		}
		if i := int((w.Answered - at) / slowBucket); i < len(r.After) {
			r.After[i]++
		}
		if took := w.Answered - w.Called; took > r.Slowest {
			r.Slowest, r.SlowestAt = took, w.Called-at
		}
		if w.Answered-w.Called > overTime {
			r.Over++
		}
	}
	r.Before = LongestGap(between(acks, 0, at), max(0, first), at)
	r.Gap = LongestGap(acks, at, healing)
	if later := between(acks, healing, end+1); len(later) > 0 {
		r.SecondGap = LongestGap(later, slices.Min(later), end)
	}
	r.Slow = SlowTime(acks, max(0, first), at, end)
	if first >= 0 && at > first {
		r.Rate = float64(before) / (at - first).Seconds()
	}
}

// Violations are the sentences of a report.
func (v *CommitVerdict) Violations() []string {
	var out []string
	add := func(what string, all []string) {
		for i, w := range all {
			if i == 10 {
				out = append(out, fmt.Sprintf("%s: and %d more", what, len(all)-i))
				break
			}
			out = append(out, what+": "+w)
		}
	}
	add("lost", v.Lost)
	add("doubled", v.Doubled)
	add("applied although the client got an error that it was not", v.Ghosts)
	if v.Unchecked > 0 {
		out = append(out, fmt.Sprintf("%d writes were not read back", v.Unchecked))
	}
	return out
}

// Aftermath waits until all replicas are equal again and lists what no fault of the table excuses: replicas
// that differ or have halted, and the Evidence.
func Aftermath(ctx context.Context, c *Cluster) []string {
	ctx, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	var out []string
	if err := c.WaitEqual(ctx); err != nil {
		out = append(out, "replicas: "+err.Error())
	}
	return append(out, Evidence(c)...)
}

// Evidence returns the signs of bugs in the processes and their logs: processes that ended by themselves,
// panics, races and broken invariants.
func Evidence(c *Cluster) []string {
	var out []string
	for _, s := range c.UnexpectedEvents() {
		out = append(out, "process: "+s)
	}
	for _, s := range c.Complaints() {
		out = append(out, "log: "+s)
	}
	return out
}

// String is the report's summary, by fault.
func (r *FailoverReport) String() string {
	var b strings.Builder
	var names []string
	by := map[string][]FailoverRound{}
	for _, round := range r.Rounds {
		if by[round.Fault] == nil {
			names = append(names, round.Fault)
		}
		by[round.Fault] = append(by[round.Fault], round)
	}
	for _, name := range names {
		var before, gap, second, slow, slowest, restart []time.Duration
		var acked, open, given, lost, doubled, ghosts, over int
		var rate float64
		for _, x := range by[name] {
			before, gap, second = append(before, x.Before), append(gap, x.Gap), append(second, x.SecondGap)
			slow, slowest, restart = append(slow, x.Slow), append(slowest, x.Slowest), append(restart, x.Restart)
			over += x.Over
			acked, open, given = acked+x.Verdict.Acked, open+x.Verdict.Open, given+x.Verdict.NotDone
			lost, doubled = lost+len(x.Verdict.Lost), doubled+len(x.Verdict.Doubled)
			ghosts += len(x.Verdict.Ghosts)
			rate += x.Rate / float64(len(by[name]))
		}
		fmt.Fprintf(&b, "%s, %d rounds, %.0f writes/s before the fault\n", name, len(by[name]), rate)
		for _, row := range []struct {
			what string
			all  []time.Duration
		}{
			{"longest time without an acknowledged write", gap}, {"the same before the fault", before},
			{"the same after healing began", second}, {"time under half the earlier rate", slow},
			{"slowest single write", slowest}, {"restart to ready", restart},
		} {
			fmt.Fprintf(&b, "  %-44s %s\n", row.what, SpreadOf(row.all))
		}
		fmt.Fprintf(&b, "  %-44s %s\n", "writes/s in each 100 ms after the fault", rates(by[name]))
		fmt.Fprintf(&b, "  acknowledged %d, %d of them after more than %s, unknown %d, given up %d, LOST %d, DOUBLED %d, applied but denied %d\n",
			acked, over, short3(overTime), open, given, lost, doubled, ghosts)
	}
	return b.String()
}

// rates are acknowledged writes a second in each 100 ms after the fault, the mean of all rounds that lasted so long.
func rates(rounds []FailoverRound) string {
	var out []string
	for i := range int(afterTime / slowBucket) {
		sum, n := 0, 0
		for _, r := range rounds {
			if i < len(r.After) {
				sum, n = sum+r.After[i], n+1
			}
		}
		if n == 0 {
			break
		}
		out = append(out, fmt.Sprintf("%.0f", float64(sum)/float64(n)/slowBucket.Seconds()))
	}
	return strings.Join(out, " ")
}
