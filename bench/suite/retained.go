package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"perdure/bench/cluster"
	"perdure/internal/overlay"
)

// A measurement of retention goes through windows, in which the nodes' clocks run fast: a node built with overlay.Faults takes its
// time from the machine and from a file. So as many executions become older than retained as end meanwhile.
const (
	retained        = time.Hour
	retainedWindows = 64
	// clockSpeed is how fast the clocks run in a window: an hour is two minutes. clockStep is the time between two writes of the file.
	clockSpeed = 30
	clockStep  = 20 * time.Millisecond
	// retainedLease is the workers' lease, by the nodes' clocks. A session tells its node rarely that it heard from the worker, so
	// a window that takes longer gets no tasks.
	retainedLease = 10 * time.Minute
	// purgeTimeout bounds the wait for what a window should have purged.
	purgeTimeout = 5 * time.Minute
)

// RetainedTolerance is by how much purges may lengthen a unit's time at full rate and the 99th percentile.
const RetainedTolerance = 0.15

// The sides of a measurement of retention, as Figures.Binary names them.
const (
	Purging = "purging"
	Keeping = "keeping"
)

// The figures of a window of a measurement of retention, in Figures.Extra.
const (
	MachineHours = "machine time, h"
	Executed     = "executions that have ended"
	KeptNow      = "executions kept"
	FilesMB      = "files, MB"
	HeapMB       = "heap in use, MB"
	PurgeBehind  = "purges ended after the window, ms"
)

// Retained runs total executions of a cell in windows on a cluster that keeps what has ended for an hour of the nodes' time, which runs
// fast. It runs as many on a cluster that keeps everything, before or after them in turns, while the other one is idle: in all windows
// of the first hour, so that both store as much when purges begin, and then in o.Rounds of the windows that purge. It returns the
// figures of all windows, and the purging side over the other one for each round: as it is, and relative to the windows before purges.
func Retained(ctx context.Context, o Options, cell Cell, total int64) (all []Figures, verdicts []Verdict, err error) {
	if o.Rounds < 1 || o.Rounds > retainedWindows/2 || total < retainedWindows {
		return nil, nil, fmt.Errorf("%d executions and %d rounds: at least %d, and 1 to %d, are possible", total, o.Rounds, retainedWindows, retainedWindows/2)
	}
	o.Count, o.Rate, o.Lease = total/retainedWindows, 0, retainedLease
	var purging, keeping *aged
	defer func() {
		for _, s := range []*aged{purging, keeping} {
			if s != nil {
				err = errors.Join(err, s.close())
			}
		}
	}()
	if purging, err = startAged(ctx, o, cell, Purging, retained.String()); err != nil {
		return nil, nil, err
	}
	if keeping, err = startAged(ctx, o, cell, Keeping, "forever"); err != nil {
		return nil, nil, err
	}
	var before, rounds [2][]Figures
	first, every, turn := 0, 0, 0
	for w := range retainedWindows {
		if every == 0 && purging.ahead > retained {
			first, every = w, max((retainedWindows-w)/o.Rounds, 1)
		}
		filling := every == 0
		paired := !filling && (w-first)%every == 0 && len(rounds[0]) < o.Rounds
		sides := []*aged{purging}
		if filling || paired {
			sides = []*aged{keeping, purging}
			if turn++; turn%2 == 0 {
				sides = []*aged{purging, keeping}
			}
		}
		for _, s := range sides {
			f, err := s.window(ctx, cell)
			if err != nil {
				return all, nil, fmt.Errorf("%s, window %d: %w", s.name, w+1, err)
			}
			f.Round = w + 1
			if o.Progress != nil {
				o.Progress(f)
			}
			all = append(all, f)
			switch {
			case filling && s == keeping:
				before[0] = append(before[0], f)
			case filling:
				before[1] = append(before[1], f)
			case s == keeping:
				rounds[0] = append(rounds[0], f)
			case paired:
				rounds[1] = append(rounds[1], f)
			}
		}
	}
	if len(rounds[0]) < o.Rounds {
		return all, nil, fmt.Errorf("the windows took %v of the nodes' time, too little for %d rounds after the first %v: more executions take longer",
			purging.ahead.Round(time.Minute), o.Rounds, retained)
	}
	return all, append(ratios(rounds, RetainedTolerance), relative(rounds, before, RetainedTolerance)...), nil
}

// relative is ratios over the medians of what ratios says of the same two sides before: two clusters differ a little by themselves, for
// as long as they run, since other nodes lead other partitions.
func relative(rounds, before [2][]Figures, tolerance float64) (out []Verdict) {
	alone := ratios(before, 0)
	for i, v := range ratios(rounds, 0) {
		var all []float64
		for _, r := range v.Ratios {
			all = append(all, r/alone[i].Median)
		}
		judged := tolerance
		if v.Figure == allRounds {
			judged = 0
		}
		to := judge(all, judged)
		to.Figure = v.Figure + ", over that before purges"
		out = append(out, to)
	}
	return out
}

// allRounds is a figure of which there is one ratio, which is shown only.
const allRounds = "p99 of all rounds together"

