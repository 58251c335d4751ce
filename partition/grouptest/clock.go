package grouptest

import (
	"sync"
	"time"
)

// HandClock is time that a test moves.
type HandClock struct {
	mu      sync.Mutex
	now     time.Time
	waiting map[*handTimer]struct{}
}

type handTimer struct {
	at time.Time
	c  chan time.Time
}

func NewHandClock() *HandClock {
	return &HandClock{now: time.UnixMilli(1_700_000_000_000), waiting: map[*handTimer]struct{}{}}
}

// Now implements Clock.
func (c *HandClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// After implements Clock.
func (c *HandClock) After(d time.Duration) (<-chan time.Time, func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &handTimer{at: c.now.Add(d), c: make(chan time.Time, 1)}
	if d <= 0 {
		t.c <- c.now
		return t.c, func() {}
	}
	c.waiting[t] = struct{}{}
	return t.c, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waiting, t)
	}
}

// Advance moves time forward.
func (c *HandClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	for t := range c.waiting {
		if !t.at.After(c.now) {
			t.c <- c.now
			delete(c.waiting, t)
		}
	}
}

// Timers returns when the timers fire that a goroutine waits for.
func (c *HandClock) Timers() (out []time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for t := range c.waiting {
		out = append(out, t.at)
	}
	return out
}

// Armed reports whether something waits for exactly that time from now.
func (c *HandClock) Armed(d time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for t := range c.waiting {
		if t.at.Equal(c.now.Add(d)) {
			return true
		}
	}
	return false
}
