package testkit

import "time"

// Scaled returns d for a plain build, and a multiple of it under the race detector: for a time-out by whose end a
// healthy part of the system must have answered, as an election's. Without it, a test of what happens when a leader dies
// sees leaders deposed that are only slow.
func Scaled(d time.Duration) time.Duration { return slower * d }
