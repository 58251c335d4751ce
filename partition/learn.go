package partition

import "time"

const (
	// learnPace is the rest after each piece that a node learns of the ids in its states: a fifth of a core reads, for half a
	// minute after a start with a million executions. busyPace is that of a busy node, whose requests gain less by it than they lose.
	learnPace = 4 * time.Millisecond
	busyPace  = 20 * time.Millisecond
	// learnRest is how often a node looks whether there is more to learn.
	learnRest = time.Second
)

// learnIDs has the replicas learn which ids are free, piece by piece and in turns, until the node stops. Starts that come
// earlier read the state.
func (n *Node) learnIDs() {
	defer close(n.learned)
	load := newActivity(n)
	for {
		rest, pace := learnRest, learnPace
		if load.busy() {
			pace = busyPace
		}
		for _, r := range n.router.Replicas() {
			if r.Learn() {
				rest = pace
				if !n.rest(pace) {
					return
				}
			}
		}
		if rest == learnRest && !n.rest(learnRest) {
			return
		}
	}
}

// rest waits, and reports whether the node goes on.
func (n *Node) rest(d time.Duration) bool {
	over, stop := n.clock.After(d)
	defer stop()
	select {
	case <-over:
		return true
	case <-n.stopping:
		return false
	}
}