// ratios compares time per unit and percentiles of two sides, of which each element is a round, and the 99th percentile of each side's
// operations in all rounds, which a disk that stops in one round does not decide.
func ratios(rounds [2][]Figures, tolerance float64) (out []Verdict) {
	for _, c := range []struct {
		name string
		of   func(Figures) float64
	}{
		{"time per unit at this rate", func(f Figures) float64 { return 1 / f.PerSecond }},
		{"p50", func(f Figures) float64 { return f.Latency.P50 }},
		{"p99", func(f Figures) float64 { return f.Latency.P99 }},
	} {
		var all []float64
		for i := range min(len(rounds[0]), len(rounds[1])) {
			all = append(all, c.of(rounds[1][i])/c.of(rounds[0][i]))
		}
		v := judge(all, tolerance)
		v.Figure = c.name
		out = append(out, v)
	}
	unknown := func(f Figures) bool { return f.latencies == nil }
	if len(rounds[0]) == 0 || len(rounds[1]) == 0 || slices.ContainsFunc(rounds[0], unknown) || slices.ContainsFunc(rounds[1], unknown) {
		return out
	}
	v := judge([]float64{together(rounds[1]).Latency.P99 / together(rounds[0]).Latency.P99}, 0)
	v.Figure = allRounds
	return append(out, v)
}

// aged is a cluster whose clocks run fast in its windows.
type aged struct {
	*stand
	name string
	// clocks is the file by which the nodes' clocks are ahead, in a folder of its own.
	clocks string
	ahead  time.Duration
	// ended are the windows' executions, with the nodes' time at which the last of each had ended.
	ended []endedAt
}

type endedAt struct {
	at time.Time
	n  int64
}

// startAged starts a cluster that keeps what has ended for so long.
func startAged(ctx context.Context, o Options, cell Cell, name, keep string) (*aged, error) {
	dir, err := os.MkdirTemp(o.Parent, "perdure-bench-clock-")
	if err != nil {
		return nil, err
	}
	s := &aged{name: name, clocks: filepath.Join(dir, "clock")}
	o.Env = append(append([]string{}, o.Env...), overlay.FaultsEnv+"="+s.clocks)
	o.Args = append(append([]string{}, o.Args...), "--retention", keep, "--retention-interval", "1s")
	if s.stand, err = start(ctx, o, cell.Nodes); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), os.RemoveAll(dir))
	}
	// Only under load: an idle worker sends too little to be heard by clocks that run fast.
	s.during = s.hurry
	return s, nil
}

func (s *aged) close() error {
	return errors.Join(s.stand.close(), os.RemoveAll(filepath.Dir(s.clocks)))
}

// now is the nodes' time.
func (s *aged) now() time.Time { return time.Now().Add(s.ahead) }

// hurry lets the clocks run fast until stop, which returns why that failed.
func (s *aged) hurry() (stop func() error) {
	ended, failed := make(chan struct{}), make(chan error, 1)
	before, begun := s.ahead, time.Now()
	go func() {
		t := time.NewTicker(clockStep)
		defer t.Stop()
		for {
			s.ahead = before + (clockSpeed-1)*time.Since(begun)
			if err := overlay.WriteFaults(s.clocks, s.ahead, 0); err != nil {
				failed <- err
				return
			}
			select {
			case <-t.C:
			case <-ended:
				failed <- nil
				return
			}
		}
	}()
	return func() error {
		close(ended)
		return <-failed
	}
}

// window measures the cell while the clocks run fast, and waits until all that is over at its end is purged.
func (s *aged) window(ctx context.Context, cell Cell) (f Figures, err error) {
	begun := time.Now()
	if f, err = s.measure(ctx, cell); err != nil {
		if took := time.Since(begun); took > retainedLease/clockSpeed {
			err = fmt.Errorf("the window took %v, longer than a lease, which lasts %v while clocks run fast: %w", took.Round(time.Second), retainedLease/clockSpeed, err)
		}
		return f, err
	}
	s.ended = append(s.ended, endedAt{s.now(), f.Begun})
	f.Binary = s.name
	var ended, over int64
	for _, e := range s.ended {
		ended += e.n
		if s.name == Purging && s.now().Sub(e.at) > retained {
			over += e.n
		}
	}
	behind := time.Now()
	used, err := s.awaitPurged(ctx, over)
	if err != nil {
		return f, err
	}
	bytes, err := s.cluster.Stored()
	f.extra(PurgeBehind, float64(time.Since(behind).Milliseconds()))
	f.extra(MachineHours, s.ahead.Hours())
	f.extra(Executed, float64(ended))
	f.extra(KeptNow, float64(ended)-used.Metrics[purgedMetric])
	f.extra(FilesMB, float64(bytes)/1e6)
	f.extra(HeapMB, used.Metrics[heapMetric]/1e6)
	return f, err
}

// awaitPurged waits until the cluster has purged so many executions, and returns what its nodes have used.
func (s *aged) awaitPurged(ctx context.Context, n int64) (used cluster.Usage, err error) {
	for begun := time.Now(); time.Since(begun) < purgeTimeout; {
		if used, err = s.cluster.Usage(ctx); err != nil || used.Metrics[purgedMetric] >= float64(n) {
			return used, err
		}
		select {
		case <-ctx.Done():
			return used, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
	return used, fmt.Errorf("%.0f of %d executions that are over are purged %v after the window", used.Metrics[purgedMetric], n, purgeTimeout)
}
