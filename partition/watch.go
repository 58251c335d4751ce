package partition

import (
	"context"
	"time"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	"perdure/partition/group"
	"perdure/partition/watch"
)

// askLeader asks the partition's leader for the awaited change, unless this node leads it. It does not block.
// One answer, or its absence, is one value of the watch's channel.
func (r *Router) askLeader(w *watch.Watch, ask *commandv1.WatchRequest) {
	ref := w.Object()
	ask.Partition, ask.Namespace, ask.Id = r.PartitionOf(ref.Namespace, ref.ID), ref.Namespace, ref.ID
	ask.WaitMs = forwardTimeout.Milliseconds()
	local := r.local(ask.Partition)
	if local.Serving() {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.OnStop(cancel)
	leader, _ := local.LeaderElsewhere()
	go func() {
		defer cancel()
		err := r.forward(ctx, ask.Partition, leader, func(ctx context.Context, _ localReplica, there commandv1.PeersClient) error {
			_, err := there.Watch(ctx, ask)
			return err
		})
		if err != nil {
			pause := routePauseMax
			if refused, is := api.FromStatus(err); is {
				pause = max(pause, time.Duration(refused.RetryAfterMS())*time.Millisecond)
			}
			c, stop := r.clock.After(pause)
			defer stop()
			select {
			case <-c:
			case <-local.LeaderChanged():
			case <-ctx.Done():
			}
		}
		w.Wake()
	}()
}

// RunWatch waits for a graph run to change. A run changes many times, so the request carries the version that
// the caller has read: a change between the read and the request is not missed.
type RunWatch struct {
	*watch.Watch
	r *Router
}

// WatchRun returns a wait for a graph run to change: register, read its RunVersion, Follow it, wait, then
// stop and register again. C also gets a value when no known leader can answer any more, and every few
// seconds while this node does not lead the partition.
func (r *Router) WatchRun(namespace, id string) RunWatch {
	return RunWatch{r.shared.Watches.Add(watch.Moved, namespace, id), r}
}

// Follow has C get a value when the run is at another version than seen. It does not block; call it once.
func (w RunWatch) Follow(seen group.RunVersion) {
	w.r.askLeader(w.Watch, &commandv1.WatchRequest{RunIncarnation: seen.Incarnation, RunVersion: seen.Events})
}

// Watch implements Peers.
func (s *peerService) Watch(ctx context.Context, in *commandv1.WatchRequest) (*commandv1.WatchReply, error) {
	r, err := s.n.router.Replica(in.Partition)
	if err != nil {
		return nil, err
	}
	if err := r.AwaitChange(ctx, in); err != nil {
		return nil, err
	}
	return &commandv1.WatchReply{}, nil
}
