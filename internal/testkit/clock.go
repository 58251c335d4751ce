package testkit

import (
	"testing"
	"time"
	"unsafe"
)

// Reading is the system clock's reading after both its parts advanced, or were set, since an earlier reading
// that has both: a suspended machine's monotonic clock stops, and the wall clock may be set. Package time
// cannot make a Time whose parts advanced differently, so Reading changes the monotonic part, its second
// word.
func Reading(t *testing.T, from time.Time, wall, monotonic time.Duration) time.Time {
	t.Helper()
	to := from.Add(wall)
	(*struct{ wall, ext int64 })(unsafe.Pointer(&to)).ext += int64(monotonic - wall)
	if to.Sub(from) != monotonic || to.Round(0).Sub(from.Round(0)) != wall {
		t.Fatalf("a time.Time has another layout: %v and %v", to.Sub(from), to.Round(0).Sub(from.Round(0)))
	}
	return to
}
