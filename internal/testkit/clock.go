package testkit

import (
	"testing"
	"time"
	"unsafe"
)

// Reading is what the system's clock shows after both its parts went on, or were set, since an earlier reading that has
// both: a suspended machine's monotonic clock stands, the wall's clock may be set. The package time makes no Time whose
// parts went on differently, so the monotonic one, its second word, is changed here.
func Reading(t *testing.T, from time.Time, wall, monotonic time.Duration) time.Time {
	t.Helper()
	to := from.Add(wall)
	(*struct{ wall, ext int64 })(unsafe.Pointer(&to)).ext += int64(monotonic - wall)
	if to.Sub(from) != monotonic || to.Round(0).Sub(from.Round(0)) != wall {
		t.Fatalf("a time.Time has another layout: %v and %v", to.Sub(from), to.Round(0).Sub(from.Round(0)))
	}
	return to
}
