package partition

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/internal/clock"
	"perdure/partition/refusal"
)

const (
	// upgradeRetry is the pause between two attempts to find the directory's leader, and between two checks
	// of the partitions' levels.
	upgradeRetry = 100 * time.Millisecond
	// upgradeTimeout bounds the wait for the directory's leader, reachTimeout the wait for the partitions afterwards.
	upgradeTimeout = 5 * time.Second
	reachTimeout   = 10 * time.Second
)

// knownLevel is the newest feature level that this program knows.
func (c *Config) knownLevel() uint64 {
	if c.featureLevel != 0 {
		return c.featureLevel
	}
	return state.FeatureLevel
}

// startLevel sets the cluster's level for a node that is alone: the newest for new data, else that of its
// states. It runs before the groups start.
func (n *Node) startLevel(creating bool) error {
	if !n.identity.Alone() {
		return nil
	}
	if creating || n.cfg.AutoUpgrade {
		n.cluster.RaiseLevel(n.cfg.knownLevel())
		return nil
	}
	for _, r := range n.replicas {
		level, err := r.FeatureLevel()
		if err != nil {
			return err
		}
		n.cluster.RaiseLevel(level)
	}
	return nil
}

// upgrade raises the cluster's level, as the directory's leader or as a node alone.
func (o *Operator) upgrade(ctx context.Context, in *perdurev1.UpgradeRequest) (*perdurev1.UpgradeResponse, error) {
	if !o.n.identity.Alone() {
		return o.n.cluster.Upgrade(ctx, in)
	}
	from, _ := o.n.cluster.Level()
	to, known := max(in.Level, from), o.n.cfg.knownLevel()
	if in.Level == 0 {
		to = max(known, from)
	}
	if to > known {
		return nil, api.Errorf(perdurev1.Reason_REASON_FEATURE_LEVEL, "feature level %d is not known to all members: node %s knows up to %d", to, o.n.identity.NodeID, known)
	}
	o.n.cluster.RaiseLevel(to)
	return &perdurev1.UpgradeResponse{From: from, Level: to}, nil
}

// Upgrade implements Peers.
func (s *peerService) Upgrade(ctx context.Context, in *perdurev1.UpgradeRequest) (*perdurev1.UpgradeResponse, error) {
	return s.n.Operator().upgrade(ctx, in)
}

// Upgrade raises the cluster's feature level and waits until the partitions have reached it, for reachTimeout at most.
// Errors: FEATURE_LEVEL if a member does not know the level, or was not heard from; TRY_LATER without a leader of the
// directory.
func (o *Operator) Upgrade(ctx context.Context, in *perdurev1.UpgradeRequest) (*perdurev1.UpgradeResponse, error) {
	n := o.n
	out, err := o.routeUpgrade(ctx, in)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	for {
		out.Waiting = o.below(ctx, out.Level)
		if len(out.Waiting) == 0 || !clock.Wait(ctx, n.clock, upgradeRetry) {
			return out, nil
		}
	}
}

// routeUpgrade has the directory's leader raise the cluster's level.
func (o *Operator) routeUpgrade(ctx context.Context, in *perdurev1.UpgradeRequest) (*perdurev1.UpgradeResponse, error) {
	if o.n.identity.Alone() {
		return o.upgrade(ctx, in)
	}
	ctx, cancel := context.WithTimeout(ctx, upgradeTimeout)
	defer cancel()
	last := refusal.TryLater(directoryGroup, "the directory has no leader")
	for {
		var out *perdurev1.UpgradeResponse
		leader := o.n.cluster.Leader()
		err := error(last)
		if o.n.cluster.Leads() {
			out, err = o.upgrade(ctx, in)
		} else if leader != "" {
			var client commandv1.PeersClient
			if client, err = o.n.peers.Client(o.n.cluster.AddressOf(leader)); err == nil {
				out, err = client.Upgrade(ctx, in)
			}
		}
		if err == nil {
			return out, nil
		}
		e, ours := api.FromStatus(err)
		switch {
		case !ours && status.Code(err) == codes.Unimplemented:
			return nil, api.Errorf(perdurev1.Reason_REASON_FEATURE_LEVEL, "node %s leads the directory and runs a version that cannot raise the feature level", o.n.cluster.NodeOf(leader))
		case !ours:
			last = refusal.TryLater(directoryGroup, fmt.Sprintf("node %s leads the directory and did not answer: %v", o.n.cluster.NodeOf(leader), err))
		case api.Code(e.Reason) != codes.Unavailable && e.Reason != perdurev1.Reason_REASON_OUTCOME_UNKNOWN:
			return nil, e
		default:
			last = e
		}
		if !clock.Wait(ctx, o.n.clock, upgradeRetry) {
			return nil, last
		}
	}
}

// below lists the partitions without a leader, and those whose leader's state is below a feature level.
func (o *Operator) below(ctx context.Context, level uint64) (below []uint32) {
	reached := map[uint32]bool{}
	answers, _ := memberClient{o.n}.askAll(ctx, o.n.Directory().GetMembers())
	for _, st := range answers {
		for _, r := range st.GetReplicas() {
			if r.Serving && r.FeatureLevel >= level {
				reached[r.Partition] = true
			}
		}
	}
	for p := range uint32(len(o.n.router.slots)) {
		if !reached[p] {
			below = append(below, p)
		}
	}
	return below
}
