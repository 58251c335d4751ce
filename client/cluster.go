package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

// rebuildWait is how long a rebuild may take whose caller has set no deadline.
const rebuildWait = time.Hour

// ClusterStatus is the current state of nodes, partitions and replicas, as the asked node finds it out. A
// node that does not answer is shown as such; that is not an error.
func (c *Client) ClusterStatus(ctx context.Context) (*perdurev1.ClusterStatus, error) {
	var resp *perdurev1.ClusterStatus
	err := c.call(ctx, "cluster status", "", false, 0, func(ctx context.Context, n *node) (err error) {
		resp, err = n.cluster.GetStatus(ctx, &perdurev1.GetStatusRequest{})
		return err
	})
	return resp, err
}

// TransferLeadership transfers the leadership of one partition, or all leaderships of a node, to another
// node, and blocks until the new leaders lead; one attempt may take the whole timeout. Repeating it is safe:
// a leadership that is already at its target stays there. Errors: *api.Error with BAD_REQUEST, NODE_NOT_FOUND
// or PARTITION_NOT_FOUND; others as with Start.
func (c *Client) TransferLeadership(ctx context.Context, r *perdurev1.TransferLeadershipRequest) ([]*perdurev1.TransferredLeadership, error) {
	what := "from " + r.GetFromNode()
	if r.Partition != nil {
		what = fmt.Sprintf("partition %d", r.GetPartition())
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.opts.Timeout)
		defer cancel()
	}
	var resp *perdurev1.TransferLeadershipResponse
	err := c.call(ctx, "transfer leadership", what, true, c.longest(ctx, c.opts.Timeout), func(ctx context.Context, n *node) (err error) {
		resp, err = n.cluster.TransferLeadership(ctx, r)
		return err
	})
	return resp.GetTransferred(), err
}

// Rebuilt is the result of a rebuild.
type Rebuilt struct {
	// Applied is the replica's applied index.
	Applied uint64
	// Before is the time from an earlier rebuild to the call, if that rebuild made this one unnecessary; 0 if
	// this call rebuilt the replica.
	Before time.Duration
}

// RebuildReplica rebuilds a node's replica of a partition from the others, and quarantines its current files.
// It blocks until the replica has caught up or ctx ends; a ctx without a deadline gets an hour. A rebuild
// that finished at most a minute ago is not repeated. When ctx ends first, the rebuild may continue
// (ErrOutcomeUnknown): ClusterStatus shows it, and calling again waits for it. Errors: *api.Error with
// BAD_REQUEST, NODE_NOT_FOUND or PARTITION_NOT_FOUND; others as with Start.
func (c *Client) RebuildReplica(ctx context.Context, nodeID string, partition uint32) (Rebuilt, error) {
	var resp *perdurev1.RebuildReplicaResponse
	what := fmt.Sprintf("partition %d on %s", partition, nodeID)
	err := c.call(ctx, "rebuild replica", what, true, c.longest(ctx, rebuildWait), func(ctx context.Context, n *node) (err error) {
		resp, err = n.cluster.RebuildReplica(ctx, &perdurev1.RebuildReplicaRequest{NodeId: nodeID, Partition: partition})
		return err
	})
	return Rebuilt{Applied: resp.GetApplied(), Before: time.Duration(resp.GetDoneMsAgo()) * time.Millisecond}, err
}

// Upgrade raises the cluster's feature level: to level, or with 0 to the newest that any node knows. It
// answers the level before and now, and the partitions that have not reached it yet. Repeating it is safe.
// Errors: *api.Error with FEATURE_LEVEL if a node does not know the level or was never reached; others as
// with Start.
func (c *Client) Upgrade(ctx context.Context, level uint64) (*perdurev1.UpgradeResponse, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.opts.Timeout)
		defer cancel()
	}
	var resp *perdurev1.UpgradeResponse
	err := c.call(ctx, "upgrade", "", true, c.longest(ctx, c.opts.Timeout), func(ctx context.Context, n *node) (err error) {
		resp, err = n.cluster.Upgrade(ctx, &perdurev1.UpgradeRequest{Level: level})
		return err
	})
	return resp, err
}

// ForgetQuarantined has a node delete the quarantined files of former replicas of a partition: those of one name, or
// all if name is empty. It returns what was deleted; nothing if there was nothing. Errors: *api.Error with
// BAD_REQUEST, NODE_NOT_FOUND or PARTITION_NOT_FOUND, MEMBERSHIP_REFUSED while the replica is halted; others
// as with Start.
func (c *Client) ForgetQuarantined(ctx context.Context, nodeID string, partition uint32, name string) ([]*perdurev1.QuarantinedReplica, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.opts.Timeout)
		defer cancel()
	}
	var resp *perdurev1.ForgetQuarantinedResponse
	what := fmt.Sprintf("partition %d on %s", partition, nodeID)
	err := c.call(ctx, "forget quarantined", what, true, c.longest(ctx, c.opts.Timeout), func(ctx context.Context, n *node) (err error) {
		resp, err = n.cluster.ForgetQuarantined(ctx, &perdurev1.ForgetQuarantinedRequest{NodeId: nodeID, Partition: partition, Name: name})
		return err
	})
	return resp.GetForgotten(), err
}

// longest is the time to wait for the answer to a long call: most, or until ctx ends if that is sooner.
func (c *Client) longest(ctx context.Context, most time.Duration) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(deadline))
	}
	return max(0, most)
}

// verifyWait is how long a verification may take at most.
const verifyWait = 24 * time.Hour

// Verify has every node audit its replicas by all rules, each on a snapshot of its state. It returns the
// final events: one for each replica, and one for each node that it is done or why it refused. If event is
// not nil, Verify calls it with each event as it arrives, progress included; after a lost connection it may
// repeat events. Verify changes nothing. It fails when no event arrives for Options.Timeout: nodes report
// progress every second. Errors: as with ClusterStatus.
func (c *Client) Verify(ctx context.Context, event func(*perdurev1.VerifyEvent)) ([]*perdurev1.VerifyEvent, error) {
	var events []*perdurev1.VerifyEvent
	ctx, cancel := context.WithTimeout(ctx, verifyWait)
	defer cancel()
	timeout := time.AfterFunc(c.opts.Timeout, cancel)
	defer timeout.Stop()
	err := c.call(ctx, "verify", "", false, c.longest(ctx, verifyWait), func(ctx context.Context, n *node) error {
		events = nil
		stream, err := n.cluster.Verify(ctx, &perdurev1.VerifyRequest{})
		for err == nil {
			var ev *perdurev1.VerifyEvent
			if ev, err = stream.Recv(); err == nil {
				timeout.Reset(c.opts.Timeout)
				if event != nil {
					event(ev)
				}
				if ev.GetProgress() == nil {
					events = append(events, ev)
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	})
	return events, err
}
