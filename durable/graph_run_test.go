package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/graph"
)

// fakeRuns is a cluster that knows one run, by what a test says of it.
type fakeRuns struct {
	perdurev1.UnimplementedGraphsServer
	perdurev1.UnimplementedExecutionsServer
	submitted *perdurev1.SubmitGraphRequest
	result    *perdurev1.ResultResponse
	outcomes  map[string]*perdurev1.NodeOutcome
}

func (f *fakeRuns) Submit(_ context.Context, r *perdurev1.SubmitGraphRequest) (*perdurev1.SubmitGraphResponse, error) {
	f.submitted = r
	return &perdurev1.SubmitGraphResponse{Id: r.Id, Incarnation: 7, Created: true, Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING}, nil
}
func (f *fakeRuns) GetStatus(_ context.Context, r *perdurev1.GraphStatusRequest) (*perdurev1.GraphStatus, error) {
	return &perdurev1.GraphStatus{Id: r.Id, Phase: "progressing"}, nil
}
func (f *fakeRuns) GetOutcome(_ context.Context, r *perdurev1.NodeOutcomeRequest) (*perdurev1.NodeOutcome, error) {
	if o := f.outcomes[r.Node]; o != nil {
		return o, nil
	}
	return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "there is no node %q", r.Node)
}
func (f *fakeRuns) Result(context.Context, *perdurev1.ResultRequest) (*perdurev1.ResultResponse, error) {
	return f.result, nil
}

func (f *fakeRuns) client(t *testing.T) *client.Client {
	t.Helper()
	lis := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	perdurev1.RegisterGraphsServer(server, f)
	perdurev1.RegisterExecutionsServer(server, f)
	go func() { _ = server.Serve(lis) }()
	t.Cleanup(server.Stop)
	c, err := client.Dial(client.Options{Addrs: []string{"passthrough:///fake"}, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) })}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestSubmit(t *testing.T) {
	f := &fakeRuns{}
	c := f.client(t)
	g, nodes := letters(2)
	g.Add(Path(nodes[0], nodes[1]))
	h, err := g.Submit(t.Context(), c, "r", map[string]int{"n": 1}, StartTimeout(time.Minute), StartTags(map[string]string{"k": "v"}), AllowUnknownFunction())
	if err != nil {
		t.Fatal(err)
	}
	r := f.submitted
	if h.ID() != "r" || h.Started().Incarnation != 7 || !h.Started().Created {
		t.Errorf("started %v", h.Started())
	}
	if r.Id != "r" || string(r.Input) != `{"n":1}` || r.TimeoutMs != 60_000 || r.Tags["k"] != "v" || !r.AllowUnknownFunctions || edgesOf(r.Graph) != "ab" {
		t.Errorf("submitted %v", r)
	}
	if s, err := h.Status(t.Context()); err != nil || s.GetPhase() != "progressing" {
		t.Errorf("status %v, %v", s, err)
	}
	if _, err := g.Submit(t.Context(), c, "r", json.RawMessage(`[1]`)); err != nil || string(f.submitted.Input) != "[1]" {
		t.Errorf("raw JSON: %v, sent %s", err, f.submitted.Input)
	}

	f.submitted = nil
	var wrong *Error
	if _, err := g.Submit(t.Context(), c, "r", func() {}); !errors.As(err, &wrong) || wrong.Type != TypeEncoding {
		t.Errorf("an input that has no JSON: %v", err)
	}
	if _, err := g.Submit(t.Context(), c, "r", nil, StartDigest("d")); err == nil || !strings.Contains(err.Error(), "digest") {
		t.Errorf("a digest: %v", err)
	}
	if _, err := NewGraph("none").Submit(t.Context(), c, "r", nil); err == nil {
		t.Error("a graph without nodes was submitted")
	}
	if f.submitted != nil {
		t.Errorf("what is wrong was sent: %v", f.submitted)
	}
}

func TestWaitForAGraph(t *testing.T) {
	f := &fakeRuns{result: &perdurev1.ResultResponse{Done: true, Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED, Outcome: value(`{"b":1}`)}}
	h := AttachGraph(f.client(t), "r")
	if out, err := h.Result(t.Context()); err != nil || string(out) != `{"b":1}` {
		t.Errorf("result %s, %v", out, err)
	}
	if err := h.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	two := graph.SinkOutputs(&perdurev1.Graph{Nodes: []*perdurev1.GraphNode{{Id: "b"}}}, func(string) ([]byte, bool) {
		return []byte(`"` + strings.Repeat("x", graph.MaxResultBytes) + `"`), true
	})
	f.result.Outcome = value(string(two))
	var too *graph.TooLarge
	if out, err := h.Result(t.Context()); out != nil || !errors.As(err, &too) || too.Bytes <= graph.MaxResultBytes {
		t.Errorf("a result that is too large: %s, %v", out, err)
	}
	if err := h.Wait(t.Context()); err != nil {
		t.Errorf("a run has completed, whatever the size of its result: %v", err)
	}
	f.result = &perdurev1.ResultResponse{Done: true, Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED, Outcome: failure("graph.failed", "node a failed")}
	err := h.Wait(t.Context())
	var ended *client.ExecutionError
	var e *Error
	if !errors.As(err, &ended) || ended.ID != "r" || !errors.As(err, &e) || e.Type != "graph.failed" || e.Message != "node a failed" {
		t.Errorf("a run that failed: %v", err)
	}
}

