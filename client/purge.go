package client

import (
	"context"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

// PurgeOptions restricts a purge; the zero value purges whatever ended more than ten minutes ago.
type PurgeOptions struct {
	// Incarnation, if not 0, is the only one that is purged.
	Incarnation uint64
	// EndedBefore, if set, purges only what ended before this time, by the server's clock.
	EndedBefore time.Time
	// Force purges also what ended within the last ten minutes. A start of the id that is still being repeated starts
	// it again.
	Force bool
}

// Purged says what a purge found.
type Purged string

const (
	PurgedDeleted Purged = "deleted"
	// PurgedBegun: there was too much to delete at once. The server deletes the rest; until then the id is in use.
	PurgedBegun Purged = "begun"
	// PurgedAbsent: nothing is there, or another incarnation.
	PurgedAbsent Purged = "absent"
)

// Purge deletes an execution that has ended, with its journal, its promises and its children in the same partition; or a settled
// promise of no execution. The id can be used again afterwards. Errors: *api.Error with RULE_BROKEN when it is open,
// has open children, or ended too late for o.
func (c *Client) Purge(ctx context.Context, id string, o PurgeOptions) (Purged, error) {
	r := c.NewRequest()
	req := &perdurev1.PurgeRequest{Request: r.Wire(), Namespace: c.opts.Namespace, Id: id, Incarnation: o.Incarnation, Force: o.Force}
	if !o.EndedBefore.IsZero() {
		req.EndedBeforeMs = o.EndedBefore.UnixMilli()
	}
	var resp *perdurev1.PurgeResponse
	err := c.call(ctx, "purge", id, true, 0, func(ctx context.Context, n *node) (err error) {
		resp, err = n.executions.Purge(ctx, req)
		return err
	})
	switch resp.GetState() {
	case perdurev1.PurgeState_PURGE_STATE_DELETED:
		return PurgedDeleted, err
	case perdurev1.PurgeState_PURGE_STATE_BEGUN:
		return PurgedBegun, err
	}
	return PurgedAbsent, err
}
