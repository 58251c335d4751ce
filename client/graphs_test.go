package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
)

// fakeGraphs is a node's service of graphs.
type fakeGraphs struct {
	perdurev1.UnimplementedGraphsServer
	n *fakeNode
}

func (g *fakeGraphs) Submit(ctx context.Context, r *perdurev1.SubmitGraphRequest) (*perdurev1.SubmitGraphResponse, error) {
	return ask[perdurev1.SubmitGraphResponse](g.n, ctx, r)
}
func (g *fakeGraphs) GetStatus(ctx context.Context, r *perdurev1.GraphStatusRequest) (*perdurev1.GraphStatus, error) {
	return ask[perdurev1.GraphStatus](g.n, ctx, r)
}
func (g *fakeGraphs) GetGraph(ctx context.Context, r *perdurev1.GetGraphRequest) (*perdurev1.GetGraphResponse, error) {
	return ask[perdurev1.GetGraphResponse](g.n, ctx, r)
}
func (g *fakeGraphs) GetOutcome(ctx context.Context, r *perdurev1.NodeOutcomeRequest) (*perdurev1.NodeOutcome, error) {
	return ask[perdurev1.NodeOutcome](g.n, ctx, r)
}
func (g *fakeGraphs) Retry(ctx context.Context, r *perdurev1.RetryGraphRequest) (*perdurev1.RetryGraphResponse, error) {
	return ask[perdurev1.RetryGraphResponse](g.n, ctx, r)
}

var oneNode = &perdurev1.Graph{Name: "g", Nodes: []*perdurev1.GraphNode{{Id: "a", Kind: &perdurev1.GraphNode_Sleep{Sleep: &perdurev1.SleepNode{DurationMs: 5}}}}}

const (
	running   = perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING
	completed = perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED
	failed    = perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED
)

// Every call says what it was asked to, in the namespace of the client.
func TestGraphRequests(t *testing.T) {
	c := newCluster(t, "a")
	cl := c.client(Options{Namespace: "acme"})
	var last proto.Message
	answers := func(resp any) {
		c.answer = func(_ context.Context, _ int, req any) (any, error) { last = req.(proto.Message); return resp, nil }
	}
	check := func(want proto.Message, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		got := proto.Clone(last).ProtoReflect()
		if f := got.Descriptor().Fields().ByName("request"); f != nil {
			if r, ok := got.Get(f).Message().Interface().(*perdurev1.RequestID); !ok || len(r.GetId()) != 16 {
				t.Errorf("%T without request id", last)
			}
			got.Clear(f)
		}
		if !proto.Equal(got.Interface(), want) {
			t.Errorf("asked %v\nwant  %v", got.Interface(), want)
		}
	}

	answers(&perdurev1.SubmitGraphResponse{Id: "r", Incarnation: 7, Created: true, Status: running})
	s, err := cl.SubmitGraph(t.Context(), SubmitGraphOptions{ID: "r", Graph: oneNode, Input: []byte("{}"), Timeout: 1500 * time.Microsecond,
		Tags: map[string]string{"k": "v"}, AllowUnknownFunctions: true})
	check(&perdurev1.SubmitGraphRequest{Namespace: "acme", Id: "r", Graph: oneNode, Input: []byte("{}"), TimeoutMs: 2,
		Tags: map[string]string{"k": "v"}, AllowUnknownFunctions: true}, err)
	if s != (Started{ID: "r", Incarnation: 7, Created: true, Status: running}) {
		t.Errorf("submitted %v", s)
	}
	answers(&perdurev1.GraphStatus{Id: "r", Version: 3})
	g, err := cl.GraphStatus(t.Context(), "r", Stale())
	check(&perdurev1.GraphStatusRequest{Namespace: "acme", Id: "r", Level: perdurev1.ReadLevel_READ_LEVEL_STALE}, err)
	if g.GetVersion() != 3 {
		t.Error(g)
	}
	answers(&perdurev1.GetGraphResponse{Graph: oneNode, Input: []byte("1")})
	whole, err := cl.GetGraph(t.Context(), "r")
	check(&perdurev1.GetGraphRequest{Namespace: "acme", Id: "r"}, err)
	if !proto.Equal(whole.GetGraph(), oneNode) || string(whole.GetInput()) != "1" {
		t.Error(whole)
	}
	answers(&perdurev1.NodeOutcome{State: &perdurev1.GraphNodeState{Id: "a"}, Output: []byte("2")})
	o, err := cl.NodeOutcome(t.Context(), "r", "a")
	check(&perdurev1.NodeOutcomeRequest{Namespace: "acme", Id: "r", Node: "a"}, err)
	if o.GetState().GetId() != "a" || string(o.GetOutput()) != "2" {
		t.Error(o)
	}
	answers(&perdurev1.RetryGraphResponse{Incarnation: 9, FormerIncarnation: 7, Reset_: 2})
	again, err := cl.RetryGraph(t.Context(), "r")
	check(&perdurev1.RetryGraphRequest{Namespace: "acme", Id: "r"}, err)
	if again.GetIncarnation() != 9 || again.GetReset_() != 2 {
		t.Error(again)
	}
}

