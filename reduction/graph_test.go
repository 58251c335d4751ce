package reduction

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// genGraph draws expressions over few names, so that sub-expressions share nodes.
var genGraph = rapid.Custom(func(t *rapid.T) Graph { return drawExpr(t, 4) })

func drawExpr(t *rapid.T, depth int) Graph {
	kind := rapid.IntRange(0, 7).Draw(t, "constructor")
	if depth == 0 {
		kind %= 2
	}
	switch {
	case kind == 0:
		return Empty()
	case kind <= 3 || depth == 0:
		return Vertex(NodeID(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "node")))
	case kind <= 5:
		return Overlay(drawExpr(t, depth-1), drawExpr(t, depth-1))
	default:
		return Connect(drawExpr(t, depth-1), drawExpr(t, depth-1))
	}
}

// sets is what an expression means, by the definition: pairs of sets.
type sets struct {
	nodes map[NodeID]bool
	edges map[Edge]bool
}

func (s sets) plus(o sets) sets {
	out := sets{map[NodeID]bool{}, map[Edge]bool{}}
	for _, x := range []sets{s, o} {
		for id := range x.nodes {
			out.nodes[id] = true
		}
		for e := range x.edges {
			out.edges[e] = true
		}
	}
	return out
}

func meaning(e *expr) sets {
	if e == nil {
		return sets{}
	}
	if e.op == opVertex {
		return sets{nodes: map[NodeID]bool{e.id: true}}
	}
	x, y := meaning(e.x), meaning(e.y)
	out := x.plus(y)
	if e.op == opConnect {
		for a := range x.nodes {
			for b := range y.nodes {
				out.edges[Edge{a, b}] = true
			}
		}
	}
	return out
}

// An expression denotes the sets that its definition says.
func TestGraphDenotesItsSets(t *testing.T) {
	property(t, func(t *rapid.T) {
		g := genGraph.Draw(t, "g")
		want := meaning(g.root)
		nodes, edges := g.Nodes(), g.Edges()
		if len(nodes) != len(want.nodes) || !slices.IsSorted(nodes) {
			t.Fatalf("nodes %v, want %v", nodes, want.nodes)
		}
		for _, id := range nodes {
			if !want.nodes[id] {
				t.Fatalf("node %s of %v", id, want.nodes)
			}
		}
		if len(edges) != len(want.edges) || !slices.IsSortedFunc(edges, compareEdges) {
			t.Fatalf("edges %v, want %v", edges, want.edges)
		}
		for _, e := range edges {
			if !want.edges[e] {
				t.Fatalf("edge %v of %v", e, want.edges)
			}
		}
	})
}

func compareEdges(a, b Edge) int {
	if c := strings.Compare(string(a.From), string(b.From)); c != 0 {
		return c
	}
	return strings.Compare(string(a.To), string(b.To))
}

// The laws of algebraic graphs.
func TestGraphLaws(t *testing.T) {
	laws := map[string]func(x, y, z Graph) (l, r Graph){
		"overlay is commutative":        func(x, y, _ Graph) (l, r Graph) { return Overlay(x, y), Overlay(y, x) },
		"overlay is associative":        func(x, y, z Graph) (l, r Graph) { return Overlay(x, Overlay(y, z)), Overlay(Overlay(x, y), z) },
		"overlay is idempotent":         func(x, _, _ Graph) (l, r Graph) { return Overlay(x, x), x },
		"empty overlays nothing":        func(x, _, _ Graph) (l, r Graph) { return Overlay(x, Empty()), x },
		"connect is associative":        func(x, y, z Graph) (l, r Graph) { return Connect(x, Connect(y, z)), Connect(Connect(x, y), z) },
		"empty connects nothing, left":  func(x, _, _ Graph) (l, r Graph) { return Connect(Empty(), x), x },
		"empty connects nothing, right": func(x, _, _ Graph) (l, r Graph) { return Connect(x, Empty()), x },
		"connect distributes, left": func(x, y, z Graph) (l, r Graph) {
			return Connect(x, Overlay(y, z)), Overlay(Connect(x, y), Connect(x, z))
		},
		"connect distributes, right": func(x, y, z Graph) (l, r Graph) {
			return Connect(Overlay(x, y), z), Overlay(Connect(x, z), Connect(y, z))
		},
		"decomposition": func(x, y, z Graph) (l, r Graph) {
			return Connect(x, Connect(y, z)), Overlays(Connect(x, y), Connect(x, z), Connect(y, z))
		},
		"absorption":           func(x, y, _ Graph) (l, r Graph) { return Overlays(Connect(x, y), x, y), Connect(x, y) },
		"connect is saturated": func(x, _, _ Graph) (l, r Graph) { return Connects(x, x, x), Connect(x, x) },
	}
	differ := 0
	n := property(t, func(t *rapid.T) {
		x, y, z := genGraph.Draw(t, "x"), genGraph.Draw(t, "y"), genGraph.Draw(t, "z")
		for name, law := range laws {
			if l, r := law(x, y, z); !l.Equal(r) {
				t.Errorf("%s: %v %v is not %v %v", name, l.Nodes(), l.Edges(), r.Nodes(), r.Edges())
			}
		}
		if !Connect(x, y).Equal(Connect(y, x)) { // what is no law
			differ++
		}
	})
	n.saw(t, "pairs that Equal distinguishes", differ, 100)
}

