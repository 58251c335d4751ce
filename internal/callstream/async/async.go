// Package async answers calls that spend their time waiting, without a goroutine for each. A call is a value with a Step.
// The event that a call waits for notifies the call, and the loop of its owner runs the steps of all notified calls:
//
//	for {
//		<-woken         // Options.Wake
//		calls.Process() // steps make answers
//		...             // send them, together
//	}
//
// A call that cannot go on so, that takes long, or that is interrupted continues as an ordinary blocking function on a
// goroutine. So deadlines, cancellation and retries need no second form.
//
//	Step and Block of a call never run at the same time; after Block began, or a Step was Done, there is no other Step
//
// The owner joins the goroutines that Options.Run starts. A crash loses the calls.
package async

import (
	"sync"
	"time"
)

// Next is what a call does after a step.
type Next uint8

// A call waits for the next notification, was answered, or continues with Block.
const (
	Waits Next = iota
	Done
	Blocks
)

// Handler is the work of one call.
type Handler interface {
	// Step goes as far as it can without blocking.
	Step() Next
	// Block answers the call instead of further steps.
	Block()
}

// Bounds of the time that a call may take without a goroutine.
const (
	// Patience is how long a call steps before it continues with Block.
	Patience = time.Second
	// ExpireEvery is how often the owner calls Expire while there are calls.
	ExpireEvery = 250 * time.Millisecond
)

// Options of Calls.
type Options struct {
	// Wake is called when Process has something to do. It must not block.
	Wake func()
	// Run starts a goroutine.
	Run func(func())
}

// Calls are the calls of one owner. All methods are safe for concurrent use.
type Calls struct {
	opts Options

	mu          sync.Mutex
	ready       []*Call // notified, in that order
	spare       []*Call
	first, last *Call // the calls that step, in the order of Begin
	processing  bool  // a goroutine runs steps, until ready is empty
	expiring    bool  // the owner calls Expire in time
	interrupted bool
}

// New makes Calls.
func New(opts Options) *Calls { return &Calls{opts: opts} }

// Call is one call. The zero value with Calls set may be notified. It must not be copied.
type Call struct {
	// Calls are those that the call will begin in.
	Calls *Calls

	handler      Handler
	since, until time.Time
	prev, next   *Call // in first..last
	begun        bool
	over         bool
	notified     bool
	interrupted  bool
}

// Notifier takes the news that something has happened that it waits for. Notify must not block, and may come too often.
type Notifier interface{ Notify() }

// Begin has the call's steps run from now on; the first one after a notification, which may have come before. Until is
// the call's deadline, or zero. It reports whether the owner must call Expire after ExpireEvery.
func (c *Call) Begin(h Handler, now, until time.Time) (expire bool) {
	s := c.Calls
	s.mu.Lock()
	c.handler, c.since, c.until, c.begun = h, now, until, true
	if s.interrupted {
		c.over = true
		s.mu.Unlock()
		s.opts.Run(h.Block)
		return false
	}
	if c.prev = s.last; s.last == nil {
		s.first = c
	} else {
		s.last.next = c
	}
	s.last = c
	wake := c.notified && s.enqueueLocked(c)
	expire = !s.expiring
	s.expiring = true
	s.mu.Unlock()
	if wake {
		s.opts.Wake()
	}
	return expire
}

// Notify implements Notifier: it has Process run a step of the call.
func (c *Call) Notify() {
	s := c.Calls
	s.mu.Lock()
	wake := false
	if !c.over && !c.notified {
		c.notified = true
		wake = c.begun && s.enqueueLocked(c)
	}
	s.mu.Unlock()
	if wake {
		s.opts.Wake()
	}
}

// Interrupt has the call continue with Block, if it has begun and still steps.
func (c *Call) Interrupt() {
	s := c.Calls
	s.mu.Lock()
	wake := s.interruptLocked(c)
	s.mu.Unlock()
	if wake {
		s.opts.Wake()
	}
}

func (s *Calls) interruptLocked(c *Call) (wake bool) {
	if !c.begun || c.over || c.interrupted {
		return false
	}
	c.interrupted = true
	if c.notified {
		return false // it is queued
	}
	c.notified = true
	return s.enqueueLocked(c)
}

// enqueueLocked reports whether the owner must be woken.
func (s *Calls) enqueueLocked(c *Call) bool {
	s.ready = append(s.ready, c)
	return !s.processing && len(s.ready) == 1
}

// Interrupt has all calls continue with Block, and later ones begin with it. Process must follow.
func (s *Calls) Interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.interrupted = true
	for c := s.first; c != nil; c = c.next {
		s.interruptLocked(c)
	}
}

// Expire interrupts the calls that have stepped for Patience, or whose deadline has passed. It reports whether the owner
// must call it again after ExpireEvery. Process must follow.
func (s *Calls) Expire(now time.Time) (again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := s.first; c != nil; c = c.next {
		if now.Sub(c.since) >= Patience || !c.until.IsZero() && !now.Before(c.until) {
			s.interruptLocked(c)
		}
	}
	s.expiring = s.first != nil
	return s.expiring
}

// Process runs steps until no call is notified. It returns at once while another goroutine does. It does not block
// unless a step does.
func (s *Calls) Process() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.processing {
		return
	}
	s.processing = true
	for len(s.ready) > 0 {
		batch := s.ready
		s.ready, s.spare = s.spare[:0], nil
		for _, c := range batch {
			if c.over {
				continue
			}
			c.notified = false
			next := Blocks
			if !c.interrupted {
				s.mu.Unlock()
				next = c.handler.Step()
				s.mu.Lock()
			}
			if next == Waits {
				continue
			}
			s.removeLocked(c)
			if next == Blocks {
				s.mu.Unlock()
				s.opts.Run(c.handler.Block)
				s.mu.Lock()
			}
		}
		clear(batch)
		s.spare = batch
	}
	s.processing = false
}

func (s *Calls) removeLocked(c *Call) {
	c.over = true
	if c.prev == nil {
		s.first = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		s.last = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.prev, c.next = nil, nil
}
