package group

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// establishTimeout bounds how long a request waits for an elected leader that does not serve yet. Its barrier takes a
// round trip; one that takes longer lacks a majority.
const establishTimeout = time.Second

// signal wakes every waiter at the next change. The zero value is ready to use.
type signal struct {
	mu   sync.Mutex
	next chan struct{} // nil while no goroutine waits
}

// wait returns a channel that the next wake closes.
func (s *signal) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		s.next = make(chan struct{})
	}
	return s.next
}

func (s *signal) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next != nil {
		close(s.next)
		s.next = nil
	}
}

// Establishing reports whether this server is its group's elected leader and does not serve yet.
func (c *core) Establishing() bool {
	return c.serving() == nil && c.raft != nil && c.raft.State() == raft.Leader && c.Halted() == nil && !c.isStopping()
}

// ServingChanged returns a channel that is closed when a leadership of this replica begins to serve, or ends.
func (c *core) ServingChanged() <-chan struct{} { return c.leads.wait() }

// awaitServing blocks while this server is an elected leader that does not serve yet, for establishTimeout at
// most. It returns the leadership that serves, or nil. Other nodes send requests to a new leader as soon as
// they learn of it; a refusal would delay each of them until its next attempt.
func (c *core) awaitServing(ctx context.Context) *leadership {
	if lead := c.serving(); lead != nil || !c.Establishing() {
		return lead
	}
	timeout, stop := c.clock.After(establishTimeout)
	defer stop()
	for {
		changed := c.leads.wait()
		if lead := c.serving(); lead != nil || !c.Establishing() {
			return lead
		}
		select {
		case <-changed:
		case <-timeout:
			return c.serving()
		case <-ctx.Done():
			return nil
		case <-c.stopping:
			return nil
		case <-c.halting:
			return nil
		}
	}
}
