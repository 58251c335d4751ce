package rpc_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
)

func (w *world) graphs() perdurev1.GraphsClient { return perdurev1.NewGraphsClient(w.conn) }

func waitsFor(id, signal string, after ...string) *perdurev1.GraphNode {
	return &perdurev1.GraphNode{Id: id, After: after, Kind: &perdurev1.GraphNode_Signal{Signal: &perdurev1.SignalNode{Name: signal}}}
}

// twoSignals is a graph that advances by signals only and needs no worker.
func twoSignals() *perdurev1.Graph {
	return &perdurev1.Graph{Name: "two", Nodes: []*perdurev1.GraphNode{waitsFor("first", "one"), waitsFor("second", "two", "first")}}
}

// TestGraphsRefusedAtTheEdge sends everything that a request about graphs may not be. It runs alone: it counts
// what is proposed.
func TestGraphsRefusedAtTheEdge(t *testing.T) {
	w := newWorld(t)
	w.start("exists", "unserved")
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
	if e, ok := api.FromStatus(err); !ok || e.Meta["id"] != "new" || e.Meta["rule"] == "" || e.Meta["path"] == "" ||
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

func (w *world) graphStatus(id string) *perdurev1.GraphStatus {
	w.t.Helper()
	s, err := w.graphs().GetStatus(soon(w.t), &perdurev1.GraphStatusRequest{Namespace: w.ns, Id: id})
	if err != nil {
		w.t.Fatalf("status of %s: %v", id, err)
	}
	return s
}

func (w *world) signal(id, name, payload string) {
	w.t.Helper()
	if _, err := w.executions.Signal(soon(w.t), &perdurev1.SignalRequest{Namespace: w.ns, Id: id, Name: name, Payload: []byte(payload), Request: rid()}); err != nil {
		w.t.Fatalf("signal %s to %s: %v", name, id, err)
	}
}

// TestGraphThroughANode runs a graph from its submission to its outcomes.
func TestGraphThroughANode(t *testing.T) {
	w := newWorld(t)
	g := w.graphs()
	submit := &perdurev1.SubmitGraphRequest{Namespace: w.ns, Id: "run", Graph: twoSignals(), Input: []byte(`{"a":1}`), Tags: map[string]string{"k": "v"}}
	first, err := g.Submit(soon(t), submit) // without a request id: the edge mints one
	if err != nil || first.Id != "run" || !first.Created || first.Incarnation == 0 {
		t.Fatalf("submitted %v, %v", first, err)
	}
	again, err := g.Submit(soon(t), submit)
	if err != nil || again.Created || again.Incarnation != first.Incarnation {
		t.Errorf("submitted again %v, %v", again, err)
	}
	other := proto.CloneOf(submit)
	other.Graph.Nodes[1].After = nil
	_, err = g.Submit(soon(t), other)
	refused(t, "another graph under the id", err, perdurev1.Reason_REASON_ID_CONFLICT)

	whole, err := g.GetGraph(soon(t), &perdurev1.GetGraphRequest{Namespace: w.ns, Id: "run"})
	if err != nil || !proto.Equal(whole.Graph, submit.Graph) || string(whole.Input) != `{"a":1}` {
		t.Errorf("the graph is %v, %v", whole, err)
	}
	s := w.graphStatus("run")
	if s.Name != "two" || s.Incarnation != first.Incarnation || s.ReadIndex == 0 || len(s.Nodes) != 2 ||
		s.Nodes[0].Status != perdurev1.NodeStatus_NODE_STATUS_WAITING || s.Nodes[1].Status != perdurev1.NodeStatus_NODE_STATUS_PENDING {
		t.Errorf("status %v", s)
	}
	_, err = g.Retry(soon(t), &perdurev1.RetryGraphRequest{Namespace: w.ns, Id: "run"})
	refused(t, "retry of a running run", err, perdurev1.Reason_REASON_RULE_BROKEN)

	w.signal("run", "one", `{"by":"ann"}`)
	w.signal("run", "two", `2`)
	r, err := w.executions.Result(soon(t), &perdurev1.ResultRequest{Namespace: w.ns, Id: "run", WaitMs: testTimeout.Milliseconds()})
	if err != nil || r.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED || string(r.Outcome.GetValue()) != `{"second":2}` {
		t.Errorf("the run ended with %v, %v", r, err)
	}
	o, err := g.GetOutcome(soon(t), &perdurev1.NodeOutcomeRequest{Namespace: w.ns, Id: "run", Node: "first"})
	if err != nil || o.State.Status != perdurev1.NodeStatus_NODE_STATUS_COMPLETED || string(o.Output) != `{"by":"ann"}` {
		t.Errorf("the first node has come to %v, %v", o, err)
	}
	_, err = g.GetOutcome(soon(t), &perdurev1.NodeOutcomeRequest{Namespace: w.ns, Id: "run", Node: "third"})
	if _, ok := fromStatus(err); !ok {
		t.Errorf("a node that is not there: %v", err)
	}
	notFound := perdurev1.Reason_REASON_EXECUTION_NOT_FOUND
	_, err = g.GetStatus(soon(t), &perdurev1.GraphStatusRequest{Namespace: w.ns, Id: "none", WaitMs: 1000})
	refused(t, "status of nothing", err, notFound)
	_, err = g.GetGraph(soon(t), &perdurev1.GetGraphRequest{Namespace: w.ns, Id: "none"})
	refused(t, "graph of nothing", err, notFound)
	w.start("plain", "unserved")
	_, err = g.GetStatus(soon(t), &perdurev1.GraphStatusRequest{Namespace: w.ns, Id: "plain"})
	refused(t, "status of what is no run", err, notFound)
}

// TestGraphStatusWaits holds a question open until there is something new to say.
func TestGraphStatusWaits(t *testing.T) {
	t.Parallel() // it waits most of the time
	w := newWorld(t)
	g := w.graphs()
	submit := func(id string) *perdurev1.GraphStatus {
		t.Helper()
		if _, err := g.Submit(soon(t), &perdurev1.SubmitGraphRequest{Namespace: w.ns, Id: id, Graph: twoSignals()}); err != nil {
			t.Fatal(err)
		}
		return w.graphStatus(id)
	}
	type answer struct {
		s   *perdurev1.GraphStatus
		err error
	}
	ask := func(ctx context.Context, id string, after uint64, wait time.Duration) <-chan answer {
		out := make(chan answer, 1)
		go func() {
			s, err := g.GetStatus(ctx, &perdurev1.GraphStatusRequest{Namespace: w.ns, Id: id, AfterVersion: after, WaitMs: wait.Milliseconds()})
			out <- answer{s, err}
		}()
		return out
	}

	s := submit("run")
	if a := receive(t, "answer", ask(soon(t), "run", s.Version-1, testTimeout)); a.err != nil || a.s.Version != s.Version {
		t.Errorf("what is new already: %v, %v", a.s, a.err)
	}
	if a := receive(t, "answer", ask(soon(t), "run", s.Version, 50*time.Millisecond)); a.err != nil || a.s.Version != s.Version {
		t.Errorf("nothing new in time: %v, %v", a.s, a.err)
	}
	waiting := ask(soon(t), "run", s.Version, testTimeout)
	w.signal("run", "one", `1`)
	a := receive(t, "answer", waiting)
	if a.err != nil || a.s.Version <= s.Version {
		t.Errorf("after a signal: %v, %v; it was version %d", a.s, a.err, s.Version)
	}

	// The end is an answer too, and so is every question after it.
	until(t, "the second node to wait", func() error {
		if s = w.graphStatus("run"); s.Nodes[1].Status != perdurev1.NodeStatus_NODE_STATUS_WAITING {
			return fmt.Errorf("%v", s)
		}
		return nil
	})
	waiting = ask(soon(t), "run", s.Version, testTimeout)
	if _, err := w.executions.Terminate(soon(t), &perdurev1.TerminateRequest{Namespace: w.ns, Id: "run", Reason: "enough"}); err != nil {
		t.Fatal(err)
	}
	if a = receive(t, "answer", waiting); a.err != nil || a.s.Version <= s.Version {
		t.Errorf("at the end: %v, %v", a.s, a.err)
	}
	until(t, "the end", func() error {
		if s = w.graphStatus("run"); s.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED {
			return fmt.Errorf("%v", s)
		}
		return nil
	})
	if a = receive(t, "answer", ask(soon(t), "run", 1<<40, testTimeout)); a.err != nil || a.s.Phase != "cancelled" {
		t.Errorf("after the end: %v, %v", a.s, a.err)
	}

	// An ended run is retried under the same id, and keeps the nodes that completed.
	r, err := g.Retry(soon(t), &perdurev1.RetryGraphRequest{Namespace: w.ns, Id: "run"})
	if err != nil || r.FormerIncarnation != s.Incarnation || r.Incarnation <= s.Incarnation || r.Reset_ != 1 {
		t.Fatalf("retried: %v, %v", r, err)
	}
	if s = w.graphStatus("run"); s.FormerIncarnation != r.FormerIncarnation || !s.Nodes[0].Kept {
		t.Errorf("after a retry: %v", s)
	}
	w.signal("run", "two", `2`)
	if r, err := w.executions.Result(soon(t), &perdurev1.ResultRequest{Namespace: w.ns, Id: "run", WaitMs: testTimeout.Milliseconds()}); err != nil ||
		string(r.GetOutcome().GetValue()) != `{"second":2}` {
		t.Errorf("the second incarnation ended with %v, %v", r, err)
	}

	// A caller may leave a watch.
	s = submit("left")
	ctx, cancel := context.WithCancel(soon(t))
	waiting = ask(ctx, "left", s.Version, testTimeout)
	cancel()
	if a = receive(t, "answer", waiting); a.err == nil {
		t.Errorf("who has gone was answered %v", a.s)
	}
}

// TestGraphStatusEndsWithTheNode has a node stop that holds a question open.
func TestGraphStatusEndsWithTheNode(t *testing.T) {
	t.Parallel() // it waits most of the time
	n := startNode(t, nil)
	w := connect(t, n)
	if _, err := w.graphs().Submit(soon(t), &perdurev1.SubmitGraphRequest{Namespace: w.ns, Id: "run", Graph: twoSignals()}); err != nil {
		t.Fatal(err)
	}
	s := w.graphStatus("run")
	ended := make(chan error, 1)
	go func() {
		_, err := w.graphs().GetStatus(soon(t), &perdurev1.GraphStatusRequest{Namespace: w.ns, Id: "run", AfterVersion: s.Version, WaitMs: 60_000})
		ended <- err
	}()
	// It may still be on its way when the node stops: then it is refused, and not held.
	if err := finish(n); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, "end", ended); err == nil {
		t.Error("the question was answered")
	}
}
