package durable

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/graph"
)

// edgesOf lists the edges of a graph that was built, in order.
func edgesOf(g *perdurev1.Graph) string {
	var out []string
	for _, n := range g.GetNodes() {
		for _, before := range n.GetAfter() {
			out = append(out, before+n.GetId())
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// letters is a graph of sleeping nodes a, b, c, …
func letters(n int) (*Graph, []*Node) {
	g := NewGraph("letters")
	nodes := make([]*Node, n)
	for i := range nodes {
		nodes[i] = g.Sleep(string(rune('a'+i)), time.Second)
	}
	return g, nodes
}

func TestShapes(t *testing.T) {
	for _, c := range []struct {
		what  string
		shape func(a, b, c, d, e *Node) Shape
		want  string
	}{
		{"a node", func(a, _, _, _, _ *Node) Shape { return a }, ""},
		{"nodes", func(a, b, c, _, _ *Node) Shape { return Nodes(a, b, c) }, ""},
		{"nothing", func(_, _, _, _, _ *Node) Shape { return Overlay() }, ""},
		{"path", func(a, b, c, d, _ *Node) Shape { return Path(a, b, c, d) }, "ab bc cd"},
		{"path of one", func(a, _, _, _, _ *Node) Shape { return Path(a) }, ""},
		{"path of shapes", func(a, b, c, d, _ *Node) Shape { return Path(a, Nodes(b, c), d) }, "ab ac bd cd"},
		{"path of paths", func(a, b, c, d, _ *Node) Shape { return Path(Path(a, b), Path(c, d)) }, "ab ac ad bc bd cd"},
		{"path with a gap", func(a, b, c, d, _ *Node) Shape { return Path(a, b, Overlay(), c, d) }, "ab cd"},
		{"connect", func(a, b, c, d, _ *Node) Shape { return Connect(Nodes(a, b), Nodes(c, d)) }, "ac ad bc bd"},
		{"connect thrice", func(a, b, c, _, _ *Node) Shape { return Connect(a, Connect(b, c)) }, "ab ac bc"},
		{"connect thrice, the other way", func(a, b, c, _, _ *Node) Shape { return Connect(Connect(a, b), c) }, "ab ac bc"},
		{"overlay", func(a, b, c, d, _ *Node) Shape { return Overlay(Path(a, b), Path(b, c), d) }, "ab bc"},
		{"twice is once", func(a, b, _, _, _ *Node) Shape { return Overlay(Path(a, b), Path(a, b), Nodes(a, a)) }, "ab"},
		{"star", func(a, b, c, d, _ *Node) Shape { return Star(a, b, c, d) }, "ab ac ad"},
		{"star without leaves", func(a, _, _, _, _ *Node) Shape { return Star(a) }, ""},
		{"fan-in", func(a, b, c, d, _ *Node) Shape { return FanIn(d, a, b, c) }, "ad bd cd"},
		{"layers", func(a, b, c, d, e *Node) Shape { return Layered([]*Node{a}, []*Node{b, c}, []*Node{d, e}) }, "ab ac bd be cd ce"},
		{"layers with a gap", func(a, b, c, d, _ *Node) Shape { return Layered([]*Node{a}, []*Node{b}, nil, []*Node{c, d}) }, "ab"},
		{"diamond", func(a, b, c, d, _ *Node) Shape { return Overlay(Star(a, b, c), FanIn(d, b, c)) }, "ab ac bd cd"},
	} {
		g, n := letters(5)
		g.Add(c.shape(n[0], n[1], n[2], n[3], n[4]))
		built, err := g.Build()
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
		} else if got := edgesOf(built); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
		again, err := g.Build()
		if err != nil || !proto.Equal(built, again) {
			t.Errorf("%s: built twice, it differs: %v, %v", c.what, again, err)
		}
	}
}

// The laws of algebraic graphs hold for all shapes, cyclic ones too.
func TestShapesKeepTheLaws(t *testing.T) {
	_, nodes := letters(6)
	g := nodes[0].g
	var draw func(t *rapid.T, depth int) Shape
	draw = func(t *rapid.T, depth int) Shape {
		kind := rapid.IntRange(0, 3).Draw(t, "kind")
		if depth == 0 || kind == 0 {
			return nodes[rapid.IntRange(0, len(nodes)-1).Draw(t, "node")]
		}
		if kind == 1 {
			return Overlay()
		}
		parts := []Shape{draw(t, depth-1), draw(t, depth-1)}
		if kind == 2 {
			return Overlay(parts...)
		}
		return Connect(parts[0], parts[1])
	}
	meaning := func(s Shape) string {
		e := newEdges(g)
		e.trace(s)
		return edgesOf(&perdurev1.Graph{Nodes: func() (out []*perdurev1.GraphNode) {
			for i, n := range nodes {
				wire := &perdurev1.GraphNode{Id: n.ID()}
				for _, b := range e.before[i] {
					wire.After = append(wire.After, b.ID())
				}
				out = append(out, wire)
			}
			return out
		}()})
	}
	rapid.Check(t, func(t *rapid.T) {
		x, y, z := draw(t, 3), draw(t, 3), draw(t, 3)
		for law, sides := range map[string][2]Shape{
			"overlay is commutative":       {Overlay(x, y), Overlay(y, x)},
			"overlay is associative":       {Overlay(x, Overlay(y, z)), Overlay(x, y, z)},
			"overlay is idempotent":        {Overlay(x, x), x},
			"connect is associative":       {Connect(x, Connect(y, z)), Connect(Connect(x, y), z)},
			"connect distributes":          {Connect(x, Overlay(y, z)), Overlay(Connect(x, y), Connect(x, z))},
			"connect decomposes":           {Connect(x, Connect(y, z)), Overlay(Connect(x, y), Connect(x, z), Connect(y, z))},
			"nothing is the identity":      {Connect(x, Overlay()), Connect(Overlay(), x)},
			"a path is its pairs":          {Overlay(Path(x, y, z)), Overlay(Connect(x, y), Connect(y, z))},
			"a star is a connected centre": {Star(x, y, z), Connect(x, Overlay(y, z))},
			"a fan-in is a connected sink": {FanIn(x, y, z), Connect(Overlay(y, z), x)},
		} {
			if a, b := meaning(sides[0]), meaning(sides[1]); a != b {
				t.Errorf("%s: %s and %s", law, a, b)
			}
		}
	})
}

var noop = NewFunction("parse", func(Context, map[string]any) (string, error) { return "", nil })

// Every setting of a graph reaches the wire.
func TestBuild(t *testing.T) {
	sub := NewGraph("inner", Wave())
	first := sub.FunctionName("first", "f1")
	sub.Function("second", noop, Input("x", From(first)))

	g := NewGraph("report", MaxParallel(3), Wave())
	parse := g.Function("parse", noop, Input("file", RunInput("file", "name")), Input("all", RunInput()), Input("n", Literal(map[string]int{"a": 1})),
		NodeRetry(RetryPolicy{MaxAttempts: 5, Initial: 1500 * time.Microsecond, Max: time.Minute, Factor: 1.25}), NodeTimeout(time.Second),
		Output(JSONObject))
	rates := g.HTTP("rates", HTTPCall{URL: "https://rates.example/today", Method: "POST", Headers: map[string]string{"Accept": "text/csv"}, SendInputs: true},
		SkipOnFailure(), NodeRetry(RetryPolicy{}))
	ok := g.Signal("approve", "approved", NodeTimeout(48*time.Hour))
	nap := g.Sleep("nap", 90*time.Minute)
	inner := g.Subgraph("inner", sub, Input("rates", From(rates)))
	g.FunctionName("send", "mailer", Input("summary", From(parse, "user.name", "0").As(JSONString)), Input("inner", From(inner).As(JSONObject)))
	g.Add(FanIn(parse, ok, nap), Path(rates, inner))

	value := func(name string, set func(*perdurev1.NodeInput)) *perdurev1.NodeInput {
		in := &perdurev1.NodeInput{Name: name}
		set(in)
		return in
	}
	fromNode := func(name, node, path string, typ perdurev1.ValueType) *perdurev1.NodeInput {
		return &perdurev1.NodeInput{Name: name, Source: &perdurev1.NodeInput_Node{Node: node}, Path: path, Type: typ}
	}
	function := func(f string) *perdurev1.GraphNode_Function {
		return &perdurev1.GraphNode_Function{Function: &perdurev1.FunctionNode{Function: f}}
	}
	want := &perdurev1.Graph{Name: "report", MaxParallel: 3, Wave: true, Nodes: []*perdurev1.GraphNode{
		{Id: "parse", After: []string{"approve", "nap"}, Kind: function("parse"), TimeoutMs: 1000, Output: perdurev1.ValueType_VALUE_TYPE_OBJECT,
			Retry: &perdurev1.NodeRetry{Attempts: 5, InitialMs: 2, MaxMs: 60_000, FactorPercent: 125},
			Inputs: []*perdurev1.NodeInput{
				value("file", func(in *perdurev1.NodeInput) { in.Source, in.Path = &perdurev1.NodeInput_Run{Run: true}, "file.name" }),
				value("all", func(in *perdurev1.NodeInput) { in.Source = &perdurev1.NodeInput_Run{Run: true} }),
				value("n", func(in *perdurev1.NodeInput) { in.Source = &perdurev1.NodeInput_Value{Value: []byte(`{"a":1}`)} }),
			}},
		{Id: "rates", OnFailure: perdurev1.OnFailure_ON_FAILURE_SKIP, Retry: &perdurev1.NodeRetry{Attempts: 4, InitialMs: 100, MaxMs: 10_000, FactorPercent: 200},
			Kind: &perdurev1.GraphNode_Http{Http: &perdurev1.HttpNode{Url: "https://rates.example/today", Method: "POST", Headers: map[string]string{"Accept": "text/csv"}, SendInputs: true}}},
		{Id: "approve", TimeoutMs: 48 * 3600_000, Kind: &perdurev1.GraphNode_Signal{Signal: &perdurev1.SignalNode{Name: "approved"}}},
		{Id: "nap", Kind: &perdurev1.GraphNode_Sleep{Sleep: &perdurev1.SleepNode{DurationMs: 5_400_000}}},
		{Id: "inner", After: []string{"rates"}, Inputs: []*perdurev1.NodeInput{fromNode("rates", "rates", "", 0)},
			Kind: &perdurev1.GraphNode_Subgraph{Subgraph: &perdurev1.Graph{Name: "inner", Wave: true, Nodes: []*perdurev1.GraphNode{
				{Id: "first", Kind: function("f1")},
				{Id: "second", After: []string{"first"}, Kind: function("parse"), Inputs: []*perdurev1.NodeInput{fromNode("x", "first", "", 0)}},
			}}}},
		{Id: "send", After: []string{"parse", "inner"}, Kind: function("mailer"), Inputs: []*perdurev1.NodeInput{
			fromNode("summary", "parse", "user.name.0", perdurev1.ValueType_VALUE_TYPE_STRING), fromNode("inner", "inner", "", perdurev1.ValueType_VALUE_TYPE_OBJECT)}},
	}}
	for range 2 { // what was built is not shared
		got, err := g.Build()
		if err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(got, want) {
			t.Fatalf("built %v\nwant  %v", got, want)
		}
		got.Nodes[0].Inputs[0].Name = "changed"
		got.Nodes[4].GetSubgraph().Name = "changed"
	}
}

// Build reports all problems of the expressions at once, and then all problems of the graph.
func TestBuildRefuses(t *testing.T) {
	other := NewGraph("other")
	stranger := other.Sleep("stranger", time.Second)
	g := NewGraph("bad")
	a := g.FunctionName("a", "f", Input("x", From(stranger)), Input("y", Source{}), Input("z", Literal(func() {})), Input("n", From(nil)), NodeTimeout(-1))
	g.Subgraph("none", nil)
	g.Add(Path(a, stranger), Path(stranger, a), nil, Nodes(nil))
	_, err := g.Build()
	if err == nil {
		t.Fatal("built")
	}
	for _, want := range []string{`graph "bad"`, `node "a": the input "x" comes from node "stranger" of another graph`, `the input "y" has no source`,
		`the input "z": encoding`, `the input "n": the node is nil`, "-1ns is negative", `node "none": the subgraph is nil`,
		`a shape has node "stranger", which is of another graph`, "a node that is nil"} {
		if n := strings.Count(err.Error(), want); n != 1 {
			t.Errorf("%q is reported %d times in:\n%v", want, n, err)
		}
	}

	for what, c := range map[string]struct {
		build func(g *Graph)
		rule  string
	}{
		"no nodes":     {func(*Graph) {}, graph.RuleNoNodes},
		"a cycle":      {func(g *Graph) { a, b := g.Sleep("a", 1), g.Sleep("b", 1); g.Add(Path(a, b, a)) }, graph.RuleCycle},
		"after itself": {func(g *Graph) { a := g.Sleep("a", 1); g.Add(Connect(a, a)) }, graph.RuleAfterSelf},
		"the same id":  {func(g *Graph) { g.Sleep("a", 1); g.Sleep("a", 1) }, graph.RuleTwice},
		"no time":      {func(g *Graph) { g.Sleep("a", 0) }, graph.RuleDuration},
		"a wrong type": {func(g *Graph) {
			g.FunctionName("b", "f", Input("x", From(g.FunctionName("a", "f", Output(JSONString))).As(JSONBool)))
		}, graph.RuleType},
		"in a subgraph":  {func(g *Graph) { g.Subgraph("s", NewGraph("empty")) }, graph.RuleNoNodes},
		"what is not is": {func(g *Graph) { g.FunctionName("a", "f", Input("x", Literal([]byte("{")))) }, graph.RuleValue},
	} {
		g := NewGraph(what)
		c.build(g)
		_, err := g.Build()
		var found *graph.Error
		if !errors.As(err, &found) || found.Problems[0].Rule != c.rule {
			t.Errorf("%s: %v, want %s", what, err, c.rule)
		}
	}

	loop := NewGraph("loop")
	loop.Subgraph("again", loop)
	if _, err := loop.Build(); err == nil || !strings.Contains(err.Error(), "more than 8 deep") {
		t.Errorf("a graph within itself: %v", err)
	}
}

// Expressions cannot be made to write more than a graph may have.
func TestShapesAreBounded(t *testing.T) {
	g := NewGraph("wide")
	var left, right []*Node
	for i := range 3000 {
		left = append(left, g.Sleep(fmt.Sprintf("l%d", i), time.Second))
		right = append(right, g.Sleep(fmt.Sprintf("r%d", i), time.Second))
	}
	g.Add(Layered(left, right), Layered(left, right))
	if _, err := g.Build(); err == nil || !strings.Contains(err.Error(), "more than 4000000 edges") {
		t.Errorf("nine million edges: %v", err)
	}
}
