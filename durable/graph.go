package durable

import (
	"errors"
	"fmt"
	"slices"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/graph"
)

// Graph is a DAG of work that is built in Go and submitted to the cluster as data. From then on the cluster
// schedules the nodes. The run needs this program only where its functions are nodes.
//
//	g := durable.NewGraph("report")
//	parse := g.Function("parse", parseFn, durable.Input("file", durable.RunInput("file")))
//	fetch := g.HTTP("rates", durable.HTTPCall{URL: "https://rates.example/today"}, durable.SkipOnFailure())
//	ok := g.Signal("approve", "approved", durable.NodeTimeout(48*time.Hour))
//	send := g.Function("send", sendFn,
//		durable.Input("report", durable.From(parse, "summary")), durable.Input("rates", durable.From(fetch)))
//	g.Add(durable.FanIn(send, parse, fetch, ok))
//	run, err := g.Submit(ctx, c, "report-2025-01", map[string]string{"file": "in.csv"})
//
// Build and Submit report all mistakes. A Graph is built by one goroutine; once it is complete, it can be
// used by many, and any number of times.
type Graph struct {
	name        string
	nodes       []*Node
	shapes      []Shape
	maxParallel uint32
	wave        bool
	problems    []error
}

// GraphOption is an option of NewGraph.
type GraphOption func(*Graph)

// MaxParallel bounds how many nodes run at once; 0, the default, means no bound.
func MaxParallel(n uint32) GraphOption { return func(g *Graph) { g.maxParallel = n } }

// Wave makes the run observe the results of the running nodes together, once all of them have one, rather
// than one by one.
func Wave() GraphOption { return func(g *Graph) { g.wave = true } }

// NewGraph makes a graph without nodes. The name is for people.
func NewGraph(name string, opts ...GraphOption) *Graph {
	g := &Graph{name: name}
	for _, opt := range opts {
		opt(g)
	}
	return g
}

// Node is one node of a Graph, and the Shape of that node alone.
type Node struct {
	g     *Graph
	wire  *perdurev1.GraphNode
	after []*Node // the sources of its inputs
	sub   *Graph
}

// ID is the node's id, as Outcome takes it.
func (n *Node) ID() string { return n.wire.GetId() }

// node makes a node. The id is 1 to 128 letters, digits, '_', '-' and '.', unique in the graph.
func (g *Graph) node(id string, wire *perdurev1.GraphNode, opts []NodeOption) *Node {
	wire.Id = id
	n := &Node{g: g, wire: wire}
	g.nodes = append(g.nodes, n)
	for _, opt := range opts {
		opt(n)
	}
	return n
}

func (n *Node) problem(format string, args ...any) {
	n.g.problems = append(n.g.problems, fmt.Errorf("node %q: %w", n.ID(), fmt.Errorf(format, args...)))
}

// Function is a node that runs a durable function as an execution of its own, on any worker that serves it.
// The function's input is a JSON object with a member for each Input of the node, or null without any; it
// must use the JSON codec to read it. See Skip and SuspendOn for the answers besides a result.
func (g *Graph) Function(id string, fn Registration, opts ...NodeOption) *Node {
	return g.FunctionName(id, fn.Name(), opts...)
}

// FunctionName is Function for one that this binary does not have.
func (g *Graph) FunctionName(id, function string, opts ...NodeOption) *Node {
	return g.node(id, &perdurev1.GraphNode{Kind: &perdurev1.GraphNode_Function{Function: &perdurev1.FunctionNode{Function: function}}}, opts)
}

// HTTPCall is a request that the cluster makes for a node.
type HTTPCall struct {
	// URL is http or https.
	URL string
	// Method is GET if empty.
	Method  string
	Headers map[string]string
	// SendInputs sends the node's inputs as a JSON body.
	SendInputs bool
}

// HTTP is a node that makes a request; its output is the answer.
func (g *Graph) HTTP(id string, call HTTPCall, opts ...NodeOption) *Node {
	return g.node(id, &perdurev1.GraphNode{Kind: &perdurev1.GraphNode_Http{Http: &perdurev1.HttpNode{
		Url: call.URL, Method: call.Method, Headers: call.Headers, SendInputs: call.SendInputs}}}, opts)
}

// Signal is a node that waits for a signal to the run (client.Client.Signal); its output is the payload.
// NodeTimeout bounds the wait.
func (g *Graph) Signal(id, signal string, opts ...NodeOption) *Node {
	return g.node(id, &perdurev1.GraphNode{Kind: &perdurev1.GraphNode_Signal{Signal: &perdurev1.SignalNode{Name: signal}}}, opts)
}

// Sleep is a node that ends when the time has passed, counted in milliseconds, rounded up.
func (g *Graph) Sleep(id string, d time.Duration, opts ...NodeOption) *Node {
	return g.node(id, &perdurev1.GraphNode{Kind: &perdurev1.GraphNode_Sleep{Sleep: &perdurev1.SleepNode{DurationMs: client.Millis(d)}}}, opts)
}

// Subgraph is a node that is a run of another graph, whose input is the node's inputs; its output is an
// object of the outputs of that graph's last nodes, by their ids. Nodes that are added to sub before Build
// count. Subgraphs nest at most 8 deep.
func (g *Graph) Subgraph(id string, sub *Graph, opts ...NodeOption) *Node {
	n := g.node(id, &perdurev1.GraphNode{}, opts)
	n.sub = sub
	if sub == nil {
		n.problem("the subgraph is nil")
	}
	return n
}

// Build writes the graph out, with every edge once: those of the shapes that were added, and one to each
// node from the sources of its inputs. The error lists all problems; errors.As finds a
// *graph.Error with places and rules in it once the expressions themselves are right.
func (g *Graph) Build() (*perdurev1.Graph, error) {
	built, err := g.build(0)
	if err == nil {
		err = graph.Validate(built)
	}
	if err != nil {
		return nil, fmt.Errorf("durable: graph %q: %w", g.name, err)
	}
	return built, nil
}

// build converts the graph without checking it as a whole.
func (g *Graph) build(depth int) (*perdurev1.Graph, error) {
	if depth > graph.MaxDepth {
		return nil, fmt.Errorf("subgraphs nest more than %d deep", graph.MaxDepth)
	}
	e := newEdges(g)
	problems := slices.Clone(g.problems)
	for _, n := range g.nodes {
		for _, source := range n.after {
			e.add(source, n)
		}
	}
	for _, s := range g.shapes {
		e.trace(s)
	}
	problems = append(problems, e.problems...)
	out := &perdurev1.Graph{Name: g.name, MaxParallel: g.maxParallel, Wave: g.wave}
	for i, n := range g.nodes {
		wire := cloneNode(n.wire)
		for _, before := range e.before[i] {
			wire.After = append(wire.After, before.ID())
		}
		if n.sub != nil {
			sub, err := n.sub.build(depth + 1)
			if err != nil {
				problems = append(problems, fmt.Errorf("node %q: %w", n.ID(), err))
				continue
			}
			wire.Kind = &perdurev1.GraphNode_Subgraph{Subgraph: sub}
		}
		out.Nodes = append(out.Nodes, wire)
	}
	return out, errors.Join(problems...)
}
