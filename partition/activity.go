package partition

import (
	"time"

	"perdure/internal/clock"
)

// busyRate is how many entries of all its partitions a node applies in a second that counts as busy.
const busyRate = 10

// activity tells work in the background whether requests compete with it. It counts entries, not the CPU time of the process: other
// processes of the machine may take that of the node. It is for one goroutine.
type activity struct {
	clock   clock.Clock
	applied func() uint64 // by all replicas
	at      time.Time     // of the last call
	last    uint64
}

// newActivity watches the entries that a node's replicas apply from now on.
func newActivity(n *Node) *activity {
	return &activity{clock: n.clock, at: n.clock.Now(), applied: func() (sum uint64) {
		for _, r := range n.router.Replicas() {
			sum += r.Applied()
		}
		return sum
	}}
}

// busy reports whether the node was busy since the last call.
func (a *activity) busy() bool {
	now, applied := a.clock.Now(), a.applied()
	rate := float64(applied-min(a.last, applied)) / max(now.Sub(a.at), time.Millisecond).Seconds()
	a.at, a.last = now, applied
	return rate >= busyRate
}
