package partition

import (
	"context"
	"fmt"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/machine"
)

// Router brings commands and reads to the partition that owns an id.
type Router struct {
	replicas []*Replica
	watches  *watches
}

// Partitions is how many there are.
func (r *Router) Partitions() uint32 { return uint32(len(r.replicas)) }

// Of is the replica that owns an id.
func (r *Router) Of(namespace, id string) *Replica {
	return r.replicas[machine.Place(namespace, id, uint32(len(r.replicas)))]
}

// Replica is the replica of a partition.
func (r *Router) Replica(partition uint32) (*Replica, error) {
	if partition >= uint32(len(r.replicas)) {
		return nil, fmt.Errorf("partition %d of %d", partition, len(r.replicas))
	}
	return r.replicas[partition], nil
}

// Replicas lists them all, by number.
func (r *Router) Replicas() []*Replica { return r.replicas }

// Propose puts a command about an id into its partition's log; see Replica.Propose.
func (r *Router) Propose(ctx context.Context, cmd *commandv1.Command) (*commandv1.Reply, error) {
	return r.Of(cmd.Namespace, cmd.Id).Propose(ctx, cmd)
}

// Query reads about an id; see Replica.Query.
func (r *Router) Query(ctx context.Context, level Level, q *commandv1.Query) (*commandv1.QueryReply, uint64, error) {
	return r.Of(q.Namespace, q.Id).Query(ctx, level, q)
}

// Watch waits for a promise to be settled. Register first, then read, then wait.
func (r *Router) Watch(namespace, id string) *Watch {
	return r.watches.add(machine.Ref{Namespace: namespace, ID: id})
}

// Deliver hands a command to a partition by number.
func (r *Router) Deliver(ctx context.Context, partition uint32, cmd *commandv1.Command) (*commandv1.Reply, error) {
	to, err := r.Replica(partition)
	if err != nil {
		return nil, err
	}
	return to.Propose(ctx, cmd)
}

// ByPartition groups task tokens by the partition that owns them.
func (r *Router) ByPartition(tokens []*perdurev1.TaskToken) map[uint32][]*perdurev1.TaskToken {
	out := map[uint32][]*perdurev1.TaskToken{}
	for _, t := range tokens {
		p := machine.Place(t.Namespace, t.Id, uint32(len(r.replicas)))
		out[p] = append(out[p], t)
	}
	return out
}
