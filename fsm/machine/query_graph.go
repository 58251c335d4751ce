package machine

import (
	"errors"
	"strings"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/keys"
	"perdure/graph"
	"perdure/journal"
	"perdure/reduction"
)

// graphHeader finds the graph run that a query is about, with its graph.
func (x *query) graphHeader() (Header, *perdurev1.Graph, []byte, *api.Error) {
	h, ok := x.header(x.q.Id)
	if !ok {
		return Header{}, nil, nil, notFound(x.q.Namespace, x.q.Id)
	}
	if h.Kind != KindGraph {
		return Header{}, nil, nil, api.Errorf(perdurev1.Reason_REASON_EXECUTION_NOT_FOUND,
			"execution %q is no graph run: it runs %q", h.ID, h.Function).With("namespace", x.q.Namespace).With("id", h.ID)
	}
	key := keys.GraphOf(x.q.Namespace, h.ID, h.Incarnation)
	b, ok := x.get(key)
	g, _, input, err := decodeGraph(b)
	if !ok || err != nil {
		corrupt("graph", key, errOr(err, "a graph run without a graph"))
	}
	return h, g, input, nil
}

// graph is the graph as it was submitted.
func (x *query) graph() (*commandv1.QueryReply, *api.Error) {
	_, g, input, refused := x.graphHeader()
	if refused != nil {
		return nil, refused
	}
	return &commandv1.QueryReply{Kind: &commandv1.QueryReply_Graph{Graph: &perdurev1.GetGraphResponse{Graph: g, Input: input}}}, nil
}

// graphStatus shows every node, in the order of the graph.
func (x *query) graphStatus() (*commandv1.QueryReply, *api.Error) {
	h, g, _, refused := x.graphHeader()
	if refused != nil {
		return nil, refused
	}
	p, _ := x.promiseOf(h.ID)
	out := &perdurev1.GraphStatus{
		Id: h.ID, Incarnation: h.Incarnation, FormerIncarnation: h.Former, Name: g.Name, Status: x.status(h, p),
		Version: h.Events, CreatedMs: h.CreatedMS, ClosedMs: h.ClosedMS,
		Nodes: make([]*perdurev1.GraphNodeState, len(g.Nodes)),
	}
	running, waiting := h.GraphAt != 0, false
	x.nodes(h, len(g.Nodes), func(n int, row nodeRow) {
		out.Nodes[n] = nodeState(h, g.Nodes[n], row)
		running = running || row.status == reduction.StatusRunning || !row.observed(h.Wave)
		waiting = waiting || row.status == reduction.StatusWaiting
	})
	for n, state := range out.Nodes {
		if state == nil {
			out.Nodes[n] = nodeState(h, g.Nodes[n], nodeRow{status: reduction.StatusPending})
		}
	}
	failure := outcomeToWire(outcomeOf(p)).GetFailure()
	switch out.Status {
	case perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED:
		out.Phase = "completed"
		if too, ok := graph.ParseTooLarge(dataOf(outcomeOf(p))); ok {
			out.Problem, out.TooLargeBytes = too.Error(), uint64(too.Bytes)
		}
	case perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED:
		out.Phase, out.Problem = "cancelled", failure.GetMessage()
	case perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED:
		out.Phase, out.Problem = "failed", failure.GetMessage()
		if failure.GetType() == FailureStuck {
			out.Phase = "stuck"
		}
	default:
		out.Phase = "progressing"
		if waiting && !running {
			out.Phase = "suspended"
		}
	}
	return &commandv1.QueryReply{Kind: &commandv1.QueryReply_GraphStatus{GraphStatus: out}}, nil
}

// nodeOutcome is what one node has come to.
func (x *query) nodeOutcome(req *perdurev1.NodeOutcomeRequest) (*commandv1.QueryReply, *api.Error) {
	h, g, _, refused := x.graphHeader()
	if refused != nil {
		return nil, refused
	}
	for n, node := range g.Nodes {
		if node.Id != req.Node {
			continue
		}
		row, ok := x.node(h.ID, h.Incarnation, uint32(n))
		if !ok {
			row.status = reduction.StatusPending
		}
		out := &perdurev1.NodeOutcome{State: nodeState(h, node, row), Output: row.output}
		if row.from != 0 {
			kept, _ := x.node(h.ID, row.from, uint32(n))
			out.Output = kept.output
		}
		return &commandv1.QueryReply{Kind: &commandv1.QueryReply_NodeOutcome{NodeOutcome: out}}, nil
	}
	return nil, api.Errorf(perdurev1.Reason_REASON_PROMISE_NOT_FOUND, "graph run %q has no node %q", h.ID, req.Node).
		With("namespace", x.q.Namespace).With("id", h.ID).With("node", req.Node)
}

