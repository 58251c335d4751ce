package suite

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"perdure/bench/load"
	"perdure/bench/role"
	"perdure/bench/workload"
)

// offenders are what namespaces offer beside a cell, in multiples of their quotas.
var offenders = []struct {
	workload, namespace, quota string
	// rate is how many operations a second reach the quota.
	rate    float64
	payload int
}{
	// An execution is open for workload.HoldFor: at 50 starts a second 100 would be open.
	{workload.OverStarts, "bench-starts", "open:100,starts:50/s", 50, 64},
	// What a window of 10 s stores reaches the quota.
	{workload.OverBytes, "bench-bytes", "bytes:1MiB", 25, 4 << 10},
}

// OffenderTolerance is by how much namespaces beyond their quotas may lengthen what others wait, over namespaces that use them up.
const OffenderTolerance = 0.20

// usedUp is what a namespace offers to use a quota up, in multiples of it. Few starts may come at once: of those that come at the
// quota's own rate, at the leaders of some partitions, a sixth is refused.
const usedUp = 1.25

// The sides of a measurement of quotas, as Figures.Binary names them.
const (
	Alone  = "alone"
	Within = "beside quotas used up"
	Beyond = "beside quotas exceeded"
)

// offenderMargin is how much longer than a window offenders offer: a worker and a client start in that time.
const offenderMargin = 15 * time.Second

// Offended measures a cell, in rounds of six turns on one cluster: alone, beside namespaces that use up their quotas, and beside the
// same namespaces that offer so many times their quotas. What a quota admits costs others something by right, so the verdicts are of
// the cell beside quotas exceeded over the cell beside quotas used up. It returns all figures and these ratios for each round,
// and the ratios to the cell alone. The offenders' own processes yield the cores to the cluster: they would be elsewhere.
func Offended(ctx context.Context, o Options, cell Cell, times float64) (all []Figures, beyond, alone []Verdict, err error) {
	var quotas []string
	for _, x := range offenders {
		quotas = append(quotas, x.namespace+"="+x.quota)
	}
	o.Args = append(append([]string{}, o.Args...), "--quota", strings.Join(quotas, ","))
	s, err := start(ctx, o, cell.Nodes)
	if err != nil {
		return nil, nil, nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	sides := []struct {
		name  string
		times float64
	}{{Alone, 0}, {Within, usedUp}, {Beyond, times}}
	rounds := make([][]Figures, len(sides))
	for round := range o.Rounds {
		of := make([][]Figures, len(sides))
		for _, side := range []int{0, 1, 2, 2, 1, 0} {
			f, err := s.measureOffended(ctx, cell, sides[side].times)
			if err != nil {
				return all, nil, nil, fmt.Errorf("%v: %w", cell, err)
			}
			f.Round, f.Binary = round+1, sides[side].name
			if o.Progress != nil {
				o.Progress(f)
			}
			of[side], all = append(of[side], f), append(all, f)
		}
		for side := range sides {
			rounds[side] = append(rounds[side], together(of[side]))
		}
	}
	return all, ratios([2][]Figures{rounds[1], rounds[2]}, OffenderTolerance), ratios([2][]Figures{rounds[0], rounds[2]}, OffenderTolerance), nil
}

// together is what ratios compares of several turns: percentiles are of all their operations, so that a disk that stops once for a
// tenth of a second does not decide a round.
func together(turns []Figures) (all Figures) {
	latencies := load.NewHistogram()
	for _, f := range turns {
		all.PerSecond += f.PerSecond / float64(len(turns))
		latencies.Merge(f.latencies)
	}
	all.Latency, all.latencies = latencyOf(latencies), latencies
	return all
}

// measureOffended measures a cell while offenders offer so many times their quotas; 0 for none.
func (s *stand) measureOffended(ctx context.Context, cell Cell, times float64) (f Figures, err error) {
	if times == 0 {
		return s.measure(ctx, cell)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute+s.o.Warmup+s.o.Duration, errors.New("the offenders have not ended"))
	defer cancel()
	var clients []*role.Process
	var until time.Time // the offenders offer at least
	for _, x := range offenders {
		job, err := s.job(Cell{Workload: cell.Workload, Payload: x.payload})
		if err != nil {
			return f, err
		}
		job.Workload, job.Namespace, job.Yields = x.workload, x.namespace, true
		job.Load = load.Options{Concurrency: 256, Rate: x.rate * times, Duration: s.o.Warmup + s.o.Duration + offenderMargin}
		worker, err := role.StartWorker(ctx, s.o.Load, s.dir, job)
		if err != nil {
			return f, err
		}
		defer func() { err = errors.Join(err, worker.Close()) }()
		client, err := role.StartClient(s.o.Load, s.dir, job)
		if err != nil {
			return f, err
		}
		defer func() { err = errors.Join(err, client.Close()) }()
		if err := client.Begun(ctx); err != nil {
			return f, fmt.Errorf("%s: %w", x.workload, err)
		}
		if len(clients) == 0 {
			until = time.Now().Add(job.Load.Duration)
		}
		clients = append(clients, client)
	}
	if f, err = s.measure(ctx, cell); err != nil {
		return f, err
	}
	if time.Now().After(until) {
		return f, errors.New("the offenders ended before the window")
	}
	for i, client := range clients {
		r, err := client.Result(ctx, nil)
		if err != nil {
			return f, fmt.Errorf("%s: %w", offenders[i].workload, err)
		}
		name := offenders[i].namespace
		f.extra(name+": offered per second", r.Rate())
		f.extra(name+": admitted per second", r.Rate()*(1-r.Extra[workload.Refused]/float64(r.Begun)))
		f.extra(name+": refused, percent", 100*r.Extra[workload.Refused]/float64(r.Begun))
		f.extra(name+": p99 of its answers, ms", float64(r.Latency.ValueAtPercentile(99))/1000)
	}
	return f, nil
}
