package state

import (
	"math"
	"strings"

	"perdure/id"
)

// FunctionCleanup begins the name under which the clean-ups of a function's cancelled executions wait for a
// worker. Only a worker that knows clean-ups takes them (Hello.cleanups); one that does not would run the
// function from its beginning.
const FunctionCleanup = "$cleanup:"

// The child numbers of clean-ups: the last ones there are, which no operation reaches. The first incarnation of an id
// takes the highest, and a later one the highest that is free.
const (
	LastCleanup  = math.MaxUint32
	FirstCleanup = LastCleanup - 1023
)

// CleanedUp returns the function whose execution a clean-up cleans up after; ok is false for another function.
func CleanedUp(function string) (cleaned string, ok bool) {
	return strings.CutPrefix(function, FunctionCleanup)
}

// CleanupID is the id of the clean-up that was started for a cancelled execution, "" if none was.
func (h *Header) CleanupID() string {
	if h.CleanupChild == 0 {
		return ""
	}
	return string(id.PromiseID(h.ID).Child(h.CleanupChild))
}

// IsCleanup reports whether an execution is the clean-up of another one.
func (h *Header) IsCleanup() bool {
	_, ok := CleanedUp(h.Function)
	return ok && h.ParentPromise == h.ID
}
