package suite

import (
	"slices"
	"strings"
	"testing"
	"time"

	"perdure/bench/load"
)

// TestRetainedRefuses: what has no window for each round is refused before anything starts.
func TestRetainedRefuses(t *testing.T) {
	for _, c := range []struct {
		rounds int
		total  int64
	}{{0, 1000}, {retainedWindows, 1000}, {1, retainedWindows - 1}} {
		if _, _, err := Retained(t.Context(), Options{Rounds: c.rounds}, Cell{}, c.total); err == nil || !strings.Contains(err.Error(), "are possible") {
			t.Errorf("%d rounds of %d executions: %v", c.rounds, c.total, err)
		}
	}
}

// TestRatios: each round is one ratio, and a side that takes longer by more than the tolerance in nearly all rounds is a regression.
func TestRatios(t *testing.T) {
	var rounds [2][]Figures
	for i := range 8 {
		rounds[0] = append(rounds[0], Figures{PerSecond: 100, Latency: Latency{P50: 1, P99: 10}})
		rounds[1] = append(rounds[1], Figures{PerSecond: 80, Latency: Latency{P50: 1, P99: 10 + float64(i%2)}})
	}
	for _, v := range ratios(rounds, 0.15) {
		if want := v.Figure == "time per unit at this rate"; v.Regression != want || len(v.Ratios) != 8 {
			t.Errorf("%+v", v)
		}
	}
}

// TestRelative: what one side takes longer before purges is not theirs.
func TestRelative(t *testing.T) {
	sides := func(p99 float64) (out [2][]Figures) {
		for range 8 {
			out[0] = append(out[0], Figures{PerSecond: 100, Latency: Latency{P50: 1, P99: 10}})
			out[1] = append(out[1], Figures{PerSecond: 100, Latency: Latency{P50: 1, P99: p99}})
		}
		return out
	}
	for _, c := range []struct {
		before float64
		want   bool
	}{{10, true}, {11, false}} {
		for _, v := range relative(sides(12), sides(c.before), 0.15) {
			if want := c.want && v.Figure == "p99, over that before purges"; v.Regression != want || len(v.Ratios) != 8 {
				t.Errorf("with %v ms before: %+v", c.before, v)
			}
		}
	}
}

// TestTogether: a stop that makes few operations of one turn slow is not the 99th percentile of all turns.
func TestTogether(t *testing.T) {
	turn := func(rate float64, slow time.Duration) Figures {
		h := load.NewHistogram()
		for n := range 500 {
			d := 10 * time.Millisecond
			if n < 8 {
				d = slow
			}
			load.Record(h, d)
		}
		return Figures{PerSecond: rate, Latency: latencyOf(h), latencies: h}
	}
	steady, stopped := turn(40, 12*time.Millisecond), turn(60, 300*time.Millisecond)
	if got := stopped.Latency.P99; got < 299 {
		t.Errorf("a turn's p99 is %v ms", got)
	}
	m := together([]Figures{steady, stopped})
	if m.PerSecond != 50 || m.Latency.P50 < 9.9 || m.Latency.P99 > 12.1 || m.Latency.Max < 299 {
		t.Errorf("together %+v", m)
	}
}

// TestRatiosOfAllRounds: a stop in one round decides that round's p99, and not that of all rounds together.
func TestRatiosOfAllRounds(t *testing.T) {
	round := func(normal time.Duration, slow int) Figures {
		h := load.NewHistogram()
		for n := range 1000 {
			d := normal
			if n < slow {
				d = 300 * time.Millisecond
			}
			load.Record(h, d)
		}
		return Figures{PerSecond: 50, Latency: latencyOf(h), latencies: h}
	}
	rounds := [2][]Figures{
		{round(10*time.Millisecond, 0), round(10*time.Millisecond, 0)},
		{round(11*time.Millisecond, 0), round(11*time.Millisecond, 15)},
	}
	v := ratios(rounds, 0.2)
	if p99 := v[2]; p99.Figure != "p99" || slices.Max(p99.Ratios) < 20 {
		t.Errorf("of each round: %+v", p99)
	}
	all := v[len(v)-1]
	if all.Figure != allRounds || all.Judged || all.Median < 1.05 || all.Median > 1.15 {
		t.Errorf("of all rounds: %+v", all)
	}
	rounds[1][1].latencies = nil
	if v := ratios(rounds, 0.2); len(v) != 3 {
		t.Errorf("without what was measured: %+v", v)
	}
}
