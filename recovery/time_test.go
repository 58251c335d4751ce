package recovery

import (
	"math"
	"testing"
)

// A sum that overflows is the latest time, never a past one.
func TestAfter(t *testing.T) {
	for _, c := range []struct{ now, d, want int64 }{
		{5, 7, 12},
		{5, 0, 6},
		{5, math.MinInt64, 6},
		{5, math.MaxInt64 - 5, math.MaxInt64},
		{5, math.MaxInt64 - 4, math.MaxInt64},
		{5, math.MaxInt64, math.MaxInt64},
		{math.MaxInt64, 1, math.MaxInt64},
		{-5, math.MaxInt64, math.MaxInt64 - 5},
	} {
		if got := after(c.now, c.d); got != c.want {
			t.Errorf("%d after %d is %d, want %d", c.d, c.now, got, c.want)
		}
	}
}
