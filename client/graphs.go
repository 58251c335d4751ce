package client

import (
	"context"
	"iter"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

// largeGraph is how many nodes make a graph that goes to its leader with the first call: 100 KB or more.
const largeGraph = 1000

// SubmitGraphOptions says which graph to run.
type SubmitGraphOptions struct {
	// ID names the run and is its idempotency key: 1 to 1,024 bytes, no ':' and no NUL.
	ID string
	// Graph is the graph to run: at most 10,000 nodes, and 4 MiB encoded.
	Graph *perdurev1.Graph
	// Input is a JSON value that the nodes can take members of; at most 4 MiB. Empty means null.
	Input []byte
	// Timeout, if positive, cancels the run with "timed out" when it has not finished by then. Counted in
	// milliseconds, rounded up.
	Timeout time.Duration
	// Tags are for people and searches; at most 64.
	Tags map[string]string
	// AllowUnknownFunctions starts it even if no worker ever registered some of its functions; their nodes
	// then wait for one.
	AllowUnknownFunctions bool
}

// SubmitGraph starts a run of a graph, and does not wait for it. The same graph with the same input under
// the same id again answers with the run that is there. A run is an execution: Result, Signal, Cancel,
// Terminate, Describe, Journal and List are for it too. Errors: *api.Error with BAD_REQUEST (the graph is
// not well formed, with every problem and its position), ID_CONFLICT, FUNCTION_UNKNOWN and others; as with
// Start.
func (c *Client) SubmitGraph(ctx context.Context, o SubmitGraphOptions) (Started, error) {
	if len(o.Graph.GetNodes()) >= largeGraph {
		c.leaders.ahead(ctx)
	}
	r := c.NewRequest()
	var resp *perdurev1.SubmitGraphResponse
	err := c.call(ctx, "submit graph", o.ID, true, 0, func(ctx context.Context, n *node) (err error) {
		resp, err = n.graphs.Submit(ctx, &perdurev1.SubmitGraphRequest{
			Request: r.Wire(), Namespace: c.opts.Namespace, Id: o.ID, Graph: o.Graph, Input: o.Input,
			TimeoutMs: Millis(o.Timeout), Tags: o.Tags, AllowUnknownFunctions: o.AllowUnknownFunctions,
		})
		return err
	})
	if err != nil {
		return Started{}, err
	}
	return Started{ID: resp.GetId(), Incarnation: resp.GetIncarnation(), Created: resp.GetCreated(), Status: resp.GetStatus()}, nil
}

// GraphStatus is how far a run and each of its nodes have come. Errors: *api.Error with
// EXECUTION_NOT_FOUND, or BAD_REQUEST if the id is that of something else than a run; ErrUnavailable.
func (c *Client) GraphStatus(ctx context.Context, id string, opts ...ReadOption) (*perdurev1.GraphStatus, error) {
	return c.graphStatus(ctx, &perdurev1.GraphStatusRequest{Namespace: c.opts.Namespace, Id: id, Level: readOpts(opts).level}, 0)
}

// graphStatus makes the call; wait is how long the server may hold the answer back.
func (c *Client) graphStatus(ctx context.Context, r *perdurev1.GraphStatusRequest, wait time.Duration) (*perdurev1.GraphStatus, error) {
	var resp *perdurev1.GraphStatus
	r.WaitMs = Millis(wait)
	err := c.call(ctx, "graph status", r.GetId(), false, wait, func(ctx context.Context, n *node) (err error) {
		resp, err = n.graphs.GetStatus(ctx, r)
		return err
	})
	return resp, err
}

// WatchGraph yields the status of a run as it is now, and then each change, until the run has ended; the last
// status says how. The cluster reports a change at once. Changes within a tenth of a second of each other, or
// while the loop's body runs, arrive as one, in the newest state. If a run was retried before its end was
// seen, the watch continues under the new incarnation, whose versions start again. Once the end was seen, a
// later incarnation takes a new call. An error is yielded once and ends the watch: those of GraphStatus, and
// the context's. When no node answers for longer than Options.Timeout, the error is ErrUnavailable.
func (c *Client) WatchGraph(ctx context.Context, id string) iter.Seq2[*perdurev1.GraphStatus, error] {
	return func(yield func(*perdurev1.GraphStatus, error) bool) {
		var last *perdurev1.GraphStatus
		for {
			r := &perdurev1.GraphStatusRequest{Namespace: c.opts.Namespace, Id: id, AfterVersion: last.GetVersion(),
				AfterIncarnation: last.GetIncarnation()}
			wait := time.Duration(0)
			if last != nil {
				wait = c.held(ctx, pollWait)
			}
			asked := c.clock.Now()
			s, err := c.graphStatus(ctx, r, wait)
			if err != nil {
				yield(nil, err)
				return
			}
			if last == nil || s.GetVersion() != last.GetVersion() || s.GetIncarnation() != last.GetIncarnation() || s.GetStatus() != last.GetStatus() {
				if !yield(s, nil) {
					return
				}
			}
			if Ended(s.GetStatus()) {
				return
			}
			if last != nil {
				c.breathe(ctx, asked)
			}
			last = s
		}
	}
}

// Ended reports whether nothing follows this status within its incarnation.
func Ended(s Status) bool {
	switch s {
	case perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED, perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED,
		perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED:
		return true
	}
	return false
}

// GetGraph is the graph of a run as it was submitted, and its input. Errors are those of GraphStatus.
func (c *Client) GetGraph(ctx context.Context, id string) (*perdurev1.GetGraphResponse, error) {
	var resp *perdurev1.GetGraphResponse
	err := c.call(ctx, "graph", id, false, 0, func(ctx context.Context, n *node) (err error) {
		resp, err = n.graphs.GetGraph(ctx, &perdurev1.GetGraphRequest{Namespace: c.opts.Namespace, Id: id})
		return err
	})
	return resp, err
}

// NodeOutcome is the state of one node of a run, and its output once it is completed. It
// does not wait. Errors are those of GraphStatus; a node that the graph does not have is an *api.Error too.
func (c *Client) NodeOutcome(ctx context.Context, id, nodeID string) (*perdurev1.NodeOutcome, error) {
	var resp *perdurev1.NodeOutcome
	err := c.call(ctx, "node outcome", id, false, 0, func(ctx context.Context, n *node) (err error) {
		resp, err = n.graphs.GetOutcome(ctx, &perdurev1.NodeOutcomeRequest{Namespace: c.opts.Namespace, Id: id, Node: nodeID})
		return err
	})
	return resp, err
}

// RetryGraph runs a finished run again from its failed nodes, as a new incarnation that keeps the work that
// was completed. Errors: *api.Error with EXECUTION_NOT_FOUND, and with another reason for a run that has not
// finished or has nothing to retry; ErrOutcomeUnknown (GraphStatus shows which incarnation runs);
// ErrUnavailable.
func (c *Client) RetryGraph(ctx context.Context, id string) (*perdurev1.RetryGraphResponse, error) {
	r := c.NewRequest()
	var resp *perdurev1.RetryGraphResponse
	err := c.call(ctx, "retry graph", id, true, 0, func(ctx context.Context, n *node) (err error) {
		resp, err = n.graphs.Retry(ctx, &perdurev1.RetryGraphRequest{Request: r.Wire(), Namespace: c.opts.Namespace, Id: id})
		return err
	})
	return resp, err
}
