package suite

import "testing"

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
		if got := judge(c.ratios); got.Regression != c.want {
			t.Errorf("%s: %+v", c.what, got)
		}
	}
}