func TestDerivedGraphs(t *testing.T) {
	for _, tc := range []struct {
		name  string
		got   Graph
		nodes string
		edges string
	}{
		{"empty", Empty(), "[]", "[]"},
		{"zero value", Graph{}, "[]", "[]"},
		{"vertex", Vertex("a"), "[a]", "[]"},
		{"overlays of none", Overlays(), "[]", "[]"},
		{"connects of none", Connects(), "[]", "[]"},
		{"vertices", Vertices("b", "a", "b"), "[a b]", "[]"},
		{"edge", EdgeOf("b", "a"), "[a b]", "[{b a}]"},
		{"edges", Edges(Edge{"b", "a"}, Edge{"a", "c"}, Edge{"b", "a"}), "[a b c]", "[{a c} {b a}]"},
		{"no path", Path(), "[]", "[]"},
		{"path of one", Path("a"), "[a]", "[]"},
		{"path", Path("c", "b", "a"), "[a b c]", "[{b a} {c b}]"},
		{"star", Star("c", "a", "b"), "[a b c]", "[{c a} {c b}]"},
		{"star without leaves", Star("c"), "[c]", "[]"},
		{"fan-in", FanIn("c", "b", "a"), "[a b c]", "[{a c} {b c}]"},
		{"fan-in without sources", FanIn("c"), "[c]", "[]"},
		{"clique", Clique("c", "b", "a"), "[a b c]", "[{b a} {c a} {c b}]"},
		{"clique of four", Clique("a", "b", "c", "d"), "[a b c d]", "[{a b} {a c} {a d} {b c} {b d} {c d}]"},
		{"no layers", Layered(), "[]", "[]"},
		{"one layer", Layered([]NodeID{"b", "a"}), "[a b]", "[]"},
		{"layers", Layered([]NodeID{"a"}, []NodeID{"b", "c"}, []NodeID{"d"}), "[a b c d]", "[{a b} {a c} {b d} {c d}]"},
		{"an empty layer separates", Layered([]NodeID{"a"}, nil, []NodeID{"b"}), "[a b]", "[]"},
		{"a cycle is a graph", Path("a", "b", "a"), "[a b]", "[{a b} {b a}]"},
		{"a loop is a graph", EdgeOf("a", "a"), "[a]", "[{a a}]"},
	} {
		if nodes, edges := fmt.Sprint(tc.got.Nodes()), fmt.Sprint(tc.got.Edges()); nodes != tc.nodes || edges != tc.edges {
			t.Errorf("%s: %s %s, want %s %s", tc.name, nodes, edges, tc.nodes, tc.edges)
		}
	}
	if Vertex("a").Equal(Vertex("b")) || Vertices("a", "b").Equal(EdgeOf("a", "b")) {
		t.Error("different graphs are equal")
	}
}

