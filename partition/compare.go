package partition

import (
	"context"
	"fmt"
	"time"

	commandv1 "perdure/api/command/v1"
)

// compareEvery is how often a node compares its replicas with the others'.
const compareEvery = 10 * time.Second

// compareTimeout bounds one comparison.
const compareTimeout = 10 * time.Second

// DivergedError says that a replica's state is not that of the majority at the same index. It is not to be
// trusted any more; its files are kept.
type DivergedError struct {
	Partition   uint32
	Index       uint64
	Have, Other uint64
}

func (e *DivergedError) Error() string {
	return fmt.Sprintf("partition %d: at index %d the checksum of this replica is %016x, that of the majority is %016x: rebuild it from the others", e.Partition, e.Index, e.Have, e.Other)
}

// compareLoop looks for replicas that have come to differ, until the node stops.
func (n *Node) compareLoop() {
	for {
		c, stop := n.clock.After(compareEvery)
		select {
		case <-c:
		case <-n.stopping:
			stop()
			return
		}
		n.compareOnce()
	}
}

func (n *Node) compareOnce() {
	ctx, cancel := context.WithTimeout(n.lifetime, compareTimeout)
	defer cancel()
	var others []*commandv1.DirectoryMember
	members := n.cluster.Members()
	for _, m := range members {
		if m.ServerId != n.identity.ServerID {
			others = append(others, m)
		}
	}
	// What the others have applied by now, this node may not have yet, and so with marks: a mark is compared
	// when both have it.
	said, _ := n.askAll(ctx, others)
	for _, r := range n.router.Replicas() {
		if r.halted() != nil || r.store == nil {
			continue
		}
		own := n.statusOf(r)
		if err := judge(own, said, len(members)); err != nil {
			n.log.Error("replicas differ", "event", "replica_diverged", "partition", r.id, "index", err.Index,
				"own", fmt.Sprintf("%016x", err.Have), "other", fmt.Sprintf("%016x", err.Other), "minority", err.minority)
			if err.minority {
				r.halt(&err.DivergedError)
			}
		}
	}
}

// difference is what judge finds.
type difference struct {
	DivergedError
	// minority: a majority of the members agrees on another state, so it is this one that is wrong.
	minority bool
}

// judge compares a replica with the others' at each index that it has noted, the newest first.
func judge(own *commandv1.ReplicaStatus, said []*commandv1.NodeStatus, members int) *difference {
	type point struct{ index, sum uint64 }
	points := []point{{own.Applied, own.Checksum}}
	for i := len(own.Marks) - 1; i >= 0; i-- {
		points = append(points, point{own.Marks[i].Index, own.Marks[i].Checksum})
	}
	var found *difference
	for _, p := range points {
		votes := map[uint64]int{p.sum: 1}
		other := p.sum ^ 1 // nobody's, until somebody differs
		for _, s := range said {
			if s == nil || int(own.Partition) >= len(s.Replicas) || s.Replicas[own.Partition].Halted != "" {
				continue
			}
			if sum, noted := checksumAt(s.Replicas[own.Partition], p.index); noted {
				if votes[sum]++; sum != p.sum && votes[sum] > votes[other] {
					other = sum
				}
			}
		}
		if len(votes) == 1 {
			continue
		}
		d := &difference{DivergedError: DivergedError{own.Partition, p.index, p.sum, other}}
		d.minority = votes[other] > members/2
		if d.minority {
			return d
		}
		found = d
	}
	return found
}
