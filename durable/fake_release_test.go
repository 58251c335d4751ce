package durable

import (
	"strconv"

	perdurev1 "perdure/api/perdure/v1"
)

// endsUnreleased waits until an execution ends and returns true, or until a task was given back.
func (f *fakeServer) endsUnreleased(id string) bool {
	f.t.Helper()
	released := false
	f.wait("the end of "+id+" or a release", func() bool {
		released = len(f.releases) > 0
		return released || f.execs[id] != nil && f.execs[id].j.Status().Terminal()
	})
	return !released
}

// released waits for the n-th release (from 1) and returns it.
func (f *fakeServer) released(n int) *perdurev1.Release {
	f.t.Helper()
	f.wait("release "+strconv.Itoa(n), func() bool { return len(f.releases) >= n })
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.releases[n-1]
}
