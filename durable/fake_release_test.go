package durable

import (
	"strconv"

	perdurev1 "perdure/api/perdure/v1"
)

// released waits for the n-th release (from 1) and returns it.
func (f *fakeServer) released(n int) *perdurev1.Release {
	f.t.Helper()
	f.wait("release "+strconv.Itoa(n), func() bool { return len(f.releases) >= n })
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.releases[n-1]
}