// Of all graphs of up to 4 nodes exactly those without a cycle are taken; of the others a real cycle, or the
// edge from a node to itself, is named. Both ways in agree.
func TestLowerAllSmallGraphs(t *testing.T) {
	cases := 0
	for n := range 5 {
		allDigraphs(n, n < 4 || !testing.Short(), func(nodes []NodeID, edges []Edge) {
			cases++
			r, err := Lower(Overlay(Vertices(nodes...), Edges(edges...)))
			declared, errDeclared := Declare(nodes, edges)
			w := newTwin(nodes, edges)
			if w.acyclic() {
				if err != nil || errDeclared != nil || !r.Equal(declared) {
					t.Fatalf("%v: %v, %v", edges, err, errDeclared)
				}
				checkRelation(t, r, w)
				return
			}
			checkRefusal(t, edges, err)
			checkRefusal(t, edges, errDeclared)
		})
	}
	t.Logf("%d cases", cases)
}

func checkRefusal(t *testing.T, edges []Edge, err error) {
	t.Helper()
	var refused *TopologyError
	if !errors.As(err, &refused) {
		t.Fatalf("%v: %v", edges, err)
	}
	has := func(from, to NodeID) bool { return slices.Contains(edges, Edge{from, to}) }
	loops := slices.ContainsFunc(edges, func(e Edge) bool { return e.From == e.To })
	switch {
	case loops:
		if refused.Rule != RuleNoSelfEdge || len(refused.Nodes) != 1 || !has(refused.Nodes[0], refused.Nodes[0]) {
			t.Fatalf("%v: %v", edges, err)
		}
	case refused.Rule != RuleAcyclic || len(refused.Nodes) < 2 || slices.Min(refused.Nodes) != refused.Nodes[0]:
		t.Fatalf("%v: %v", edges, err)
	default:
		for i, id := range refused.Nodes {
			if !has(id, refused.Nodes[(i+1)%len(refused.Nodes)]) || slices.Contains(refused.Nodes[:i], id) {
				t.Fatalf("%v: no cycle: %v", edges, err)
			}
		}
	}
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// checkRelation holds every question to a relation against the twin.
func checkRelation(t fataler, r *Relation, w *twin) {
	t.Helper()
	if !slices.Equal(r.Nodes(), w.nodes) || r.Len() != len(w.nodes) || r.EdgeCount() != len(r.Edges()) {
		t.Fatalf("nodes %v, %d, edges %d", r.Nodes(), r.Len(), r.EdgeCount())
	}
	var edges []Edge
	for i, id := range w.nodes {
		if n, ok := r.Number(id); !ok || n != i || r.Node(i) != id || !r.Has(id) {
			t.Fatalf("%s has number %d", id, n)
		}
		var after, below []NodeID
		for _, other := range w.nodes {
			if slices.Contains(w.predecessors(other), id) {
				after = append(after, other)
				edges = append(edges, Edge{id, other})
			}
			if w.reaches(id, other) {
				below = append(below, other)
			}
			if len(w.nodes) < 10 && r.Reaches(id, other) != w.reaches(id, other) {
				t.Fatalf("%s reaches %s: %v", id, other, r.Reaches(id, other))
			}
		}
		if !slices.Equal(r.Successors(id), after) || !slices.Equal(r.Predecessors(id), w.predecessors(id)) || !slices.Equal(r.Descendants(id), below) {
			t.Fatalf("%s: after it %v, before it %v, below it %v", id, r.Successors(id), r.Predecessors(id), r.Descendants(id))
		}
	}
	if !slices.Equal(r.Edges(), edges) {
		t.Fatalf("edges %v, want %v", r.Edges(), edges)
	}
	order := r.Topological()
	depth := map[NodeID]int{}
	for i, id := range order {
		for _, p := range w.predecessors(id) {
			if slices.Index(order, p) > i {
				t.Fatalf("order %v: %s comes before %s", order, id, p)
			}
			depth[id] = max(depth[id], depth[p]+1)
		}
		if i > 0 && depth[id] < depth[order[i-1]] {
			t.Fatalf("order %v: not layer by layer", order)
		}
	}
	if len(order) != len(w.nodes) {
		t.Fatalf("order %v", order)
	}
}

// Large relations answer as the twin does, and do not depend on how the graph was written.
func TestRelationAgreesWithItsTwin(t *testing.T) {
	property(t, func(t *rapid.T) {
		d := drawDAG(t)
		checkRelation(t, d.Relation, d.w)
		edges := permuted(d.rng, d.Edges())
		again, err := Lower(Overlay(Edges(edges...), Vertices(permuted(d.rng, d.Nodes())...)))
		if err != nil || !again.Equal(d.Relation) {
			t.Fatalf("lowered again: %v, %v", again, err)
		}
		if len(edges) > 0 {
			fewer, err := Lower(Overlay(Edges(edges[1:]...), Vertices(d.Nodes()...)))
			if err != nil || fewer.Equal(d.Relation) {
				t.Fatalf("without an edge it is %v, %v", fewer, err)
			}
		}
	})
}

// An edge against the direction of a path closes a cycle, which is named.
func TestCycleInALargeGraphIsNamed(t *testing.T) {
	cycles := 0
	n := property(t, func(t *rapid.T) {
		d := drawDAG(t)
		from := d.ids[d.rng.IntN(d.Len())]
		below := d.Descendants(from)
		if len(below) == 0 {
			return
		}
		cycles++
		edges := append(d.Edges(), Edge{below[d.rng.IntN(len(below))], from})
		_, err := Lower(Edges(edges...))
		var refused *TopologyError
		if !errors.As(err, &refused) || refused.Rule != RuleAcyclic {
			t.Fatalf("got %v", err)
		}
		for i, id := range refused.Nodes {
			if !slices.Contains(edges, Edge{id, refused.Nodes[(i+1)%len(refused.Nodes)]}) {
				t.Fatalf("no cycle: %v", err)
			}
		}
	})
	n.saw(t, "cycles", cycles, 100)
}

func names(prefix string, n int) []NodeID {
	out := make([]NodeID, n)
	for i := range out {
		out[i] = NodeID(fmt.Sprintf("%s%05d", prefix, i))
	}
	return out
}

func TestRefusedGraphs(t *testing.T) {
	lower := func(g Graph) func() error {
		return func() error { _, err := Lower(g); return err }
	}
	declare := func(nodes []NodeID, edges ...Edge) func() error {
		return func() error { _, err := Declare(nodes, edges); return err }
	}
	double := Vertex("a")
	for range 70 {
		double = Overlay(double, double)
	}
	// Products of 5 and 4 nodes, repeated; and with 2 edges more than the bound.
	small := limits{nodes: 12, edges: 20}
	bounded := func(gs ...Graph) func() error {
		return func() error { _, err := denote(Overlays(gs...), small); return err }
	}
	collected := func(n int, edges ...Edge) func() error {
		return func() error { _, err := collect(names("n", n), len(edges), slices.Values(edges), small); return err }
	}
	product := Connect(Vertices(names("a", 5)...), Vertices(names("b", 4)...))
	list := Connect(Vertices(names("n", 3)...), Vertices(names("n", 12)[3:]...)).Edges()
	ring := names("r", 30)
	for _, tc := range []struct {
		name string
		make func() error
		want string
	}{
		{"loop", lower(EdgeOf("a", "a")), `reduction: no_self_edge: an edge joins "a" to itself`},
		{"loop in a product", lower(Connect(Vertices("a", "b"), Vertices("c", "b"))), `reduction: no_self_edge: an edge joins "b" to itself`},
		{"clique with a repetition", lower(Clique("a", "b", "a")), `reduction: no_self_edge: an edge joins "a" to itself`},
		{"cycle", lower(Path("x", "b", "c", "a", "b")), `reduction: acyclic: "a" → "b" → "c" → "a"`},
		{"what follows a cycle is not named", lower(Overlay(Path("d", "c", "d"), Path("d", "b", "a"))), `reduction: acyclic: "c" → "d" → "c"`},
		{"long cycle", lower(Overlay(Path(ring...), EdgeOf(ring[29], ring[0]))), `"r00019" → … (30 nodes) → "r00000"`},
		{"nameless", lower(Vertices("a", "")), `reduction: node_id_not_empty: a node has no name`},
		{"declared nameless", declare([]NodeID{""}), `reduction: node_id_not_empty: a node has no name`},
		{"declared twice", declare([]NodeID{"b", "a", "b"}), `reduction: node_declared_once: "b" is declared twice`},
		{"unknown end", declare([]NodeID{"a"}, Edge{"a", "z"}), `reduction: edge_joins_declared_nodes: an edge joins "a" and "z", which is not declared`},
		{"unknown start", declare([]NodeID{"a"}, Edge{"z", "a"}), `reduction: edge_joins_declared_nodes: an edge joins "a" and "z", which is not declared`},
		{"declared loop", declare([]NodeID{"a"}, Edge{"a", "a"}), `reduction: no_self_edge: an edge joins "a" to itself`},
		{"declared cycle", declare([]NodeID{"b", "a"}, Edge{"a", "b"}, Edge{"b", "a"}), `reduction: acyclic: "a" → "b" → "a"`},
		{"long names are cut", declare([]NodeID{"a"}, Edge{"a", NodeID(strings.Repeat("x", 200))}), strings.Repeat("x", 80) + `"…, which is not declared`},
		{"nodes", bounded(Vertices(names("n", 13)...)), `reduction: at_most_max_nodes: 13, at most 12`},
		{"declared nodes", collected(13), `reduction: at_most_max_nodes: 13, at most 12`},
		{"one product", bounded(Connect(Vertices(names("a", 7)...), Vertices(names("b", 3)...))), `reduction: at_most_max_edges: 21, at most 20`},
		{"products together", bounded(product, product, product, EdgeOf("a00000", "c")), `reduction: at_most_max_edges: 21, at most 20`},
		{"many products", bounded(product, Star("c", names("b", 4)...), Path("d", "e"), product), `reduction: at_most_max_edges: 25, at most 20`},
		{"declared edges", collected(12, list[:21]...), `reduction: at_most_max_edges: 21, at most 20`},
		{"too many nodes", lower(Vertices(names("n", MaxNodes+1)...)), `reduction: at_most_max_nodes: 10001, at most 10000`},
		{"too many declared", declare(names("n", MaxNodes+1)), `reduction: at_most_max_nodes: 10001, at most 10000`},
		{"too many edges", lower(Connect(Vertices(names("a", 1001)...), Vertices(names("b", 1000)...))), `reduction: at_most_max_edges: 1001000, at most 1000000`},
		{"shared parts", lower(double), `reduction: expression_size: 9223372036854775807, at most 2010000`},
	} {
		err := tc.make()
		var refused *TopologyError
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v\nwant %s", tc.name, err, tc.want)
		}
	}
	// At the bounds it is taken, repetitions aside.
	for name, make := range map[string]func() error{
		"12 nodes":                            bounded(Vertices(names("n", 12)...)),
		"12 declared nodes":                   collected(12),
		"20 edges, over and over":             bounded(product, product, product, product, product),
		"repetitions in a product":            bounded(Connect(Vertices(slices.Repeat(names("a", 2), 11)...), Vertices(slices.Repeat(names("b", 10), 2)...))),
		"20 declared edges, and one repeated": collected(12, append(list[:20:20], list[0])...),
		"MaxNodes":                            lower(Vertices(names("n", MaxNodes)...)),
		"MaxEdges":                            lower(Connect(Vertices(names("a", 1000)...), Vertices(names("b", 1000)...))),
	} {
		if err := make(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A program may write an expression that is as deep as it is long.
func TestDeepExpression(t *testing.T) {
	left, right := Empty(), Empty()
	for range 100_000 {
		left, right = Overlay(left, EdgeOf("a", "b")), Overlay(EdgeOf("a", "b"), right)
	}
	for _, g := range []Graph{left, right} {
		if r, err := Lower(g); err != nil || r.Len() != 2 || r.EdgeCount() != 1 {
			t.Errorf("%v, %v", r, err)
		}
	}
}

// A query about a missing node has an empty answer.
func TestUnknownNode(t *testing.T) {
	r, err := Lower(EdgeOf("a", "b"))
	if err != nil {
		t.Fatal(err)
	}
	_, known := r.Number("z")
	if known || r.Has("z") || r.Predecessors("z") != nil || r.Successors("z") != nil || r.Descendants("z") != nil || r.Reaches("z", "a") || r.Reaches("a", "z") {
		t.Error("z is known")
	}
	if small, large := r.Size(), must(Lower(Clique(names("n", 100)...))).Size(); small <= 0 || large < 100*small/4 {
		t.Errorf("sizes %d and %d", small, large)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
