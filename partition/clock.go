package partition

import (
	"time"

	"perdure/internal/clock"
)

// Clock is the time of a node; SystemClock the machine's.
type (
	Clock       = clock.Clock
	SystemClock = clock.System
)

// maxAhead is how far a leader's clock may be from the median of the members' clocks, before it or behind.
const maxAhead = 500 * time.Millisecond

// clockJump is a change of a node's stamps that timers have to hear of: they wait by the clock that nobody sets.
const clockJump = 20 * time.Millisecond

// clockLook is a comparison of this node's clock with the other members'. It holds for stamps until the next one.
type clockLook struct {
	// at is when this node's clock was read; ahead is how far it is before the median of all, 0 if unknown.
	at    time.Time
	ahead time.Duration
}

// correction is what has to be taken from the clock: nothing, or, when it is further than maxAhead from the median, all
// that it differs by.
func (l *clockLook) correction() time.Duration {
	if l.ahead.Abs() <= maxAhead {
		return 0
	}
	return l.ahead
}

// stamp is the time to stamp an entry with, elapsed after the look by a clock that nobody sets. A clock that was set since
// the look counts as not set: how far it is from the others is not known yet. A stamp from the future would expire what is
// not due, and freeze time for every later leader.
func (l *clockLook) stamp(elapsed time.Duration) time.Time {
	return l.at.Add(elapsed - l.correction())
}

// compareClock compares the clock with the others', and tells the timers when stamps jump by it.
func (n *Node) compareClock() {
	if n.cfg.Ahead == nil {
		return
	}
	look := &clockLook{at: n.clock.Now(), ahead: n.cfg.Ahead()}
	before := n.looked.Swap(look)
	if before == nil {
		before = &clockLook{at: look.at}
	}
	if look.correction() != 0 && before.correction() == 0 {
		n.log.Warn("this node's clock differs from the others' and is corrected", "event", "clock_differs", "ahead", look.ahead)
	}
	if jump := look.stamp(0).Sub(before.stamp(look.at.Sub(before.at)).Round(0)); jump.Abs() < clockJump {
		return
	}
	for _, r := range n.router.Replicas() {
		if l := r.serving(); l != nil {
			l.timer.look()
		}
	}
}
