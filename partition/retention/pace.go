package retention

import (
	"time"

	"perdure/fsm/machine"
)

const (
	// share is the part of the time that a round over a partition spends in its pieces at most, proposals included; it pauses for the
	// rest.
	share = 0.25
	// spread is over which part of the time between two rounds a round goes, spreadMost bounds that time.
	spread     = 0.8
	spreadMost = time.Minute
	// expectedLeast is how much a round expects to find at least: after a time without ends, a piece is not paused for long.
	expectedLeast = 4 * machine.MaxPurges
)

// pace spreads the purges of a round over a partition evenly over a time, so that others do not wait for many at once. It expects as
// many as the round before has found. Where there are more, the rest follows at the pace that share allows.
type pace struct {
	ends     time.Time
	whole    time.Duration
	expected int
}

// newPace makes the pace of a round that begins now.
func newPace(now time.Time, within time.Duration, expected int) pace {
	return pace{ends: now.Add(within), whole: within, expected: max(expected, expectedLeast)}
}

// pause is how long the round pauses after a piece that has taken a time until now, and has found so many.
func (p pace) pause(now time.Time, worked time.Duration, found int) time.Duration {
	least := time.Duration(float64(worked) * (1 - share) / share)
	return max(least, min(p.of(found), p.ends.Sub(now)))
}

// of is the part of the time for so many.
func (p pace) of(found int) time.Duration {
	return time.Duration(float64(p.whole) * min(float64(found)/float64(p.expected), 1))
}