func TestOutcome(t *testing.T) {
	state := func(s perdurev1.NodeStatus, f *perdurev1.Outcome) *perdurev1.GraphNodeState {
		return &perdurev1.GraphNodeState{Status: s, Failure: f.GetFailure()}
	}
	f := &fakeRuns{outcomes: map[string]*perdurev1.NodeOutcome{
		"done":    {State: state(perdurev1.NodeStatus_NODE_STATUS_COMPLETED, nil), Output: []byte(`{"n":5}`)},
		"other":   {State: state(perdurev1.NodeStatus_NODE_STATUS_COMPLETED, nil), Output: []byte("not JSON")},
		"failed":  {State: state(perdurev1.NodeStatus_NODE_STATUS_FAILED, failure("declined", "no money"))},
		"mute":    {State: state(perdurev1.NodeStatus_NODE_STATUS_FAILED, nil)},
		"skipped": {State: state(perdurev1.NodeStatus_NODE_STATUS_SKIPPED, failure("declined", "nothing new"))},
		"running": {State: state(perdurev1.NodeStatus_NODE_STATUS_RUNNING, nil)},
		"passed":  {State: &perdurev1.GraphNodeState{Status: perdurev1.NodeStatus_NODE_STATUS_SKIPPED, SkipReason: "nothing old"}},
	}}
	h := AttachGraph(f.client(t), "r")
	type number struct{ N int }
	if out, err := Outcome[number](t.Context(), h, "done"); err != nil || out.N != 5 {
		t.Errorf("done: %v, %v", out, err)
	}
	if out, err := Outcome[[]byte](t.Context(), h, "other"); err != nil || string(out) != "not JSON" {
		t.Errorf("bytes: %s, %v", out, err)
	}
	_, err := Outcome[number](t.Context(), h, "other")
	var e *Error
	if !errors.As(err, &e) || e.Type != TypeEncoding {
		t.Errorf("what is not JSON: %v", err)
	}
	_, err = Outcome[number](t.Context(), h, "failed")
	if !errors.As(err, &e) || e.Type != "declined" || e.Message != "no money" || errors.Is(err, ErrSkipped) || errors.Is(err, ErrUnfinished) {
		t.Errorf("failed: %v", err)
	}
	_, err = Outcome[number](t.Context(), h, "mute")
	if !errors.As(err, &e) || e.Type != TypeError {
		t.Errorf("failed without a word: %v", err)
	}
	_, err = Outcome[number](t.Context(), h, "skipped")
	if !errors.Is(err, ErrSkipped) || !strings.Contains(err.Error(), "nothing new") {
		t.Errorf("skipped: %v", err)
	}
	_, err = Outcome[number](t.Context(), h, "passed")
	if !errors.Is(err, ErrSkipped) || !errors.As(err, &e) || e.Message != "nothing old" {
		t.Errorf("skipped by itself: %v", err)
	}
	_, err = Outcome[number](t.Context(), h, "running")
	if !errors.Is(err, ErrUnfinished) || !strings.Contains(err.Error(), `node "running" of r is running`) {
		t.Errorf("running: %v", err)
	}
	_, err = Outcome[number](t.Context(), h, "none")
	if !api.Is(err, perdurev1.Reason_REASON_BAD_REQUEST) {
		t.Errorf("no such node: %v", err)
	}
}

// A function's answers besides a result reach the cluster under their types, wrapped or out of a step; a step
// that answers so is not retried.
func TestSkipAndSuspend(t *testing.T) {
	steps := counter{}
	inStep := func(ctx Context, answer error) error {
		_, err := Run(ctx, "s", func(context.Context) (string, error) { steps.hit("s"); return "", answer })
		return err
	}
	for name, c := range map[string]struct {
		answer       func(ctx Context) error
		typ, message string
	}{
		"skip":            {func(Context) error { return Skip("nothing new") }, "graph.skipped", "nothing new"},
		"skip, wrapped":   {func(Context) error { return fmt.Errorf("looked: %w", Skip("nothing new")) }, "graph.skipped", "looked: graph.skipped: nothing new"},
		"suspend":         {func(Context) error { return SuspendOn("paid") }, "graph.suspended", "paid"},
		"suspend,wrapped": {func(Context) error { return fmt.Errorf("not yet: %w", SuspendOn("paid")) }, "graph.suspended", "paid"},
		"out of a step":   {func(ctx Context) error { return inStep(ctx, SuspendOn("paid")) }, "graph.suspended", "paid"},
		"an error":        {func(Context) error { return errors.New("broken") }, "error", "broken"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			fn := NewFunction("fn", func(ctx Context, _ string) (string, error) { return "", c.answer(ctx) })
			_, stop := f.worker(WorkerOptions{}, fn)
			defer stop()
			f.start("x", "fn", `""`)
			got := f.finished("x").GetFailure()
			if got.GetType() != c.typ || got.GetMessage() != c.message || got.GetNonRetryable() != (c.typ != "error") {
				t.Errorf("the execution ended with %v", got)
			}
		})
	}
	if n := steps.hit("s") - 1; n != 1 {
		t.Errorf("the step ran %d times", n)
	}
	if !errors.Is(Skip(""), ErrSkipped) || errors.Is(SuspendOn("x"), ErrSkipped) {
		t.Error("ErrSkipped matches what is skipped, and nothing else")
	}
}
