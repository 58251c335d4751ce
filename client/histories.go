package client

import (
	"context"
	"iter"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
)

// Export returns the records of an execution or run that has ended, and of all that is below it in its partition, the
// executions first. Children elsewhere are those that its promises name: exports of their own. The iterator ends after
// the first error: *api.Error with RULE_BROKEN if something of it has not ended, with TRY_LATER if it has changed.
func (c *Client) Export(ctx context.Context, id string) iter.Seq2[*perdurev1.HistoryRecord, error] {
	return func(yield func(*perdurev1.HistoryRecord, error) bool) {
		req := &perdurev1.ExportRequest{Namespace: c.opts.Namespace, Id: id}
		for incarnation := uint64(0); ; {
			var resp *perdurev1.ExportResponse
			err := c.call(ctx, "export", id, false, 0, func(ctx context.Context, n *node) (err error) {
				resp, err = perdurev1.NewHistoriesClient(n.conn).Export(ctx, req)
				return err
			})
			if err == nil && incarnation != 0 && resp.GetIncarnation() != incarnation {
				err = api.Errorf(perdurev1.Reason_REASON_TRY_LATER, "%q was started again during its export", id).With("id", id)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			incarnation = resp.GetIncarnation()
			for _, rec := range resp.GetRecords() {
				if !yield(rec, nil) {
					return
				}
			}
			if req.Cursor = resp.GetCursor(); len(req.Cursor) == 0 {
				return
			}
		}
	}
}

// ImportOptions are those of ImportHistory.
type ImportOptions struct {
	// DryRun checks the tree and stores nothing.
	DryRun bool
}

// ImportHistory stores an execution that has ended elsewhere, with all that is below it, whole or not at all. existed:
// the id had this history already. Errors: *api.Error with ID_CONFLICT if the id has another history, RULE_BROKEN if
// the records break a rule, PAYLOAD_TOO_LARGE above 16 MiB.
func (c *Client) ImportHistory(ctx context.Context, id string, records []*perdurev1.HistoryRecord, o ImportOptions) (existed bool, err error) {
	r := c.NewRequest()
	req := &perdurev1.ImportHistoryRequest{Request: r.Wire(), Namespace: c.opts.Namespace, Id: id, Records: records, DryRun: o.DryRun}
	var resp *perdurev1.ImportHistoryResponse
	err = c.call(ctx, "import", id, true, 0, func(ctx context.Context, n *node) (err error) {
		resp, err = perdurev1.NewHistoriesClient(n.conn).Import(ctx, req)
		return err
	})
	return resp.GetExisted(), err
}
