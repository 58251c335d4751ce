package testkit

import (
	"testing"
	"time"
)

// maxPause is the longest time between two checks.
const maxPause = 5 * time.Millisecond

// Eventually blocks until is returns true and fails the test after limit; see, if not nil, returns what was seen last.
// Checks begin close together and end up 5 ms apart.
func Eventually(t testing.TB, limit time.Duration, what string, is func() bool, see func() string) {
	t.Helper()
	deadline := time.Now().Add(limit)
	pause := time.NewTimer(0)
	defer pause.Stop()
	for next := 50 * time.Microsecond; !is(); next = min(2*next, maxPause) {
		if !time.Now().Before(deadline) {
			seen := ""
			if see != nil {
				seen = "; last seen: " + see()
			}
			t.Fatalf("waited %v for %s%s", limit, what, seen)
		}
		pause.Reset(next)
		<-pause.C
	}
}

// EventuallyNil blocks until check returns nil and fails the test after limit with its last error.
func EventuallyNil(t testing.TB, limit time.Duration, what string, check func() error) {
	t.Helper()
	var err error
	Eventually(t, limit, what, func() bool { err = check(); return err == nil }, func() string { return err.Error() })
}

// EventuallySeen blocks until read returns true and fails the test after limit with the state that it saw last.
func EventuallySeen(t testing.TB, limit time.Duration, what string, read func() (state string, ok bool)) {
	t.Helper()
	state, ok := "", false
	Eventually(t, limit, what, func() bool { state, ok = read(); return ok }, func() string { return state })
}
