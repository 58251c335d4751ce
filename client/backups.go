package client

import (
	"context"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

// cutWait is how long a cut may take whose caller has set no deadline.
const cutWait = 5 * time.Minute

// Cut has all partitions enter a new cut and returns where its checkpoints are. A call that is repeated after a lost
// answer enters another one. Errors: *api.Error with FEATURE_LEVEL; others as with ClusterStatus.
func (c *Client) Cut(ctx context.Context) (*perdurev1.CutResponse, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cutWait)
		defer cancel()
	}
	var resp *perdurev1.CutResponse
	err := c.call(ctx, "cut", "", false, c.longest(ctx, cutWait), func(ctx context.Context, n *node) (err error) {
		resp, err = perdurev1.NewBackupsClient(n.conn).Cut(ctx, &perdurev1.CutRequest{})
		return err
	})
	return resp, err
}

// ReleaseCut removes a cut's checkpoints on all nodes that answer. Repeating it is safe.
func (c *Client) ReleaseCut(ctx context.Context, cut uint64) (*perdurev1.ReleaseCutResponse, error) {
	var resp *perdurev1.ReleaseCutResponse
	err := c.call(ctx, "release cut", "", false, 0, func(ctx context.Context, n *node) (err error) {
		resp, err = perdurev1.NewBackupsClient(n.conn).Release(ctx, &perdurev1.ReleaseCutRequest{Cut: cut})
		return err
	})
	return resp, err
}

// Backups returns the service that hands out the files of this node's checkpoints.
func (n *NodeConn) Backups() perdurev1.BackupsClient { return perdurev1.NewBackupsClient(n.n.conn) }
