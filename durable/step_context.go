package durable

import (
	"context"
	"sync"
	"time"
)

// stepContext is the context of one attempt of a step. It ends with the attempt, and before that with the function's
// context. A step that never asks for its end does not pay for one: own is made when it does.
type stepContext struct {
	function context.Context
	stepAttempt

	ownMu  sync.Mutex
	own    context.Context // ends with the attempt; nil until needed
	cancel context.CancelFunc
	ended  bool
}

// Deadline implements context.Context. An own context with a deadline is made with the stepContext.
func (c *stepContext) Deadline() (time.Time, bool) { return c.current().Deadline() }

// Done implements context.Context.
func (c *stepContext) Done() <-chan struct{} { return c.ending().Done() }

// Err implements context.Context.
func (c *stepContext) Err() error { return c.current().Err() }

// Value implements context.Context.
func (c *stepContext) Value(key any) any {
	if key == (attemptKey{}) {
		return &c.stepAttempt
	}
	return c.current().Value(key)
}

// current returns a context with the present state of this one.
func (c *stepContext) current() context.Context {
	c.ownMu.Lock()
	defer c.ownMu.Unlock()
	if c.ended {
		return c.ownLocked()
	}
	if c.own != nil {
		return c.own
	}
	return c.function
}

// ending returns a context that ends when this one does.
func (c *stepContext) ending() context.Context {
	c.ownMu.Lock()
	defer c.ownMu.Unlock()
	return c.ownLocked()
}

func (c *stepContext) ownLocked() context.Context {
	if c.own == nil {
		c.own, c.cancel = context.WithCancel(c.function)
		if c.ended {
			c.cancel()
		}
	}
	return c.own
}

// end ends the context.
func (c *stepContext) end() {
	c.ownMu.Lock()
	defer c.ownMu.Unlock()
	c.ended = true
	if c.own != nil {
		c.cancel()
	}
}
