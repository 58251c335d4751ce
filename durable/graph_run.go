package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/graph"
)

// ErrUnfinished is matched by the error of Outcome while the node has not ended.
var ErrUnfinished = errors.New("durable: graph node has not ended")

// Submit builds the graph and starts a run of it under an id, and does not wait for it. The input is encoded
// as JSON; []byte and json.RawMessage are JSON already. The same graph with the same input under the same id
// again is the same run. Errors are those of Build and of client.Client.SubmitGraph, and an *Error for an
// input that cannot be encoded. StartDigest is not for graphs, and refused.
func (g *Graph) Submit(ctx context.Context, c *client.Client, id string, input any, opts ...StartOption) (*GraphHandle, error) {
	built, err := g.Build()
	if err != nil {
		return nil, err
	}
	in, err := encode(JSON{}, "the input", "", input)
	if err != nil {
		return nil, err
	}
	var o client.StartOptions
	for _, opt := range opts {
		opt(&o)
	}
	if o.Digest != "" {
		return nil, fmt.Errorf("durable: graph %q: a run has no digest: each of its functions is of its own code", g.name)
	}
	started, err := c.SubmitGraph(ctx, client.SubmitGraphOptions{ID: id, Graph: built, Input: in, Timeout: o.Timeout, Tags: o.Tags,
		AllowUnknownFunctions: o.AllowUnknownFunction})
	if err != nil {
		return nil, err
	}
	h := AttachGraph(c, id)
	h.started = started
	return h, nil
}

// AttachGraph is a handle of a run that exists already, or will. It does no I/O.
func AttachGraph(c *client.Client, id string) *GraphHandle { return &GraphHandle{c: c, id: id} }

// GraphHandle is one run of a graph, seen from outside.
type GraphHandle struct {
	c       *client.Client
	id      string
	started client.Started
}

// ID is the run's id.
func (h *GraphHandle) ID() string { return h.id }

// Started is the answer of Submit; zero after AttachGraph.
func (h *GraphHandle) Started() client.Started { return h.started }

// Status is the progress of the run and each of its nodes. client.Client.WatchGraph reports changes.
func (h *GraphHandle) Status(ctx context.Context) (*perdurev1.GraphStatus, error) {
	return h.c.GraphStatus(ctx, h.id)
}

// Wait waits until the run has finished or ctx ends. A run that failed or was cancelled is both a
// *client.ExecutionError and an *Error (errors.As finds either); other errors are those of
// client.Client.Result.
func (h *GraphHandle) Wait(ctx context.Context) error {
	_, err := h.answer(ctx)
	return err
}

// Result is Wait, and returns the run's result: an object of the outputs of its last nodes, by their ids. A
// run that has completed with more than graph.MaxResultBytes of them is a *graph.TooLarge (errors.As finds
// it): Outcome reads them one by one.
func (h *GraphHandle) Result(ctx context.Context) (json.RawMessage, error) {
	data, err := h.answer(ctx)
	if err != nil {
		return nil, err
	}
	if too, ok := graph.ParseTooLarge(data); ok {
		return nil, fmt.Errorf("durable: the run %s has completed: %w", h.id, too)
	}
	return data, nil
}

func (h *GraphHandle) answer(ctx context.Context) ([]byte, error) {
	data, err := h.c.Result(ctx, h.id)
	var ended *client.ExecutionError
	if errors.As(err, &ended) {
		return nil, &resultError{ended, errorOf(ended.Failure)}
	}
	return data, err
}

// Outcome is the result of one node of a run, decoded from JSON; as []byte or json.RawMessage it is the
// node's answer, JSON or not. It does not wait. A node that failed is an *Error with its failure, one that
// was skipped an *Error that matches ErrSkipped, and one that has not ended matches ErrUnfinished. Other
// errors are those of client.Client.NodeOutcome.
func Outcome[T any](ctx context.Context, h *GraphHandle, node string) (T, error) {
	var out T
	o, err := h.c.NodeOutcome(ctx, h.id, node)
	if err != nil {
		return out, err
	}
	f := o.GetState().GetFailure()
	switch o.GetState().GetStatus() {
	case perdurev1.NodeStatus_NODE_STATUS_COMPLETED:
		if err := decode(JSON{}, "the output", "", o.GetOutput(), &out); err != nil {
			return out, fmt.Errorf("durable: node %q of %s: %w", node, h.id, err)
		}
		return out, nil
	case perdurev1.NodeStatus_NODE_STATUS_FAILED:
		if f == nil {
			f = &perdurev1.Failure{Type: TypeError, Message: "the node failed"}
		}
		return out, fmt.Errorf("durable: node %q of %s failed: %w", node, h.id, errorOf(f))
	case perdurev1.NodeStatus_NODE_STATUS_SKIPPED:
		why := o.GetState().GetSkipReason()
		if f != nil {
			why = f.GetMessage()
		}
		return out, fmt.Errorf("durable: node %q of %s: %w", node, h.id, &Error{Type: TypeSkipped, Message: why, Details: f.GetDetails()})
	}
	status := strings.ToLower(strings.TrimPrefix(o.GetState().GetStatus().String(), "NODE_STATUS_"))
	return out, fmt.Errorf("%w: node %q of %s is %s", ErrUnfinished, node, h.id, status)
}
