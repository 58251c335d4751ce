package partition

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	"perdure/partition/group"
	"perdure/partition/refusal"
)

const (
	// maxAwait bounds the wait of one Await. Callers ask again.
	maxAwait = time.Minute
	// awaitHop is how long a leader is waited for before it is asked again: one beyond a cut says nothing.
	awaitHop = 6 * time.Second
)

// Await reads about an id from the leader of its partition, as soon as what it reads has settled, or after
// wait: at most maxAwait. It blocks until then, or until no leader has been found for as long as Read looks
// for one. When the leader changes meanwhile, the next one goes on waiting. Errors are those of Read.
func (r *Router) Await(ctx context.Context, q *commandv1.Query, wait time.Duration) (reply *commandv1.QueryReply, index uint64, err error) {
	until := r.clock.Now().Add(min(wait, maxAwait))
	for {
		left := max(until.Sub(r.clock.Now()), 0)
		reply, index, err = r.awaitOnce(ctx, q, min(left, awaitHop))
		if err != nil || left <= awaitHop || group.Settled(reply) {
			return reply, index, err
		}
	}
}

// awaitOnce is Await for a wait that is short enough to be one search for the leader.
func (r *Router) awaitOnce(ctx context.Context, q *commandv1.Query, wait time.Duration) (reply *commandv1.QueryReply, index uint64, err error) {
	partition := r.PartitionOf(q.Namespace, q.Id)
	until := r.clock.Now().Add(wait)
	err = r.route(ctx, partition, true, func(ctx context.Context, local localReplica, leader commandv1.PeersClient) error {
		left := max(until.Sub(r.clock.Now()), 0)
		if local != nil {
			reply, index, err = local.Await(ctx, q, left)
			return err
		}
		answer, err := leader.Await(ctx, &commandv1.PeerAwait{Partition: partition, Query: q, WaitMs: (left + time.Millisecond - 1).Milliseconds()})
		if status.Code(err) == codes.Unimplemented {
			// A leader of a former version cannot wait. It is asked again, with the pauses of every search
			// for a leader.
			answer, err = leader.Query(ctx, &commandv1.PeerQuery{Partition: partition, Query: q})
			if err == nil && left > 0 && !group.Settled(answer.Reply) {
				return refusal.TryLater(partition, "the leader does not know how to wait")
			}
		}
		if err != nil {
			if _, ours := api.FromStatus(err); !ours {
				return refusal.TryLater(partition, "the leader was asked and did not answer: "+err.Error())
			}
			return err
		}
		reply, index = answer.Reply, answer.Index
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	return reply, index, nil
}
