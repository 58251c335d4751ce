package cluster

import (
	"log/slog"
	"sync/atomic"
	"time"

	"perdure/internal/clock"
)

// maxAhead is how far a leader's clock may be from the median of the members' clocks, before it or behind.
const maxAhead = 500 * time.Millisecond

// clockJump is a change of a node's stamps that timers have to hear of: they wait by the clock that nobody sets.
const clockJump = 20 * time.Millisecond

// skew corrects the clock by comparisons with the other members' clocks.
type skew struct {
	clock clock.Clock
	ahead func() time.Duration // nil for a node alone
	log   *slog.Logger
	last  atomic.Pointer[comparison]
}

// comparison is one comparison of this node's clock with the other members'. It holds for stamps until the next one.
type comparison struct {
	// at is when this node's clock was read; ahead is how far it is before the median of all, 0 if unknown.
	at    time.Time
	ahead time.Duration
}

// correction is what has to be taken from the clock: nothing, or, when it is further than maxAhead from the median, all
// that it differs by.
func (c *comparison) correction() time.Duration {
	if c.ahead.Abs() <= maxAhead {
		return 0
	}
	return c.ahead
}

// stamp is the time to stamp an entry with, elapsed after the comparison by the monotonic clock. A clock that was set
// since counts as not set: how far it is from the others is not known yet. A stamp from the future would expire what is
// not due, and freeze time for every later leader.
func (c *comparison) stamp(elapsed time.Duration) time.Time {
	return c.at.Add(elapsed - c.correction())
}

// Now is the time that entries are stamped with: the machine's, but not far from the others', so that one wrong clock
// neither lets expire what is not due nor holds up what is.
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
		s.log.Warn("clock corrected", "event", "clock_differs", "ahead", now.ahead)
	}
	return now.stamp(0).Sub(before.stamp(now.at.Sub(before.at)).Round(0)).Abs() >= clockJump
}
