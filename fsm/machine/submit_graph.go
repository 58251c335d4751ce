package machine

import (
	"bytes"
	"slices"
	"strings"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
	"perdure/graph"
	"perdure/id"
)

// applySubmitGraph starts a graph run under an id of the caller's choice. The id is the idempotency key: the
// same graph with the same input returns the existing run, any other is a conflict.
func applySubmitGraph(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	req, ns := cmd.GetSubmitGraph(), cmd.Namespace
	if err := id.ValidateRoot(req.Id); err != nil {
		return nil, badID(ns, err)
	}
	bad := func(err error) *api.Error {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "%s", err.Error()).With("namespace", ns).With("id", req.Id)
	}
	if req.Graph == nil {
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "there is no graph").With("namespace", ns).With("id", req.Id)
	}
	stored, err := state.EncodeGraph(req.Graph, req.Input)
	if err != nil {
		return nil, bad(err)
	}
	if ex, ok := t.execution(ns, req.Id); ok {
		if err := t.sameGraph(ex, stored); err != nil {
			return nil, err
		}
		rid := cmd.GetRequest().GetId()
		return submitted(ex, len(rid) > 0 && bytes.Equal(rid, ex.h.StartRequest)), nil
	}
	if _, ok := t.store(ns).Promise(req.Id); ok {
		return nil, api.Errorf(perdurev1.Reason_REASON_ID_CONFLICT, "id %q is a promise already", req.Id).
			With("namespace", ns).With("id", req.Id)
	}
	if err := graph.Validate(req.Graph); err != nil {
		return nil, bad(err)
	}
	functions, refused := functionsOf(req.Graph, nil)
	if refused != nil {
		return nil, refused.With("namespace", ns).With("id", req.Id)
	}
	var unknown []string
	for _, fn := range functions {
		if _, known := t.get(keys.Of(keys.Function, ns, fn)); !known {
			unknown = append(unknown, fn)
		}
	}
	if len(unknown) > 0 && !req.AllowUnknownFunctions {
		return nil, api.Errorf(perdurev1.Reason_REASON_FUNCTION_UNKNOWN,
			"no worker has ever registered in namespace %q: %s", ns, bounded(strings.Join(unknown, ", "))).
			With("namespace", ns).With("id", req.Id).With("function", bounded(strings.Join(unknown, ",")))
	}
	ex, err := t.start(ns, birth{
		id: req.Id, function: state.FunctionGraph, input: req.Input, tags: wire.DecodeTags(req.Tags),
		deadlineMS: t.deadline(req.TimeoutMs), request: cmd.GetRequest().GetId(), graph: req.Graph, stored: stored,
	})
	if err != nil {
		return nil, ruleError(ns, err)
	}
	return submitted(ex, true), nil
}

func submitted(ex *execution, created bool) *commandv1.Reply {
	return &commandv1.Reply{Kind: &commandv1.Reply_SubmitGraph{SubmitGraph: &perdurev1.SubmitGraphResponse{
		Id: ex.h.ID, Incarnation: ex.h.Incarnation, Created: created, Status: wire.EncodeStatus(ex.h.Status),
	}}}
}

// sameGraph refuses a submission that differs from the one that created the run.
func (t *txn) sameGraph(ex *execution, submitted []byte) *api.Error {
	differs := ""
	if ex.h.Kind != state.KindGraph {
		differs = "function " + ex.h.Function
	} else {
		key := keys.GraphOf(ex.ns, ex.h.ID, ex.h.Incarnation)
		stored, _ := t.get(key)
		if bytes.Equal(stored, submitted) {
			return nil
		}
		have, _, err := state.SplitGraph(stored)
		if err != nil {
			state.PanicCorrupt("graph", key, err)
		}
		differs = "another input"
		if spec, _, _ := state.SplitGraph(submitted); !bytes.Equal(have, spec) {
			differs = "another graph"
		}
	}
	return api.Errorf(perdurev1.Reason_REASON_ID_CONFLICT, "execution %q was started before with %s", ex.h.ID, differs).
		With("namespace", ex.ns).With("id", ex.h.ID)
}

// functionsOf collects the functions that a graph names, with those of its subgraphs, each once, in order.
func functionsOf(g *perdurev1.Graph, found []string) ([]string, *api.Error) {
	for _, n := range g.Nodes {
		switch kind := n.Kind.(type) {
		case *perdurev1.GraphNode_Function:
			fn := kind.Function.GetFunction()
			if err := reserved(fn); err != nil {
				return nil, err.With("node", n.Id)
			}
			if at, ok := slices.BinarySearch(found, fn); !ok {
				found = slices.Insert(found, at, fn)
			}
		case *perdurev1.GraphNode_Subgraph:
			var err *api.Error
			if found, err = functionsOf(kind.Subgraph, found); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}
