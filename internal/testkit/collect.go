package testkit

import (
	"os"
	"runtime/debug"
)

// gcPercent makes the garbage collector of a test binary run a quarter as often. Tests allocate much and keep little:
// a sixth of their processor time went to the collector.
const gcPercent = 400

func init() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
