// Package clock passes time to floor 3: raft groups, their transport, stores and gossip read the time and
// wait by the Clock in their options. So a simulator can run a node in virtual time.
//
// System, Entropy, Left, Since and Deadline are the only places where that floor meets the machine's clock
// and chance; internal/lint checks it. hashicorp/raft, memberlist, gRPC, contexts and connections use the
// machine's clock only. A bubble of testing/synctest makes that clock virtual, and System with it.
package clock

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"time"
)

// Entropy is the machine's source of randomness. Reads do not fail.
var Entropy io.Reader = rand.Reader

// NewRand returns a generator with a seed from entropy. It is not safe for concurrent use.
func NewRand(entropy io.Reader) (*mathrand.Rand, error) {
	var seed [32]byte
	if _, err := io.ReadFull(entropy, seed[:]); err != nil {
		return nil, fmt.Errorf("seed of a random generator: %w", err)
	}
	return mathrand.New(mathrand.NewChaCha8(seed)), nil
}

// Clock reads time and waits.
type Clock interface {
	Now() time.Time
	// After sends once on the channel when d has passed; stop frees the timer early.
	After(d time.Duration) (c <-chan time.Time, stop func())
}

// System is the machine's clock.
type System struct{}

// Now implements Clock.
func (System) Now() time.Time { return time.Now() }

// After implements Clock.
func (System) After(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}

// Wait waits for d; false if ctx ends first.
func Wait(ctx context.Context, c Clock, d time.Duration) bool {
	t, stop := c.After(d)
	defer stop()
	select {
	case <-t:
		return true
	case <-ctx.Done():
		return false
	}
}

// Left is the time until a context's deadline, by the machine's clock; false if it has none.
func Left(ctx context.Context) (left time.Duration, ok bool) {
	deadline, ok := ctx.Deadline()
	return time.Until(deadline), ok
}

// Since is the time since a moment that a library has read from the machine's clock.
func Since(t time.Time) time.Duration { return time.Since(t) }

// Deadline is the machine's time in d, for the deadlines of connections.
func Deadline(d time.Duration) time.Time { return time.Now().Add(d) }
