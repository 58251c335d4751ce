package rpc_test

import (
	"fmt"
	"strings"
	"testing"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
)

func (w *world) graphs() perdurev1.GraphsClient { return perdurev1.NewGraphsClient(w.conn) }

func waitsFor(id, signal string, after ...string) *perdurev1.GraphNode {
	return &perdurev1.GraphNode{Id: id, After: after, Kind: &perdurev1.GraphNode_Signal{Signal: &perdurev1.SignalNode{Name: signal}}}
}

// twoSignals is a graph that goes on when somebody says so, and needs no worker.
func twoSignals() *perdurev1.Graph {
	return &perdurev1.Graph{Name: "two", Nodes: []*perdurev1.GraphNode{waitsFor("first", "one"), waitsFor("second", "two", "first")}}
}

// TestGraphsRefusedAtTheEdge sends everything that a request about graphs may not be. It runs alone: it counts
// what is proposed.
func TestGraphsRefusedAtTheEdge(t *testing.T) {
	w := newWorld(t)
	w.start("exists", "nobody")
	before := proposed(t, w)
	g := w.graphs()
	submit := func(change func(*perdurev1.SubmitGraphRequest)) error {
		r := &perdurev1.SubmitGraphRequest{Namespace: w.ns, Id: "new", Graph: twoSignals(), Request: rid()}
		change(r)
		_, err := g.Submit(soon(t), r)
		return err
	}
	retry := func(r *perdurev1.RetryGraphRequest) error { _, err := g.Retry(soon(t), r); return err }
	status := func(r *perdurev1.GraphStatusRequest) error { _, err := g.GetStatus(soon(t), r); return err }
	whole := func(r *perdurev1.GetGraphRequest) error { _, err := g.GetGraph(soon(t), r); return err }
	outcome := func(r *perdurev1.NodeOutcomeRequest) error { _, err := g.GetOutcome(soon(t), r); return err }
	large := &perdurev1.Graph{}
	for i := range 20 {
		large.Nodes = append(large.Nodes, &perdurev1.GraphNode{Id: fmt.Sprint("n", i), Inputs: []*perdurev1.NodeInput{
			{Name: "x", Source: &perdurev1.NodeInput_Value{Value: []byte(`"` + long(220_000) + `"`)}}},
			Kind: &perdurev1.GraphNode_Function{Function: &perdurev1.FunctionNode{Function: "f"}}})
	}
	shortID := &perdurev1.RequestID{Id: big(15)}

	for _, c := range []struct {
		what   string
		err    error
		reason perdurev1.Reason
	}{
		{"submit: no id", submit(func(r *perdurev1.SubmitGraphRequest) { r.Id = "" }), badID},
		{"submit: id with a colon", submit(func(r *perdurev1.SubmitGraphRequest) { r.Id = "a:0" }), badID},
		{"submit: long id", submit(func(r *perdurev1.SubmitGraphRequest) { r.Id = long(1025) }), idTooLong},
		{"submit: long namespace", submit(func(r *perdurev1.SubmitGraphRequest) { r.Namespace = long(257) }), bad},
		{"submit: short request id", submit(func(r *perdurev1.SubmitGraphRequest) { r.Request = shortID }), bad},
		{"submit: no graph", submit(func(r *perdurev1.SubmitGraphRequest) { r.Graph = nil }), bad},
		{"submit: a graph without nodes", submit(func(r *perdurev1.SubmitGraphRequest) { r.Graph = &perdurev1.Graph{} }), bad},
		{"submit: a cycle", submit(func(r *perdurev1.SubmitGraphRequest) { r.Graph.Nodes[0].After = []string{"second"} }), bad},
		{"submit: a graph of more than 4 MiB", submit(func(r *perdurev1.SubmitGraphRequest) { r.Graph = large }), tooLarge},
		{"submit: input that is not JSON", submit(func(r *perdurev1.SubmitGraphRequest) { r.Input = []byte("{") }), bad},
		{"submit: input that is two values", submit(func(r *perdurev1.SubmitGraphRequest) { r.Input = []byte("1 2") }), bad},
		{"submit: input that is not UTF-8", submit(func(r *perdurev1.SubmitGraphRequest) { r.Input = []byte("\"\xff\"") }), bad},
		{"submit: large input", submit(func(r *perdurev1.SubmitGraphRequest) { r.Input = big(maxPayload + 1) }), tooLarge},
		{"submit: 65 tags", submit(func(r *perdurev1.SubmitGraphRequest) { r.Tags = manyTags(65) }), tooMany},
		{"submit: negative timeout", submit(func(r *perdurev1.SubmitGraphRequest) { r.TimeoutMs = -1 }), bad},
		{"retry: no id", retry(&perdurev1.RetryGraphRequest{Namespace: w.ns}), badID},
		{"retry: long namespace", retry(&perdurev1.RetryGraphRequest{Namespace: long(257), Id: "x"}), bad},
		{"retry: short request id", retry(&perdurev1.RetryGraphRequest{Namespace: w.ns, Id: "x", Request: shortID}), bad},
		{"status: no id", status(&perdurev1.GraphStatusRequest{Namespace: w.ns}), badID},
		{"status: negative wait", status(&perdurev1.GraphStatusRequest{Namespace: w.ns, Id: "x", WaitMs: -1}), bad},
		{"graph: id with a NUL", whole(&perdurev1.GetGraphRequest{Namespace: w.ns, Id: "a\x00"}), badID},
		{"outcome: no id", outcome(&perdurev1.NodeOutcomeRequest{Namespace: w.ns, Node: "n"}), badID},
		{"outcome: no node", outcome(&perdurev1.NodeOutcomeRequest{Namespace: w.ns, Id: "x"}), bad},
		{"outcome: long node", outcome(&perdurev1.NodeOutcomeRequest{Namespace: w.ns, Id: "x", Node: long(257)}), bad},
	} {
		refused(t, c.what, c.err, c.reason)
	}

	err := submit(func(r *perdurev1.SubmitGraphRequest) {
		r.Graph.Nodes[1].After = []string{"frist"}
		r.Graph.Nodes[0].TimeoutMs = -1
	})
	if e, ok := api.FromStatus(err); !ok || e.Meta["id"] != "new" || e.Meta["rule"] == "" || e.Meta["place"] == "" ||
		!strings.Contains(e.Message, `"frist"`) || !strings.Contains(e.Message, "timeout_ms") {
		t.Errorf("a graph with two problems: %v", err)
	}
	if after := proposed(t, w); after != before {
		t.Errorf("%v commands were proposed", after-before)
	}
	if n := w.listed(); n != 1 {
		t.Errorf("%d executions are there, want the one that was before", n)
	}
}
