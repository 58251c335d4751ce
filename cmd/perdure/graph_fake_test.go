package main

import (
	"context"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/graph/source"
)

// fakeGraphs answers about graphs from what a test gives it; runs are executions of its fakeServer.
type fakeGraphs struct {
	perdurev1.UnimplementedGraphsServer
	s *fakeServer

	mu     sync.Mutex
	graphs map[string]*perdurev1.GetGraphResponse
	// statuses are the answers about a run in order; the last one repeats.
	statuses map[string][]*perdurev1.GraphStatus
	outcomes map[string]*perdurev1.NodeOutcome
	last     *perdurev1.SubmitGraphRequest
	// shown, if there is one, gets a value when a look is asked for that is held back until the test says so.
	shown, next chan struct{}
}

func (g *fakeGraphs) serve(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	perdurev1.RegisterExecutionsServer(server, g.s)
	perdurev1.RegisterGraphsServer(server, g)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

func noRun(id string) error {
	return api.Errorf(perdurev1.Reason_REASON_EXECUTION_NOT_FOUND, "there is no execution %q in namespace %q", id, "default").With("id", id)
}

func (g *fakeGraphs) Submit(_ context.Context, r *perdurev1.SubmitGraphRequest) (*perdurev1.SubmitGraphResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last = r
	if have := g.graphs[r.Id]; have != nil {
		if !proto.Equal(have.Graph, r.Graph) || string(have.Input) != string(r.Input) {
			return nil, api.Errorf(perdurev1.Reason_REASON_ID_CONFLICT, "execution %q was started before with another graph", r.Id).With("id", r.Id)
		}
		return &perdurev1.SubmitGraphResponse{Id: r.Id, Incarnation: 100, Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING}, nil
	}
	for _, n := range r.Graph.Nodes {
		if n.GetFunction().GetFunction() == "unknown" && !r.AllowUnknownFunctions {
			return nil, api.Errorf(perdurev1.Reason_REASON_FUNCTION_UNKNOWN, "no worker has ever registered in namespace %q: unknown", r.Namespace).With("function", "unknown")
		}
	}
	g.graphs[r.Id] = &perdurev1.GetGraphResponse{Graph: r.Graph, Input: r.Input}
	if g.statuses[r.Id] == nil {
		g.statuses[r.Id] = statusOf(r.Id, perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED, "completed", 1)
	}
	return &perdurev1.SubmitGraphResponse{Id: r.Id, Incarnation: 100, Created: true, Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING}, nil
}

func statusOf(id string, s perdurev1.ExecutionStatus, phase string, version uint64, nodes ...*perdurev1.GraphNodeState) []*perdurev1.GraphStatus {
	return []*perdurev1.GraphStatus{{Id: id, Incarnation: 100, Name: "report", Status: s, Phase: phase, Version: version, CreatedMs: at(time.Minute), Nodes: nodes}}
}

func (g *fakeGraphs) GetStatus(ctx context.Context, r *perdurev1.GraphStatusRequest) (*perdurev1.GraphStatus, error) {
	if r.WaitMs > 0 && g.shown != nil {
		select {
		case g.shown <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		select {
		case <-g.next:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	answers := g.statuses[r.Id]
	if answers == nil {
		return nil, noRun(r.Id)
	}
	if r.WaitMs > 0 && len(answers) > 1 {
		answers = answers[1:]
		g.statuses[r.Id] = answers
	}
	return answers[0], nil
}

func (g *fakeGraphs) GetGraph(_ context.Context, r *perdurev1.GetGraphRequest) (*perdurev1.GetGraphResponse, error) {
	if have := g.graphs[r.Id]; have != nil {
		return have, nil
	}
	return nil, noRun(r.Id)
}

func (g *fakeGraphs) GetOutcome(_ context.Context, r *perdurev1.NodeOutcomeRequest) (*perdurev1.NodeOutcome, error) {
	if g.statuses[r.Id] == nil {
		return nil, noRun(r.Id)
	}
	if o := g.outcomes[r.Node]; o != nil {
		return o, nil
	}
	return nil, api.Errorf(perdurev1.Reason_REASON_PROMISE_NOT_FOUND, "graph run %q has no node %q", r.Id, r.Node).With("id", r.Id).With("node", r.Node)
}

func (g *fakeGraphs) Retry(_ context.Context, r *perdurev1.RetryGraphRequest) (*perdurev1.RetryGraphResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	answers := g.statuses[r.Id]
	switch {
	case answers == nil:
		return nil, noRun(r.Id)
	case answers[0].Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED:
		return nil, api.Errorf(perdurev1.Reason_REASON_RULE_BROKEN, "graph run %q has not ended: it is running", r.Id).With("id", r.Id)
	}
	if len(answers) > 1 {
		g.statuses[r.Id] = answers[1:]
	}
	return &perdurev1.RetryGraphResponse{Incarnation: 230, FormerIncarnation: 200, Reset_: 2}, nil
}

// pressroom is a server with runs of the graph in testdata/graphs/report.yaml.
func pressroom(t *testing.T) *fakeGraphs {
	t.Helper()
	const path = "testdata/graphs/report.yaml"
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	graph, err := source.Parse(path, content)
	if err != nil {
		t.Fatal(err)
	}
	g := &fakeGraphs{s: newFakeServer(), graphs: map[string]*perdurev1.GetGraphResponse{}, statuses: map[string][]*perdurev1.GraphStatus{},
		outcomes: map[string]*perdurev1.NodeOutcome{}}
	const (
		pending   = perdurev1.NodeStatus_NODE_STATUS_PENDING
		running   = perdurev1.NodeStatus_NODE_STATUS_RUNNING
		waiting   = perdurev1.NodeStatus_NODE_STATUS_WAITING
		completed = perdurev1.NodeStatus_NODE_STATUS_COMPLETED
		failed    = perdurev1.NodeStatus_NODE_STATUS_FAILED
		skipped   = perdurev1.NodeStatus_NODE_STATUS_SKIPPED
	)
	node := func(id, kind string, s perdurev1.NodeStatus, change func(*perdurev1.GraphNodeState)) *perdurev1.GraphNodeState {
		n := &perdurev1.GraphNodeState{Id: id, Kind: kind, Status: s}
		if s != pending {
			n.Attempt, n.StartedMs, n.PromiseId, n.AttemptId = 1, at(40*time.Second), "report-7:0", "report-7:0.0"
		}
		if s == completed || s == failed || s == skipped {
			n.EndedMs = at(25 * time.Second)
		}
		if change != nil {
			change(n)
		}
		return n
	}
	type nodes struct{ parse, rates, approve, tidy, send perdurev1.NodeStatus }
	look := func(id string, version uint64, s perdurev1.ExecutionStatus, phase string, of nodes, change func(map[string]*perdurev1.GraphNodeState)) *perdurev1.GraphStatus {
		list := []*perdurev1.GraphNodeState{node("parse", "function parse", of.parse, nil), node("rates", "http", of.rates, nil),
			node("approve", "signal approved", of.approve, func(n *perdurev1.GraphNodeState) {
				if n.Status == waiting {
					n.Signal = "approved"
				}
			}),
			node("tidy", "subgraph", of.tidy, nil), node("send", "function send", of.send, nil)}
		byID := map[string]*perdurev1.GraphNodeState{}
		for _, n := range list {
			byID[n.Id] = n
		}
		if change != nil {
			change(byID)
		}
		out := &perdurev1.GraphStatus{Id: id, Incarnation: 200, Name: "report", Status: s, Phase: phase, Version: version, Nodes: list, CreatedMs: at(41 * time.Second)}
		if ended(s) {
			out.ClosedMs = at(20 * time.Second)
		}
		return out
	}
	type states = map[string]*perdurev1.GraphNodeState
	retried := func(n states) {
		n["parse"].Failure, n["parse"].RetryAtMs = &perdurev1.Failure{Type: "io", Message: "no\x1b[2J disk"}, at(-3*time.Second)
	}
	again := func(n states) {
		n["parse"].Failure, n["parse"].Attempt = &perdurev1.Failure{Type: "io", Message: "no disk"}, 2
	}
	noRates := func(n states) { n["rates"].Failure = &perdurev1.Failure{Type: "http", Message: "503"} }
	const (
		going = perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING
		done  = perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED
		lost  = perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED
	)
	g.statuses["report-7"] = []*perdurev1.GraphStatus{
		look("report-7", 4, going, "progressing", nodes{running, running, pending, pending, pending}, nil),
		look("report-7", 6, going, "progressing", nodes{running, skipped, pending, pending, pending}, func(n states) { retried(n); noRates(n) }),
		look("report-7", 7, going, "progressing", nodes{running, skipped, pending, pending, pending}, func(n states) { again(n); noRates(n) }),
		look("report-7", 10, going, "suspended", nodes{completed, skipped, waiting, pending, pending}, nil),
		look("report-7", 15, going, "progressing", nodes{completed, skipped, completed, running, running}, func(n states) { n["tidy"].Unobserved = true }),
		look("report-7", 21, done, "completed", nodes{completed, skipped, completed, completed, completed}, nil),
	}
	broke := look("report-9", 12, lost, "failed", nodes{completed, skipped, completed, failed, failed}, func(n states) {
		n["tidy"].Failure = &perdurev1.Failure{Type: "graph.failed", Message: "node second failed"}
		n["send"].ByPropagation = true
		n["rates"].SkipReason = "no rates\x1b[2J today"
	})
	broke.Problem = "node tidy failed: node second failed"
	again9 := proto.Clone(broke).(*perdurev1.GraphStatus)
	again9.Incarnation, again9.FormerIncarnation, again9.Version = 230, 200, 20
	again9.Nodes[0].Kept, again9.Nodes[2].Kept = true, true
	g.statuses["report-9"] = []*perdurev1.GraphStatus{broke, again9}
	for _, id := range []string{"report-7", "report-9"} {
		g.graphs[id] = &perdurev1.GetGraphResponse{Graph: graph, Input: []byte(`{"file":"in.csv"}`)}
	}
	g.s.add(&perdurev1.Execution{Id: "report-7", Status: done, Outcome: valueOf([]byte(`{"send":1,"tidy":{}}`))})
	g.s.add(&perdurev1.Execution{Id: "report-9", Status: lost, Outcome: failureOf("graph.failed", broke.Problem)})
	g.outcomes = map[string]*perdurev1.NodeOutcome{
		"parse":   {State: g.statuses["report-7"][3].Nodes[0], Output: []byte(`{"rows": [1, 2]}`)},
		"rates":   {State: g.statuses["report-7"][1].Nodes[1]},
		"approve": {State: g.statuses["report-7"][3].Nodes[2]},
		"tidy":    {State: broke.Nodes[3]},
		"send":    {State: broke.Nodes[4]},
	}
	return g
}
