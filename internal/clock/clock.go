// Package clock carries time to floor 3: raft groups, their transport, stores and gossip read and wait by the Clock
// that their options name, so a simulator can run a node in time of its own.
//
// System is the only place of that floor that reads the machine's clock, which internal/lint checks. hashicorp/raft,
// memberlist, gRPC and deadlines of connections and contexts know the machine's clock only; a bubble of
// testing/synctest makes that one virtual, with System in it.
package clock

import "time"

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
