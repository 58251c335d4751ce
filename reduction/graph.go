package reduction

import (
	"math"
	"slices"
)

// NodeID names a node of one graph. It is opaque text, never empty, compared as bytes; every listing of
// nodes in this package is in ascending order of it unless it says otherwise.
type NodeID string

// Edge says that To comes after From: To may start once From is completed or skipped.
type Edge struct {
	From, To NodeID
}

// Graph is an algebraic graph (staged reduction, 2.1): an immutable expression that denotes a set of nodes
// and a set of edges. Two expressions that denote the same sets are the same graph ([Graph.Equal]), which
// gives the algebra its laws: Overlay is associative, commutative and idempotent, Connect is associative,
// Empty is the identity of both, Connect distributes over Overlay, and Connect(x, Connect(y, z)) is the
// overlay of the three pairs. The zero value is Empty().
//
// Any expression is a Graph, cyclic or not; [Lower] decides whether a run accepts it.
type Graph struct {
	root *expr // nil for the empty graph, which occurs nowhere below a root
}

type operator uint8

const (
	opVertex operator = iota
	opOverlay
	opConnect
)

// expr is one application of a constructor. Empty is the identity of both operators, so it is never stored.
type expr struct {
	op     operator
	id     NodeID
	x, y   *expr
	leaves int // vertices written below, with repetitions; stops at math.MaxInt
}

// Empty returns the graph without nodes.
func Empty() Graph { return Graph{} }

// Vertex returns the graph of one node, without edges.
func Vertex(id NodeID) Graph { return Graph{&expr{op: opVertex, id: id, leaves: 1}} }

// Overlay has the nodes and the edges of both: they run side by side.
func Overlay(x, y Graph) Graph { return combine(opOverlay, x, y) }

// Connect has the nodes and the edges of both, and an edge from every node of x to every node of y: y comes
// after x.
func Connect(x, y Graph) Graph { return combine(opConnect, x, y) }

func combine(op operator, x, y Graph) Graph {
	switch {
	case x.root == nil:
		return y
	case y.root == nil:
		return x
	}
	leaves := math.MaxInt
	if x.root.leaves < math.MaxInt-y.root.leaves {
		leaves = x.root.leaves + y.root.leaves
	}
	return Graph{&expr{op: op, x: x.root, y: y.root, leaves: leaves}}
}

// Nodes lists the nodes of g in ascending order, each once.
func (g Graph) Nodes() []NodeID {
	d, _ := denote(g, noLimits)
	return d.ids
}

// Edges lists the edges of g, each once, in ascending order of their ends. Unlike [Lower] it knows no
// limits: the cost is that of writing every Connect out.
func (g Graph) Edges() []Edge {
	d, _ := denote(g, noLimits)
	out := make([]Edge, len(d.arcs))
	for i, a := range d.arcs {
		out[i] = Edge{d.ids[a.from()], d.ids[a.to()]}
	}
	return out
}

// Equal reports whether g and h denote the same nodes and edges, however they are written.
func (g Graph) Equal(h Graph) bool {
	a, _ := denote(g, noLimits)
	b, _ := denote(h, noLimits)
	return slices.Equal(a.ids, b.ids) && slices.Equal(a.arcs, b.arcs)
}
