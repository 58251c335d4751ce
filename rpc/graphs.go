package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/graph"
	"perdure/partition/group"
)

// Bounds of submitted graphs.
const (
	maxGraphBytes   = 4 << 20 // encoded
	maxProblemBytes = 8 << 10 // of the problems of a graph; the rest is cut off
)

type graphs struct {
	perdurev1.UnimplementedGraphsServer
	s *Server
}

// Submit implements Graphs.
func (g *graphs) Submit(ctx context.Context, in *perdurev1.SubmitGraphRequest) (*perdurev1.SubmitGraphResponse, error) {
	ns, err := namespace(in.Namespace)
	rid, rerr := request(in.Request)
	if err := firstError(err, rerr, rootID(in.Id), payload("input", in.Input), jsonValue("input", in.Input), tags(in.Tags),
		duration("timeout", in.TimeoutMs)); err != nil {
		return nil, err
	}
	if err := wellFormed(in.Graph); err != nil {
		return nil, err.With("id", in.Id)
	}
	if err := g.s.cfg.Outbound.checkGraph(in.Graph); err != nil {
		return nil, err.With("id", in.Id)
	}
	cmd := shallow(in) // a graph has up to a million edges
	cmd.Request = nil
	reply, err := g.s.propose(ctx, &commandv1.Command{Request: rid, Namespace: ns, Id: in.Id, Kind: &commandv1.Command_SubmitGraph{SubmitGraph: cmd}})
	if err != nil {
		return nil, err
	}
	return reply.GetSubmitGraph(), nil
}

// shallow copies a message, which shares with the copy what its fields refer to. Neither may change that.
func shallow[M proto.Message](m M) M {
	from := m.ProtoReflect()
	to := from.New()
	from.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		to.Set(f, v)
		return true
	})
	to.SetUnknown(from.GetUnknown())
	return to.Interface().(M)
}

// wellFormed checks a graph: its size first, so that a large graph is not checked further.
func wellFormed(g *perdurev1.Graph) *api.Error {
	if g == nil {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "the graph is missing")
	}
	if n := proto.Size(g); n > maxGraphBytes {
		return api.Errorf(perdurev1.Reason_REASON_PAYLOAD_TOO_LARGE, "graph of %d bytes exceeds %d", n, maxGraphBytes)
	}
	err := graph.Validate(g)
	if err == nil {
		return nil
	}
	e := api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "%s", problems(err.Error()))
	var found *graph.Error
	if errors.As(err, &found) {
		_ = e.With("rule", found.Problems[0].Rule).With("path", found.Problems[0].Path.Pointer())
	}
	return e
}

// problems lists the problems of a graph, one a line, cut to what an answer can carry.
func problems(text string) string {
	if len(text) <= maxProblemBytes {
		return text
	}
	return strings.ToValidUTF8(text[:maxProblemBytes], "") + "…"
}

// jsonValue checks that a payload is a JSON value, or empty.
func jsonValue(what string, b []byte) error {
	if len(b) > 0 && !(utf8.Valid(b) && json.Valid(b)) {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "the %s is not JSON", what)
	}
	return nil
}

// Retry implements Graphs.
func (g *graphs) Retry(ctx context.Context, in *perdurev1.RetryGraphRequest) (*perdurev1.RetryGraphResponse, error) {
	ns, err := namespace(in.Namespace)
	rid, rerr := request(in.Request)
	if err := firstError(err, rerr, anyID(in.Id)); err != nil {
		return nil, err
	}
	cmd := proto.CloneOf(in)
	cmd.Request = nil
	reply, err := g.s.propose(ctx, &commandv1.Command{Request: rid, Namespace: ns, Id: in.Id, Kind: &commandv1.Command_RetryGraph{RetryGraph: cmd}})
	if err != nil {
		return nil, err
	}
	return reply.GetRetryGraph(), nil
}

// GetStatus implements Graphs.
func (g *graphs) GetStatus(ctx context.Context, in *perdurev1.GraphStatusRequest) (*perdurev1.GraphStatus, error) {
	ns, err := namespace(in.Namespace)
	if err := firstError(err, anyID(in.Id), duration("wait", in.WaitMs)); err != nil {
		return nil, err
	}
	if in.WaitMs > 0 {
		if err := g.awaitChange(ctx, ns, in); err != nil {
			return nil, err
		}
	}
	return g.status(ctx, ns, in)
}

// status reads the status once.
func (g *graphs) status(ctx context.Context, ns string, in *perdurev1.GraphStatusRequest) (*perdurev1.GraphStatus, error) {
	reply, index, err := g.s.router.Query(ctx, level(in.Level), &commandv1.Query{Namespace: ns, Id: in.Id, Kind: &commandv1.Query_GraphStatus{GraphStatus: in}})
	if err != nil {
		return nil, err
	}
	out := reply.GetGraphStatus()
	out.ReadIndex = index
	return out, nil
}

// GetGraph implements Graphs.
func (g *graphs) GetGraph(ctx context.Context, in *perdurev1.GetGraphRequest) (*perdurev1.GetGraphResponse, error) {
	ns, err := namespace(in.Namespace)
	if err := firstError(err, anyID(in.Id)); err != nil {
		return nil, err
	}
	reply, _, err := g.s.router.Query(ctx, group.Linearizable, &commandv1.Query{Namespace: ns, Id: in.Id, Kind: &commandv1.Query_Graph{Graph: in}})
	if err != nil {
		return nil, err
	}
	return reply.GetGraph(), nil
}

// GetOutcome implements Graphs.
func (g *graphs) GetOutcome(ctx context.Context, in *perdurev1.NodeOutcomeRequest) (*perdurev1.NodeOutcome, error) {
	ns, err := namespace(in.Namespace)
	if err := firstError(err, anyID(in.Id), name("node", in.Node)); err != nil {
		return nil, err
	}
	reply, _, err := g.s.router.Query(ctx, group.Linearizable, &commandv1.Query{Namespace: ns, Id: in.Id, Kind: &commandv1.Query_NodeOutcome{NodeOutcome: in}})
	if err != nil {
		return nil, err
	}
	return reply.GetNodeOutcome(), nil
}
