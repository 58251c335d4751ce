package partition

import (
	"context"
	"time"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
)

// maxPeerWatch bounds one Watch; a node that still waits asks again.
const maxPeerWatch = time.Minute

// Watch implements Peers.
func (s *peerService) Watch(ctx context.Context, in *commandv1.WatchRequest) (*commandv1.WatchReply, error) {
	r, err := s.n.router.Replica(in.Partition)
	if err != nil {
		return nil, err
	}
	if r.serving() == nil {
		return nil, r.notServing()
	}
	what, happened := settling, r.promiseSettled
	if in.RunIncarnation != 0 {
		what, happened = changing, r.runMoved
	}
	watch := s.n.watches.add(what, refOf(in.Namespace, in.Id))
	defer watch.Stop()
	if !watch.registered {
		return nil, errWatchesFull(in.Partition)
	}
	// The change may have happened after the waiting node's read and before the registration here.
	if happened(ctx, in) {
		return &commandv1.WatchReply{}, nil
	}
	over, stop := s.n.clock.After(min(time.Duration(in.WaitMs)*time.Millisecond, maxPeerWatch))
	defer stop()
	select {
	case <-watch.C:
	case <-over:
	case <-s.n.stopping:
		return nil, r.notServing()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return &commandv1.WatchReply{}, nil
}

// promiseSettled reports whether a promise is settled by this node's state, and true if that cannot be read.
func (r *Replica) promiseSettled(ctx context.Context, in *commandv1.WatchRequest) bool {
	reply, _, err := r.Query(ctx, Stale, &commandv1.Query{Namespace: in.Namespace, Id: in.Id,
		Kind: &commandv1.Query_Promise{Promise: &perdurev1.GetPromiseRequest{Namespace: in.Namespace, Id: in.Id}}})
	return err != nil || reply.GetPromise().GetPromise().GetState() != perdurev1.PromiseState_PROMISE_STATE_PENDING
}
