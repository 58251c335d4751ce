package testkit

import (
	"flag"
	"testing"
)

var long = flag.Bool("long", false, "run what takes minutes too: all planted bugs, many seeds, every fault of a cluster")

// Long reports whether the flag -long is given without -short.
func Long() bool { return *long && !testing.Short() }

// Choose returns how much a test does: short with -short, much with -long, and normal without either.
func Choose[T any](short, normal, much T) T {
	switch {
	case testing.Short():
		return short
	case *long:
		return much
	}
	return normal
}

// NeedsLong skips a test unless the flag -long is given. The reason names the test that covers the rule
// otherwise, or the cost.
func NeedsLong(t testing.TB, reason string) {
	t.Helper()
	if !Long() {
		t.Skipf("runs with -long only: %s", reason)
	}
}
