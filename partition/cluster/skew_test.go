package cluster

import (
	"testing"
	"time"
)

// Between two comparisons of clocks stamps follow the monotonic clock, whatever the clock is set to. After a
// comparison they are within half a second of the others' median.
func TestStampAfterStep(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name                 string
		ahead, elapsed, want time.Duration
	}{
		{"with the others", 0, time.Second, time.Second},
		{"a little ahead", 300 * time.Millisecond, time.Second, time.Second},
		{"far ahead", 20 * time.Second, time.Second, time.Second - 20*time.Second},
		{"a little behind", -300 * time.Millisecond, time.Second, time.Second},
		{"far behind", -20 * time.Second, time.Second, time.Second + 20*time.Second},
	} {
		last := &comparison{at: at, ahead: c.ahead}
		if got := last.stamp(c.elapsed).Sub(at); got != c.want {
			t.Errorf("%s: stamped %v after the comparison, expected %v", c.name, got, c.want)
		}
	}
}