// Writes are repeated with one request id at the next node, and a refusal ends them.
func TestGraphRetries(t *testing.T) {
	c := newCluster(t, "a", "b")
	cl := c.client(Options{Clock: &fakeClock{}})
	again := []error{refusal(perdurev1.Reason_REASON_NOT_LEADER), status.Error(codes.Unavailable, "broken"), refusal(perdurev1.Reason_REASON_OVERLOADED)}
	writes := map[string]struct {
		answer any
		do     func() error
	}{
		"submit": {&perdurev1.SubmitGraphResponse{Id: "r"}, func() error {
			_, err := cl.SubmitGraph(t.Context(), SubmitGraphOptions{ID: "r", Graph: oneNode})
			return err
		}},
		"retry": {&perdurev1.RetryGraphResponse{}, func() error { _, err := cl.RetryGraph(t.Context(), "r"); return err }},
	}
	for what, w := range writes {
		c.asked, c.requests = nil, nil
		c.answer = script(w.answer, again...)
		if err := w.do(); err != nil || len(c.asked) != 4 || c.asked[0] == c.asked[1] {
			t.Errorf("%s: %v, asked %v", what, err, c.asked)
		}
		for _, r := range c.requests {
			if string(r.GetId()) != string(c.requests[0].GetId()) {
				t.Errorf("%s: request ids %v", what, c.requests)
			}
		}
		if first, last := c.requests[0].GetAgeMs(), c.requests[3].GetAgeMs(); last <= first {
			t.Errorf("%s: the age goes from %d to %d ms", what, first, last)
		}
		c.answer = script(nil, refusal(perdurev1.Reason_REASON_BAD_REQUEST))
		c.asked = nil
		if err := w.do(); !api.Is(err, perdurev1.Reason_REASON_BAD_REQUEST) || len(c.asked) != 1 {
			t.Errorf("%s refused: %v, asked %v", what, err, c.asked)
		}
		c.answer = func(ctx context.Context, _ int, _ any) (any, error) {
			return nil, status.Error(codes.Internal, "half way")
		}
		if err := w.do(); !errors.Is(err, ErrOutcomeUnknown) || !strings.Contains(err.Error(), `"r"`) {
			t.Errorf("%s that broke: %v", what, err)
		}
	}
}

// A watcher sees the first status, each one that differs, and the last; and asks from what it has seen.
func TestWatchGraph(t *testing.T) {
	c := newCluster(t, "a")
	cl := c.client(Options{Clock: &fakeClock{}})
	at := func(incarnation, version uint64, s Status) *perdurev1.GraphStatus {
		return &perdurev1.GraphStatus{Id: "r", Incarnation: incarnation, Version: version, Status: s}
	}
	answers := []*perdurev1.GraphStatus{at(7, 2, running), at(7, 2, running), at(7, 5, running), at(9, 2, running), at(9, 5, running), at(9, 6, failed)}
	var after, incarnations []uint64
	var waits []int64
	c.answer = func(_ context.Context, n int, req any) (any, error) {
		r := req.(*perdurev1.GraphStatusRequest)
		after, incarnations, waits = append(after, r.GetAfterVersion()), append(incarnations, r.GetAfterIncarnation()), append(waits, r.GetWaitMs())
		return answers[n], nil
	}
	var seen []string
	for s, err := range cl.WatchGraph(t.Context(), "r") {
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, fmt.Sprintf("%d.%d", s.GetIncarnation(), s.GetVersion()))
	}
	if got := strings.Join(seen, " "); got != "7.2 7.5 9.2 9.5 9.6" {
		t.Errorf("seen %s", got)
	}
	if got := fmt.Sprint(after, incarnations, waits); got != "[0 2 2 5 2 5] [0 7 7 7 9 9] [0 20000 20000 20000 20000 20000]" {
		t.Errorf("asked %s", got)
	}

	// A caller that stops watching asks no further.
	c.asked, answers = nil, []*perdurev1.GraphStatus{at(7, 2, running)}
	for range cl.WatchGraph(t.Context(), "r") {
		break
	}
	if len(c.asked) != 1 {
		t.Errorf("asked %d times", len(c.asked))
	}

	// A run that has ended is one status.
	c.asked, answers = nil, []*perdurev1.GraphStatus{at(7, 9, completed)}
	n := 0
	for _, err := range cl.WatchGraph(t.Context(), "r") {
		if n++; err != nil {
			t.Error(err)
		}
	}
	if n != 1 {
		t.Errorf("%d statuses of a finished run", n)
	}
}

func TestWatchGraphEnds(t *testing.T) {
	c := newCluster(t, "a")
	cl := c.client(Options{})
	c.answer = script(nil, refusal(perdurev1.Reason_REASON_EXECUTION_NOT_FOUND))
	n := 0
	for s, err := range cl.WatchGraph(t.Context(), "r") {
		if n++; s != nil || !api.Is(err, perdurev1.Reason_REASON_EXECUTION_NOT_FOUND) {
			t.Errorf("%v, %v", s, err)
		}
	}
	if n != 1 {
		t.Errorf("a refusal was yielded %d times", n)
	}

	ctx, cancel := context.WithCancel(t.Context())
	c.asked = nil
	c.answer = func(ctx context.Context, n int, _ any) (any, error) {
		if n == 0 {
			return &perdurev1.GraphStatus{Version: 1, Status: running}, nil
		}
		cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	var last error
	for _, err := range cl.WatchGraph(ctx, "r") {
		last = err
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("a cancelled watch: %v", last)
	}
}
