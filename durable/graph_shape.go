package durable

import (
	"errors"
	"fmt"

	"perdure/graph"
)

// Shape is an expression for nodes and edges, as algebraic graphs have them: a *Node is the shape of that
// node alone, and each function here combines shapes. Two expressions with the same nodes and edges are the
// same shape: a repeated edge is one edge, Overlay has no order, and Connect(x, Connect(y, z)) has the edges
// from x to y, from x to z and from y to z.
type Shape interface {
	// parts and inOrder describe the expression; only this package makes shapes.
	parts() []Shape
	inOrder() bool
}

func (n *Node) parts() []Shape { return nil }
func (n *Node) inOrder() bool  { return false }

type shape struct {
	of      []Shape
	chained bool // each after the one before
}

func (s *shape) parts() []Shape { return s.of }
func (s *shape) inOrder() bool  { return s.chained }

// Nodes is the shape of these nodes and no edge.
func Nodes(nodes ...*Node) Shape {
	s := &shape{of: make([]Shape, len(nodes))}
	for i, n := range nodes {
		s.of[i] = n
	}
	return s
}

// Overlay has the nodes and edges of all of them, and no further edge: they run concurrently.
func Overlay(shapes ...Shape) Shape { return &shape{of: shapes} }

// Connect has the nodes and edges of both, and an edge from every node of x to every node of y: y comes
// after x.
func Connect(x, y Shape) Shape { return Path(x, y) }

// Path has the nodes and edges of all of them, and puts every node of each after every node of the one before
// it. A shape without nodes separates: the shapes after it do not depend on those before it.
func Path(shapes ...Shape) Shape { return &shape{of: shapes, chained: true} }

// Star fans out: every leaf after the centre.
func Star(center Shape, leaves ...Shape) Shape { return Connect(center, Overlay(leaves...)) }

// FanIn gathers: the sink after every source.
func FanIn(sink Shape, sources ...Shape) Shape { return Connect(Overlay(sources...), sink) }

// Layered puts every node of a layer after every node of the layer before it, and of no other.
func Layered(layers ...[]*Node) Shape {
	s := &shape{chained: true}
	for _, layer := range layers {
		s.of = append(s.of, Nodes(layer...))
	}
	return s
}

// Add gives the graph the edges of shapes over its own nodes.
func (g *Graph) Add(shapes ...Shape) { g.shapes = append(g.shapes, shapes...) }

// edges are the edges of a graph while its shapes are written out.
type edges struct {
	g           *Graph
	index       map[*Node]int
	before      [][]*Node // of each node, in the order in which they were said
	known       map[[2]*Node]bool
	pairs       int
	problems    []error
	foreign     map[*Node]bool // reported already
	nilReported bool
}

func newEdges(g *Graph) *edges {
	e := &edges{g: g, index: make(map[*Node]int, len(g.nodes)), before: make([][]*Node, len(g.nodes)),
		known: map[[2]*Node]bool{}, foreign: map[*Node]bool{}}
	for i, n := range g.nodes {
		e.index[n] = i
	}
	return e
}

func (e *edges) add(from, to *Node) {
	if edge := [2]*Node{from, to}; !e.known[edge] {
		e.known[edge] = true
		i := e.index[to]
		e.before[i] = append(e.before[i], from)
	}
}

// trace flattens a shape. The nodes of its parts are adjacent in one list, so that two parts to be
// connected are two neighbouring spans of it.
func (e *edges) trace(s Shape) {
	var leaves []*Node
	var walk func(Shape)
	walk = func(s Shape) {
		if n, ok := s.(*Node); ok {
			if e.mine(n) {
				leaves = append(leaves, n)
			}
			return
		}
		if s == nil {
			e.mine(nil)
			return
		}
		before := len(leaves) // where the part before begins
		for i, part := range s.parts() {
			begin := len(leaves)
			walk(part)
			if s.inOrder() && i > 0 {
				e.product(leaves[before:begin], leaves[begin:])
			}
			before = begin
		}
	}
	walk(s)
}

// maxPairs bounds the work of one graph: an edge may be repeated, but not without bound.
const maxPairs = 4 * graph.MaxEdges

func (e *edges) product(from, to []*Node) {
	if e.pairs > maxPairs {
		return
	}
	if e.pairs += len(from) * len(to); e.pairs > maxPairs {
		e.problems = append(e.problems, fmt.Errorf("the shapes say more than %d edges; a node between two wide layers would do with fewer", maxPairs))
		return
	}
	for _, y := range to {
		for _, x := range from {
			e.add(x, y)
		}
	}
}

// mine reports whether a node belongs to the graph.
func (e *edges) mine(n *Node) bool {
	switch {
	case n == nil:
		if !e.nilReported {
			e.nilReported = true
			e.problems = append(e.problems, errors.New("a shape has a node that is nil"))
		}
		return false
	case n.g != e.g:
		if !e.foreign[n] {
			e.foreign[n] = true
			e.problems = append(e.problems, fmt.Errorf("a shape has node %q, which is of another graph", n.ID()))
		}
		return false
	}
	return true
}
