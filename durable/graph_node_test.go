package durable_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/durable"
	"perdure/embed"
)

// testTimeout bounds every wait for the node.
const testTimeout = 3 * time.Minute

// aNode is a whole node in this process, a client of it, and a worker with these functions.
func aNode(t *testing.T, fns ...durable.Registration) (context.Context, *client.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	n, err := embed.Start(ctx, embed.Config{DataDir: t.TempDir(), Partitions: 3, CheckInvariants: true, Logger: slog.New(slog.DiscardHandler),
		DiskReserve: 1 << 20, GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Dial(client.Options{Addrs: []string{n.GRPCAddr()}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	w := durable.NewWorker(c, durable.WorkerOptions{Name: "w", Lease: time.Minute, Logger: slog.New(slog.DiscardHandler)})
	w.Register(fns...)
	working, stop := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- w.Run(working) }()
	t.Cleanup(func() {
		stop()
		closing, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		if err := errors.Join(<-stopped, c.Close(), n.Close(closing)); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-w.Ready():
	case <-ctx.Done():
		t.Fatal("the worker is not ready")
	}
	return ctx, c
}

type words struct {
	Text  string `json:"text"`
	Times int    `json:"times"`
}

// The cluster runs a graph that was built in Go: inputs by path, all answers of a function, signals,
// subgraphs, and a retry that keeps completed nodes.
func TestGraphOnANode(t *testing.T) {
	var (
		tries  atomic.Int32
		broken atomic.Bool
		ran    atomic.Int32
	)
	broken.Store(true)
	repeat := durable.NewFunction("repeat", func(_ durable.Context, in words) (map[string]any, error) {
		ran.Add(1)
		return map[string]any{"out": strings.Repeat(in.Text, in.Times), "list": []int{in.Times, 7}}, nil
	})
	flaky := durable.NewFunction("flaky", func(ctx durable.Context, in json.RawMessage) (string, error) {
		if tries.Add(1) == 1 {
			return "", errors.New("the first attempt fails")
		}
		return durable.Run(ctx, "s", func(context.Context) (string, error) { return "got " + string(in), nil })
	})
	skipping := durable.NewFunction("skipping", func(durable.Context, json.RawMessage) (string, error) { return "", durable.Skip("nothing to do") })
	asking := durable.NewFunction("asking", func(durable.Context, json.RawMessage) (string, error) {
		return "", fmt.Errorf("needs a person: %w", durable.SuspendOn("answer"))
	})
	breaking := durable.NewFunction("breaking", func(durable.Context, json.RawMessage) (string, error) {
		if broken.Load() {
			return "", &durable.Error{Type: "declined", Message: "no money"}
		}
		return "paid", nil
	})
	ctx, c := aNode(t, repeat, flaky, skipping, asking, breaking)

	inner := durable.NewGraph("inner")
	a := inner.Function("a", repeat, durable.Input("text", durable.RunInput("word")), durable.Input("times", durable.Literal(2)))
	inner.Add(durable.Path(a, inner.Sleep("nap", time.Millisecond)))

	g := durable.NewGraph("all kinds", durable.MaxParallel(2))
	rep := g.Function("repeat", repeat, durable.Input("text", durable.RunInput("words", "0")), durable.Input("times", durable.Literal(3)), durable.Output(durable.JSONObject))
	fl := g.Function("flaky", flaky, durable.Input("in", durable.From(rep, "list", "0")),
		durable.NodeRetry(durable.RetryPolicy{MaxAttempts: 2, Initial: time.Millisecond}))
	sk := g.Function("skip", skipping)
	ask := g.Function("ask", asking)
	sub := g.Subgraph("sub", inner, durable.Input("word", durable.From(rep, "out")))
	off := g.Function("off", breaking, durable.SkipOnFailure())
	pay := g.Function("pay", breaking, durable.Input("from", durable.From(sk)), durable.Input("answer", durable.From(ask)))
	last := g.Function("last", repeat, durable.Input("text", durable.From(ask)), durable.Input("times", durable.Literal(1)))
	g.Add(durable.FanIn(pay, fl, sub, off), durable.Path(pay, last))

	run, err := g.Submit(ctx, c, "run", map[string]any{"words": []string{"ab"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Signal(ctx, run.ID(), "answer", []byte(`"yes"`)); err != nil {
		t.Fatal(err)
	}
	err = run.Wait(ctx)
	var ended *client.ExecutionError
	if !errors.As(err, &ended) || ended.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED {
		t.Fatalf("the run ended with %v", err)
	}
	rest := func(node string, want string) {
		t.Helper()
		got, err := durable.Outcome[json.RawMessage](ctx, run, node)
		if err != nil || string(got) != want {
			t.Errorf("%s has come to %s, %v, want %s", node, got, err, want)
		}
	}
	rest("repeat", `{"list":[3,7],"out":"ababab"}`)
	rest("flaky", `"got {\"in\":3}"`)
	rest("ask", `"yes"`)
	out, err := durable.Outcome[map[string]any](ctx, run, sub.ID())
	if err != nil || len(out) != 1 {
		t.Errorf("the subgraph has come to %v, %v", out, err)
	}
	if _, err := durable.Outcome[string](ctx, run, sk.ID()); !errors.Is(err, durable.ErrSkipped) || !strings.HasSuffix(err.Error(), ": nothing to do") {
		t.Errorf("what was skipped: %v", err)
	}
	if _, err := durable.Outcome[string](ctx, run, off.ID()); !errors.Is(err, durable.ErrSkipped) {
		t.Errorf("what failed and may be skipped: %v", err)
	}
	var e *durable.Error
	if _, err := durable.Outcome[string](ctx, run, pay.ID()); !errors.As(err, &e) || e.Type != "declined" || e.Message != "no money" {
		t.Errorf("what failed: %v", err)
	}
	if _, err := durable.Outcome[string](ctx, run, last.ID()); !errors.As(err, &e) || errors.Is(err, durable.ErrUnfinished) {
		t.Errorf("what comes after: %v", err)
	}
	if n := tries.Load(); n != 2 {
		t.Errorf("the flaky node had %d attempts", n)
	}

	broken.Store(false)
	before := ran.Load()
	if r, err := c.RetryGraph(ctx, run.ID()); err != nil || r.GetReset_() != 2 {
		t.Fatalf("retried: %v, %v", r, err)
	}
	var phases []string
	for s, err := range c.WatchGraph(ctx, run.ID()) {
		if err != nil {
			t.Fatal(err)
		}
		phases = append(phases, s.GetPhase())
	}
	if len(phases) == 0 || phases[len(phases)-1] != "completed" {
		t.Errorf("the second incarnation went through %v", phases)
	}
	if result, err := run.Result(ctx); err != nil || string(result) != `{"last":{"list":[1,7],"out":"yes"}}` {
		t.Errorf("the run has answered %s, %v", result, err)
	}
	if n := ran.Load() - before; n != 1 {
		t.Errorf("%d nodes ran in the second incarnation that count, want the last alone", n)
	}
	rest("flaky", `"got {\"in\":3}"`)
	rest("pay", `"paid"`)
}
