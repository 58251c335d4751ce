package repair

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	commandv1 "perdure/api/command/v1"
	"perdure/internal/clock"
)

// compareEvery is how often a node compares its replicas with the other members'.
const compareEvery = 10 * time.Second

// compareTimeout bounds one comparison.
const compareTimeout = 10 * time.Second

// DivergedError reports that a replica's state differs from the majority's at the same index. The replica is not
// trusted any more; its files stay.
type DivergedError struct {
	Partition   uint32
	Index       uint64
	Have, Other uint64
}

func (e *DivergedError) Error() string {
	return fmt.Sprintf("partition %d: at index %d the checksum of this replica is %016x, that of the majority is %016x: rebuild it from the others", e.Partition, e.Index, e.Have, e.Other)
}

// Comparison is what a node's loop of comparisons needs of it.
type Comparison struct {
	// Members is how many the cluster has; Others asks the others how their replicas are, nil for one that
	// did not answer.
	Members func() int
	Others  func(ctx context.Context) []*commandv1.NodeStatus
	// Own returns this node's replicas that have not halted, each with a function that halts it.
	Own   func() []OwnReplica
	Clock clock.Clock
	Log   *slog.Logger
}

// An OwnReplica is one of this node's replicas.
type OwnReplica struct {
	Status *commandv1.ReplicaStatus
	Halt   func(error)
}

// Run compares this node's replicas with the others', and halts those that a majority contradicts, until ctx
// ends.
func (c *Comparison) Run(ctx context.Context) {
	for {
		after, stop := c.Clock.After(compareEvery)
		select {
		case <-after:
		case <-ctx.Done():
			stop()
			return
		}
		c.once(ctx)
	}
}

func (c *Comparison) once(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	// The replicas are at different indexes, and so are their marks: check compares a mark that both have.
	members, answers := c.Members(), c.Others(ctx)
	for _, r := range c.Own() {
		if d := check(r.Status, answers, members); d != nil {
			c.Log.Error("replicas differ", "event", "replica_diverged", "partition", d.Partition, "index", d.Index,
				"own", fmt.Sprintf("%016x", d.Have), "other", fmt.Sprintf("%016x", d.Other), "minority", d.minority)
			if d.minority {
				r.Halt(&d.DivergedError)
			}
		}
	}
}

// difference is the result of check.
type difference struct {
	DivergedError
	// minority: a majority of the members agrees on another state, so this replica is the wrong one.
	minority bool
}

// check compares a replica with the others' at each index that it has noted, the newest first.
func check(own *commandv1.ReplicaStatus, answers []*commandv1.NodeStatus, members int) *difference {
	type point struct{ index, sum uint64 }
	points := []point{{own.Applied, own.Checksum}}
	for i := len(own.Marks) - 1; i >= 0; i-- {
		points = append(points, point{own.Marks[i].Index, own.Marks[i].Checksum})
	}
	var found *difference
	for _, p := range points {
		votes := map[uint64]int{p.sum: 1}
		other := p.sum ^ 1 // no replica's, until one differs
		for _, s := range answers {
			if s == nil || int(own.Partition) >= len(s.Replicas) || s.Replicas[own.Partition].Halted != "" {
				continue
			}
			if sum, noted := ChecksumAt(s.Replicas[own.Partition], p.index); noted {
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

// Comparisons of replicas.
const (
	sameReplicas      = "equal"
	differentReplicas = "different"
	unknownReplicas   = "unknown"
)

// ChecksumAt returns the checksum of a replica's state at an index, if it has noted one.
func ChecksumAt(r *commandv1.ReplicaStatus, index uint64) (uint64, bool) {
	if r.Applied == index {
		return r.Checksum, true
	}
	i := slices.IndexFunc(r.Marks, func(m *commandv1.ChecksumMark) bool { return m.Index == index })
	if i < 0 {
		return 0, false
	}
	return r.Marks[i].Checksum, true
}

// Compare compares the replicas at the highest index that all that work have noted.
func Compare(replicas []*commandv1.ReplicaStatus) (verdict string, index uint64) {
	var working []*commandv1.ReplicaStatus
	for _, r := range replicas {
		if r != nil && r.Halted == "" {
			working = append(working, r)
		}
	}
	if len(working) < 2 {
		return unknownReplicas, 0
	}
	found := false
	candidates := []uint64{working[0].Applied}
	for _, m := range working[0].Marks {
		candidates = append(candidates, m.Index)
	}
	for _, at := range candidates {
		common := !slices.ContainsFunc(working, func(r *commandv1.ReplicaStatus) bool {
			_, noted := ChecksumAt(r, at)
			return !noted
		})
		if common && (!found || at > index) {
			index, found = at, true
		}
	}
	if !found {
		return unknownReplicas, 0
	}
	want, _ := ChecksumAt(working[0], index)
	for _, r := range working {
		if have, _ := ChecksumAt(r, index); have != want {
			return differentReplicas, index
		}
	}
	return sameReplicas, index
}
