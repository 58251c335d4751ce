package reduction

import "math"

// The bounds of one graph. Both are checked while an expression is written out, before the excess is
// allocated.
const (
	// MaxNodes bounds the nodes of a graph.
	MaxNodes = 10_000
	// MaxEdges bounds its edges. Connect writes products: two layers of 1,000 nodes have as many edges, and
	// one node between them, as a barrier, makes it 2,000.
	MaxEdges = 1_000_000
	// maxLeaves bounds the vertices written in an expression, with repetitions: enough for a list of
	// MaxEdges edges, and an end for expressions that share parts to look small.
	maxLeaves = 2*MaxEdges + MaxNodes
)

// limits are the bounds of one walk over an expression.
type limits struct {
	nodes, edges int
	loops        bool // whether an edge from a node to itself is allowed
}

var (
	noLimits = limits{nodes: math.MaxInt32, edges: math.MaxInt / 2, loops: true}
	ofARun   = limits{nodes: MaxNodes, edges: MaxEdges}
)
