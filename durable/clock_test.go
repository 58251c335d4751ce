package durable

import (
	"slices"
	"sync"
	"testing"
	"time"
)

// fakeClock stops until a test moves it, one wait at a time.
type fakeClock struct {
	mu      sync.Mutex
	now     time.Time
	waits   []*fakeWait
	changed chan struct{}
}

type fakeWait struct {
	d  time.Duration
	at time.Time
	ch chan time.Time
}

func newFakeClock() *fakeClock {
	return &fakeClock{now: time.UnixMilli(1_700_000_000_000), changed: make(chan struct{})}
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := &fakeWait{d, c.now.Add(d), make(chan time.Time, 1)}
	c.waits = append(c.waits, w)
	close(c.changed)
	c.changed = make(chan struct{})
	return w.ch
}

// pass waits until a goroutine waits for exactly d, and lets that much time pass for the first that does.
func (c *fakeClock) pass(t testing.TB, d time.Duration) {
	t.Helper()
	deadline := time.After(testTimeout)
	for {
		c.mu.Lock()
		for i, w := range c.waits {
			if w.d == d {
				c.waits = append(c.waits[:i], c.waits[i+1:]...)
				c.now = c.now.Add(d)
				w.ch <- c.now
				c.mu.Unlock()
				return
			}
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("no goroutine waits for %v", d)
		}
	}
}

// reach waits for a timer that ends exactly at the given time, and moves the clock there. All timers that
// expire by then fire.
func (c *fakeClock) reach(t testing.TB, at time.Time) {
	t.Helper()
	deadline := time.After(testTimeout)
	for {
		c.mu.Lock()
		if slices.ContainsFunc(c.waits, func(w *fakeWait) bool { return w.at.Equal(at) }) {
			c.now = at
			c.waits = slices.DeleteFunc(c.waits, func(w *fakeWait) bool {
				if w.at.After(at) {
					return false
				}
				w.ch <- at
				return true
			})
			c.mu.Unlock()
			return
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("no goroutine waits until %v", at)
		}
	}
}

// waitsFor reports whether a goroutine waits for exactly d.
func (c *fakeClock) waitsFor(d time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.waits, func(w *fakeWait) bool { return w.d == d })
}

// advance moves the clock, without an effect on timers that do not expire by then.
func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// reachNext lets d pass, at whose end a timer must expire.
func (c *fakeClock) reachNext(t testing.TB, d time.Duration) {
	t.Helper()
	c.reach(t, c.Now().Add(d))
}
