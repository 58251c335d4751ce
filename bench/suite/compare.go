package suite

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Binaries are the programs of one side of a comparison.
type Binaries struct {
	Name       string
	Node, Load string
	// Env is added to the environment of nodes.
	Env []string
}

// Verdict is what a comparison says about one figure. Ratios are new over old, one for each round.
type Verdict struct {
	Figure string    `json:"figure"`
	Ratios []float64 `json:"ratios"`
	Median float64   `json:"median"`
	// Low is a bound that the true ratio exceeds with a probability of at least 95 %, by the sign test.
	Low float64 `json:"low"`
	// Judged says that the figure decides, if it grows by more than Tolerance; the others are shown.
	Judged     bool    `json:"judged"`
	Tolerance  float64 `json:"tolerance,omitempty"`
	Regression bool    `json:"regression"`
}

// The growth of a cost that a comparison does not call a regression. How commands share entries and syncs depends on how
// fast they come, so those have another one.
const (
	Tolerance       = 0.02
	SharedTolerance = 0.10
)

// MinRounds is the least number of rounds that can show a regression.
const MinRounds = 5

// compared are the figures of a comparison, with their tolerance; 0 if they are only shown. What an execution costs
// decides: the rate moves with whatever else the machine does, and the work of an execution hardly does. A cost grows when
// it gets worse.
var compared = []struct {
	name      string
	tolerance float64
	of        func(Figures) float64
}{
	{"server CPU per unit", Tolerance, func(f Figures) float64 { return f.ServerCPU }},
	{"worker and client CPU per unit", Tolerance, func(f Figures) float64 { return f.WorkerCPU + f.ClientCPU }},
	{"allocations per unit", Tolerance, func(f Figures) float64 { return f.Allocations }},
	{"commands per unit", Tolerance, func(f Figures) float64 { return f.Commands }},
	{"entries per unit", SharedTolerance, func(f Figures) float64 { return f.Entries }},
	{"syncs per unit", SharedTolerance, func(f Figures) float64 { return f.Syncs }},
	{"time per unit at this rate", 0, func(f Figures) float64 { return 1 / f.PerSecond }},
	{"p50", 0, func(f Figures) float64 { return f.Latency.P50 }},
}

// turns are the sides of one round: the old, the new twice, the old. A machine whose speed changes steadily, and a turn
// that profits from the one before it, meet both sides alike.
var turns = []int{0, 1, 1, 0}

// Compare measures a cell on two clusters that both run all the time, in rounds of four turns. It returns all
// figures and a verdict for each compared figure.
func Compare(ctx context.Context, o Options, before, after Binaries, cell Cell) (all []Figures, verdicts []Verdict, err error) {
	if o.Rounds < MinRounds {
		return nil, nil, fmt.Errorf("%d rounds show no regression: at least %d are needed", o.Rounds, MinRounds)
	}
	sides := [2]Binaries{before, after}
	var stands [2]*stand
	defer func() {
		for _, s := range stands {
			if s != nil {
				err = errors.Join(err, s.close())
			}
		}
	}()
	for i, b := range sides {
		mine := o
		mine.Node, mine.Load, mine.Env = b.Node, b.Load, b.Env
		if stands[i], err = start(ctx, mine, cell.Nodes); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", b.Name, err)
		}
	}
	var rounds [2][]Figures
	for round := range o.Rounds {
		for _, i := range turns {
			f, err := stands[i].measure(ctx, cell)
			if err != nil {
				return all, nil, fmt.Errorf("%s: %v: %w", sides[i].Name, cell, err)
			}
			f.Round, f.Binary = round+1, sides[i].Name
			if o.Progress != nil {
				o.Progress(f)
			}
			rounds[i], all = append(rounds[i], f), append(all, f)
		}
	}
	for _, c := range compared {
		var ratios []float64
		for i := 0; i < len(rounds[0]); i += 2 { // the two turns of each side in a round
			if was := c.of(rounds[0][i]) + c.of(rounds[0][i+1]); was > 0 {
				ratios = append(ratios, (c.of(rounds[1][i])+c.of(rounds[1][i+1]))/was)
			}
		}
		v := judge(ratios, c.tolerance)
		v.Figure = c.name
		verdicts = append(verdicts, v)
	}
	return all, verdicts, nil
}

// judge decides whether ratios show a regression beyond their spread and a tolerance. A tolerance of 0 judges nothing.
func judge(ratios []float64, tolerance float64) Verdict {
	_, median, _ := Spread(ratios)
	v := Verdict{Ratios: ratios, Median: median, Judged: tolerance > 0, Tolerance: tolerance}
	if k := signBound(len(ratios)); k > 0 {
		v.Low = slices.Sorted(slices.Values(ratios))[k-1]
		v.Regression = v.Judged && v.Low > 1+tolerance
	}
	return v
}

// signBound returns the greatest k for which the k-th smallest of n values is above their true median with a
// probability of at most 5 %: fewer than k of n fair coins show tails. It is 0 if there is none.
func signBound(n int) int {
	p, sum := math.Pow(0.5, float64(n)), 0.0
	for k := range n {
		if sum += p; sum > 0.05 {
			return k
		}
		p = p * float64(n-k) / float64(k+1)
	}
	return 0
}
