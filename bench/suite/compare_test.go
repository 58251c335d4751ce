package suite

import (
	"math/rand/v2"
	"testing"
)

// TestSignBound: the bounds of the table of the sign test, one-sided, at 5 %.
func TestSignBound(t *testing.T) {
	for n, want := range map[int]int{0: 0, 1: 0, 4: 0, 5: 1, 7: 1, 8: 2, 10: 2, 11: 3, 13: 4, 15: 4, 20: 6} {
		if got := signBound(n); got != want {
			t.Errorf("of %d values: %d, not %d", n, got, want)
		}
	}
}

// TestJudge: a growth beyond the spread is a regression; one within it, one that is tolerated, and an
// improvement are none.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		what   string
		ratios []float64
		want   bool
	}{
		{"ten per cent, with outliers", []float64{1.09, 1.11, 1.10, 0.98, 1.12, 1.08, 1.13, 1.30, 1.07, 0.99, 1.10}, true},
		{"noise", []float64{1.05, 0.95, 1.20, 0.85, 1.01, 1.00, 1.10, 0.92, 1.04, 0.99, 1.02}, false},
		{"one per cent", []float64{1.01, 1.01, 1.01, 1.01, 1.01, 1.01, 1.01, 1.01}, false},
		{"better", []float64{0.9, 0.91, 0.92, 0.9, 0.89}, false},
		{"too few", []float64{2, 2, 2, 2}, false},
		{"five", []float64{1.1, 1.2, 1.1, 1.3, 1.05}, true},
		{"nothing", nil, false},
	} {
		if got := judge(c.ratios, Tolerance); got.Regression != c.want {
			t.Errorf("%s: %+v", c.what, got)
		}
	}
}

// TestJudgeTolerates: each figure has a tolerance of its own, and one without is never a regression.
func TestJudgeTolerates(t *testing.T) {
	ratios := []float64{1.05, 1.06, 1.05, 1.07, 1.06, 1.05, 1.06, 1.05}
	for tolerance, want := range map[float64]bool{0: false, Tolerance: true, SharedTolerance: false} { //lint:sorted each is judged by itself
		if got := judge(ratios, tolerance); got.Regression != want || got.Judged != (tolerance > 0) {
			t.Errorf("a growth of 5 %% at a tolerance of %g: %+v", tolerance, got)
		}
	}
}

// TestRates: how often the short form's rounds find a growth of a tenth, and how often they see one in equal commits, for
// ratios that spread as measured ones do.
func TestRates(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const tries, rounds = 4000, 8
	alarms := func(growth, spread float64) float64 {
		n := 0
		for range tries {
			var ratios []float64
			for range rounds {
				ratios = append(ratios, 1+growth+spread*random.NormFloat64())
			}
			if judge(ratios, Tolerance).Regression {
				n++
			}
		}
		return float64(n) / tries
	}
	for _, c := range []struct{ spread, most, least float64 }{
		{0.02, 0.001, 0.99}, // an idle machine
		{0.04, 0.005, 0.95},
		{0.08, 0.02, 0.40}, // one where others work
	} {
		wrong, right := alarms(0, c.spread), alarms(0.1, c.spread)
		t.Logf("a spread of %g: %.2f %% false alarms, %.1f %% of growths by a tenth found", c.spread, 100*wrong, 100*right)
		if wrong > c.most || right < c.least {
			t.Errorf("a spread of %g: %g false alarms, at most %g, and %g found, at least %g", c.spread, wrong, c.most, right, c.least)
		}
	}
}
