package partition

import (
	"testing"
	"time"
)

// Between two looks at the others' clocks stamps go on as time does, whatever the clock is set to; after a look they are
// within half a second of the others' median.
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
		look := &clockLook{at: at, ahead: c.ahead}
		if got := look.stamp(c.elapsed).Sub(at); got != c.want {
			t.Errorf("%s: stamped %v after the look, expected %v", c.name, got, c.want)
		}
	}
}
