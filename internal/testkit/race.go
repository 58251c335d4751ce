//go:build race

package testkit

// slower is how many times longer the same work takes under the race detector.
const slower = 4