// nodes visits the rows of a run.
func (x *query) nodes(h Header, most int, fn func(n int, row nodeRow)) {
	prefix := keys.NodePrefix(x.q.Namespace, h.ID, h.Incarnation)
	x.scan(prefix, keys.After(prefix), func(key, value []byte) bool {
		n, err := nodeOfKey(key, prefix, most)
		var row nodeRow
		if err == nil {
			row, err = decodeRow(value)
		}
		if err != nil {
			corrupt("node", key, err)
		}
		fn(n, row)
		return true
	})
}

func (x *query) node(run string, incarnation uint64, n uint32) (nodeRow, bool) {
	key := keys.NodeOf(x.q.Namespace, run, incarnation, n)
	b, ok := x.get(key)
	if !ok {
		return nodeRow{}, false
	}
	row, err := decodeRow(b)
	if err != nil {
		corrupt("node", key, err)
	}
	return row, true
}

// nodeState shows a node. It shares nothing with the row.
func nodeState(h Header, node *perdurev1.GraphNode, row nodeRow) *perdurev1.GraphNodeState {
	out := &perdurev1.GraphNodeState{
		Id: node.Id, Status: nodeStatusToWire(row.status), Kind: graph.Kind(node), Attempt: row.attempt,
		StartedMs: row.started, EndedMs: row.ended, RetryAtMs: row.retryAt, Unobserved: !row.observed(h.Wave),
		ByPropagation: row.propagated, Kept: row.kept, PromiseId: row.promise(h.ID),
	}
	if row.status == reduction.StatusWaiting {
		out.Signal = row.signal
	}
	if len(row.failure) > 0 {
		out.Failure = failureToWire([]byte(strings.Clone(string(row.failure))))
		if out.Status == perdurev1.NodeStatus_NODE_STATUS_SKIPPED && out.Failure.GetType() == FailureSkipped {
			out.SkipReason, out.Failure = out.Failure.GetMessage(), nil
		}
	}
	switch node.Kind.(type) {
	case *perdurev1.GraphNode_Signal, *perdurev1.GraphNode_Sleep:
	default:
		if row.child != 0 {
			out.AttemptId = row.attemptID(h.ID)
		}
	}
	return out
}

// graphWakeSource names what will move a graph run next.
func (x *query) graphWakeSource(h Header) string {
	if h.Status == journal.StatusCancelling {
		return "cancel grace"
	}
	if h.GraphAt != 0 {
		return "next nodes"
	}
	running, retry, waits := "", "", ""
	x.nodes(h, 1<<31-1, func(n int, row nodeRow) {
		switch {
		case row.status == reduction.StatusWaiting && waits == "":
			waits = "signal " + row.signal
		case row.status == reduction.StatusRunning && row.retryAt != 0 && retry == "":
			retry = "retry timer"
		case row.status == reduction.StatusRunning && row.retryAt == 0 && running == "":
			running = row.promise(h.ID)
		}
	})
	switch {
	case running != "":
		if p, ok := x.storedPromise(running); ok && p.Timer {
			return "timer " + running
		}
		return "child " + running
	case retry != "":
		return retry
	case waits != "":
		return waits
	}
	return "stuck"
}

// errOr is err, or an error that says what.
func errOr(err error, what string) error {
	if err != nil {
		return err
	}
	return errors.New(what)
}

// nodeStatusToWire is a status of the reduction as the API counts them.
func nodeStatusToWire(s reduction.StatusKind) perdurev1.NodeStatus {
	switch s {
	case reduction.StatusPending:
		return perdurev1.NodeStatus_NODE_STATUS_PENDING
	case reduction.StatusRunning:
		return perdurev1.NodeStatus_NODE_STATUS_RUNNING
	case reduction.StatusWaiting:
		return perdurev1.NodeStatus_NODE_STATUS_WAITING
	case reduction.StatusCompleted:
		return perdurev1.NodeStatus_NODE_STATUS_COMPLETED
	case reduction.StatusFailed:
		return perdurev1.NodeStatus_NODE_STATUS_FAILED
	case reduction.StatusSkipped:
		return perdurev1.NodeStatus_NODE_STATUS_SKIPPED
	}
	return perdurev1.NodeStatus_NODE_STATUS_UNSPECIFIED
}
