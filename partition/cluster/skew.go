package cluster

import (
	"log/slog"
	"sync/atomic"
	"time"

	"perdure/internal/clock"
)

// maxAhead bounds the offset of a leader's clock from the median of the members' clocks, ahead or behind.
const maxAhead = 500 * time.Millisecond

// clockJump is the least jump of Now that timers must learn of: they wait by the monotonic clock.
const clockJump = 20 * time.Millisecond

// skew corrects the clock by comparisons with the other members' clocks.
type skew struct {
	clock clock.Clock
	ahead func() time.Duration // nil for a node alone
	log   *slog.Logger
	last  atomic.Pointer[comparison]
}

// comparison is one comparison of this node's clock with the other members'. Stamps use it until the next
// one.
type comparison struct {
	// at is when this node's clock was read; ahead is how far it is before the median of all, 0 if unknown.
	at    time.Time
	ahead time.Duration
}

// correction returns what to subtract from the clock: nothing within maxAhead of the median, else the whole
// offset.
func (c *comparison) correction() time.Duration {
	if c.ahead.Abs() <= maxAhead {
		return 0
	}
	return c.ahead
}

// stamp returns the time to stamp an entry with, elapsed after the comparison by the monotonic clock. It
// ignores a clock that was set since the comparison: its offset from the others is not known yet. A stamp
// from the future would expire deadlines too early, and stop time for every later leader.
func (c *comparison) stamp(elapsed time.Duration) time.Time {
	return c.at.Add(elapsed - c.correction())
}

// Now returns the time that entries are stamped with: the machine's, within maxAhead of the median of all
// members. So one wrong clock neither expires deadlines too early nor delays them.
func (m *Member) Now() time.Time {
	t := m.Clock.Now()
	c := m.skew.last.Load()
	if c == nil {
		return t
	}
	return c.stamp(t.Sub(c.at))
}

// CompareClock compares the clock with the others', and calls Env.ClockJumped when Now jumps by it.
func (m *Member) CompareClock() {
	if m.skew.compare() {
		m.Env.ClockJumped()
	}
}

// compare reports whether stamps jump by the comparison.
func (s *skew) compare() (jumped bool) {
	if s.ahead == nil {
		return false
	}
	now := &comparison{at: s.clock.Now(), ahead: s.ahead()}
	before := s.last.Swap(now)
	if before == nil {
		before = &comparison{at: now.at}
	}
	if now.correction() != 0 && before.correction() == 0 {
		s.log.Warn("clock differs from other nodes", "event", "clock_differs", "ahead", now.ahead)
	}
	return now.stamp(0).Sub(before.stamp(now.at.Sub(before.at)).Round(0)).Abs() >= clockJump
}
