package partition

import "time"

// Clock is time as the partitions see it, so that a simulator can replace it.
type Clock interface {
	Now() time.Time
	// After sends once on the channel when d has passed; stop frees the timer early.
	After(d time.Duration) (c <-chan time.Time, stop func())
}

// SystemClock is the machine's clock.
type SystemClock struct{}

// Now implements Clock.
func (SystemClock) Now() time.Time { return time.Now() }

// After implements Clock.
func (SystemClock) After(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}
