package workers

import (
	"context"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/machine"
	"perdure/internal/clock"
)

// Env is what a dispatcher needs of its node. The functions are called with the dispatcher's lock held unless they say
// otherwise, so they must not call it.
type Env struct {
	Clock clock.Clock
	// Lifetime ends when the node stops.
	Lifetime context.Context
	// Survey returns the other members and the leaders. It is called without the lock. Nil: the node is
	// alone.
	Survey func() Survey
	// Peer is the client of another server. It is called without the lock.
	Peer func(server string) (commandv1.PeersClient, error)
	// PartitionOf returns the partition of an execution. It is called without the lock.
	PartitionOf func(namespace, id string) uint32
	// Term returns the latest term that this node knows of an execution's partition; 0 if none.
	Term func(namespace, id string) uint64
}

// Survey is what a node knows of its cluster.
type Survey struct {
	// Members are the server ids of the other members.
	Members map[string]bool
	// Here is how many partitions this node leads, Leads how many each other server does that leads any.
	Here  int
	Leads map[string]int
	// Nodes are all nodes as workers reach them, this one too, by node id.
	Nodes *perdurev1.NodeList
}

// leaders returns how many servers lead partitions.
func (s *Survey) leaders() int {
	if s.Here > 0 {
		return len(s.Leads) + 1
	}
	return len(s.Leads)
}

// Replica is this node's replica of a partition. Replicas are compared by ==.
type Replica interface {
	ID() uint32
	// Context ends with the replica, or when a command of its own takes too long.
	Context() (context.Context, context.CancelFunc)
	Propose(ctx context.Context, cmd *commandv1.Command) (*commandv1.Reply, error)
	// ProposeIn proposes in one leadership and no other.
	ProposeIn(ctx context.Context, l Leadership, cmd *commandv1.Command) (*commandv1.Reply, error)
	// Leadership is the present one, or nil.
	Leadership() Leadership
	// EachHeld visits the tasks that workers hold by the replica's state.
	EachHeld(visit func(machine.Assignment)) error
	// Task returns the task of a token by the replica's state, with the journal from fromSeq on, and an error if the task
	// is over.
	Task(ctx context.Context, token *perdurev1.TaskToken, fromSeq uint64) (*perdurev1.Task, error)
}

// Leadership is one term of a replica as the leader. Leaderships are compared by ==.
type Leadership interface {
	Replica() Replica
	Term() uint64
}
