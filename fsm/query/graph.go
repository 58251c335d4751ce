package query

import (
	"errors"
	"strings"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
	"perdure/graph"
	"perdure/journal"
	"perdure/reduction"
)

// graphHeader finds the graph run that a query is about, with its graph.
func (x *Read) graphHeader() (state.Header, *perdurev1.Graph, []byte, *api.Error) {
	h, ok := x.Header(x.Query.Namespace, x.Query.Id)
	if !ok {
		return state.Header{}, nil, nil, wire.NotFound(x.Query.Namespace, x.Query.Id)
	}
	if h.Kind != state.KindGraph {
		return state.Header{}, nil, nil, api.Errorf(perdurev1.Reason_REASON_EXECUTION_NOT_FOUND,
			"execution %q is no graph run: it runs %q", h.ID, h.Function).With("namespace", x.Query.Namespace).With("id", h.ID)
	}
	key := keys.GraphOf(x.Query.Namespace, h.ID, h.Incarnation)
	b, ok := x.Get(key)
	g, _, input, err := state.DecodeGraph(b)
	if !ok || err != nil {
		state.PanicCorrupt("graph", key, errOr(err, "a graph run without a graph"))
	}
	return h, g, input, nil
}

// graph returns the graph as submitted.
func (x *Read) graph() (*commandv1.QueryReply, *api.Error) {
	_, g, input, refused := x.graphHeader()
	if refused != nil {
		return nil, refused
	}
	return &commandv1.QueryReply{Kind: &commandv1.QueryReply_Graph{Graph: &perdurev1.GetGraphResponse{Graph: g, Input: input}}}, nil
}

// graphStatus shows every node, in the order of the graph.
func (x *Read) graphStatus() (*commandv1.QueryReply, *api.Error) {
	h, g, _, refused := x.graphHeader()
	if refused != nil {
		return nil, refused
	}
	p, _ := x.promiseOf(h.ID)
	out := &perdurev1.GraphStatus{
		Id: h.ID, Incarnation: h.Incarnation, FormerIncarnation: h.Former, Name: g.Name, Status: x.status(h, p),
		Version: h.Events, CreatedMs: h.CreatedMS, ClosedMs: h.ClosedMS,
		CancelReason: h.CancelReason, ParentId: h.Parent,
		Nodes: make([]*perdurev1.GraphNodeState, len(g.Nodes)),
	}
	running, waiting := h.GraphAt != 0, false
	x.nodes(h, len(g.Nodes), func(n int, row state.NodeRow) {
		out.Nodes[n] = nodeState(h, g.Nodes[n], row)
		running = running || row.Status == reduction.StatusRunning || !row.Observed(h.Wave)
		waiting = waiting || row.Status == reduction.StatusWaiting
	})
	for n, shown := range out.Nodes {
		if shown == nil {
			out.Nodes[n] = nodeState(h, g.Nodes[n], state.NodeRow{Status: reduction.StatusPending})
		}
	}
	failure := wire.EncodeOutcome(state.OutcomeOf(p)).GetFailure()
	switch out.Status {
	case perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED:
		out.Phase = "completed"
		if too, ok := graph.ParseTooLarge(state.DataOf(state.OutcomeOf(p))); ok {
			out.Problem, out.TooLargeBytes = too.Error(), uint64(too.Bytes)
		}
	case perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED:
		out.Phase, out.Problem = "cancelled", failure.GetMessage()
	case perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED:
		out.Phase, out.Problem = "failed", failure.GetMessage()
		if failure.GetType() == state.FailureStuck {
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

// nodeOutcome returns the outcome of one node.
func (x *Read) nodeOutcome(req *perdurev1.NodeOutcomeRequest) (*commandv1.QueryReply, *api.Error) {
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
			row.Status = reduction.StatusPending
		}
		out := &perdurev1.NodeOutcome{State: nodeState(h, node, row), Output: row.Output}
		if row.From != 0 {
			retained, _ := x.node(h.ID, row.From, uint32(n))
			out.Output = retained.Output
		}
		return &commandv1.QueryReply{Kind: &commandv1.QueryReply_NodeOutcome{NodeOutcome: out}}, nil
	}
	return nil, api.Errorf(perdurev1.Reason_REASON_PROMISE_NOT_FOUND, "graph run %q has no node %q", h.ID, req.Node).
		With("namespace", x.Query.Namespace).With("id", h.ID).With("node", req.Node)
}

// nodes visits the rows of a run.
func (x *Read) nodes(h state.Header, most int, fn func(n int, row state.NodeRow)) {
	prefix := keys.NodePrefix(x.Query.Namespace, h.ID, h.Incarnation)
	x.Scan(prefix, keys.After(prefix), func(key, value []byte) bool {
		n, err := state.NodeOfKey(key, prefix, most)
		var row state.NodeRow
		if err == nil {
			row, err = state.DecodeRow(value)
		}
		if err != nil {
			state.PanicCorrupt("node", key, err)
		}
		fn(n, row)
		return true
	})
}

func (x *Read) node(run string, incarnation uint64, n uint32) (state.NodeRow, bool) {
	key := keys.NodeOf(x.Query.Namespace, run, incarnation, n)
	b, ok := x.Get(key)
	if !ok {
		return state.NodeRow{}, false
	}
	row, err := state.DecodeRow(b)
	if err != nil {
		state.PanicCorrupt("node", key, err)
	}
	return row, true
}

// nodeState shows a node. It shares nothing with the row.
func nodeState(h state.Header, node *perdurev1.GraphNode, row state.NodeRow) *perdurev1.GraphNodeState {
	out := &perdurev1.GraphNodeState{
		Id: node.Id, Status: wire.EncodeNodeStatus(row.Status), Kind: graph.Kind(node), Attempt: row.Attempt,
		StartedMs: row.Started, EndedMs: row.Ended, RetryAtMs: row.RetryAt, Unobserved: !row.Observed(h.Wave),
		ByPropagation: row.Propagated, Kept: row.Kept, PromiseId: row.Promise(h.ID),
	}
	if row.Status == reduction.StatusWaiting {
		out.Signal = row.Signal
	}
	if len(row.Failure) > 0 {
		out.Failure = wire.EncodeFailure([]byte(strings.Clone(string(row.Failure))))
		if out.Status == perdurev1.NodeStatus_NODE_STATUS_SKIPPED && out.Failure.GetType() == state.FailureSkipped {
			out.SkipReason, out.Failure = out.Failure.GetMessage(), nil
		}
	}
	switch node.Kind.(type) {
	case *perdurev1.GraphNode_Signal, *perdurev1.GraphNode_Sleep:
	default:
		if row.Child != 0 {
			out.AttemptId = row.AttemptID(h.ID)
		}
	}
	return out
}

// graphWakeSource names what will advance a graph run next.
func (x *Read) graphWakeSource(h state.Header) string {
	if h.Status == journal.StatusCancelling {
		return "cancel grace"
	}
	if h.GraphAt != 0 {
		return "next nodes"
	}
	running, retry, waits := "", "", ""
	x.nodes(h, 1<<31-1, func(n int, row state.NodeRow) {
		switch {
		case row.Status == reduction.StatusWaiting && waits == "":
			waits = "signal " + row.Signal
		case row.Status == reduction.StatusRunning && row.RetryAt != 0 && retry == "":
			retry = "retry timer"
		case row.Status == reduction.StatusRunning && row.RetryAt == 0 && running == "":
			running = row.Promise(h.ID)
		}
	})
	switch {
	case running != "":
		if p, ok := x.Promise(x.Query.Namespace, running); ok && p.Timer {
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
