package partition

import (
	"testing"
	"time"
)

// TestActivity: a node is busy while it applies busyRate entries a second, also after a replica was replaced by one that has applied
// fewer.
func TestActivity(t *testing.T) {
	at := &movingClock{Clock: SystemClock{}, now: time.UnixMilli(1_700_000_000_000)}
	applied := uint64(1000)
	a := &activity{clock: at, at: at.now, last: applied, applied: func() uint64 { return applied }}
	for i, c := range []struct {
		entries int
		within  time.Duration
		want    bool
	}{
		{0, time.Second, false}, {busyRate - 1, time.Second, false}, {busyRate, time.Second, true}, {1, 50 * time.Millisecond, true},
		{1, 200 * time.Millisecond, false}, {-900, time.Second, false}, {100, 0, true}, {0, time.Hour, false},
	} {
		applied += uint64(c.entries)
		at.now = at.now.Add(c.within)
		if got := a.busy(); got != c.want {
			t.Errorf("%d: %d entries in %v: %v", i, c.entries, c.within, got)
		}
	}
}

// movingClock is a clock that the test sets.
type movingClock struct {
	Clock
	now time.Time
}

func (c *movingClock) Now() time.Time { return c.now }
