package reduction

import "slices"

// arc is an edge between two node numbers, ordered as its ends are.
type arc uint64

func arcOf(from, to int32) arc { return arc(from)<<32 | arc(to) }

func (a arc) from() int32 { return int32(a >> 32) }
func (a arc) to() int32   { return int32(a & 0xffffffff) }

// denotation is what an expression means: its nodes in ascending order, numbered by their place, and its
// edges in ascending order, each once.
type denotation struct {
	ids  []NodeID
	arcs []arc
	// number is numbers(ids), nil if nothing has needed it.
	number map[NodeID]int32
}

// denote writes an expression out. The vertices of a sub-expression are adjacent among the leaves of the
// whole, read from left to right. So a Connect is the product of two neighbouring spans of leaves, and no set
// of nodes is ever built for a sub-expression. The walk keeps its own stack: expressions that programs build
// may be deep. The error is a *TopologyError.
func denote(g Graph, lim limits) (denotation, error) {
	if g.root == nil {
		return denotation{}, nil
	}
	if !lim.loops && g.root.leaves > maxLeaves {
		return denotation{}, &TopologyError{Rule: RuleExpressionEnd, Have: g.root.leaves, Max: maxLeaves}
	}
	w := writer{lim: lim, number: make(map[NodeID]int32)}
	if err := w.walk(g.root); err != nil {
		return denotation{}, err
	}
	return w.finish()
}

// writer is one walk. Nodes are numbered by first appearance until finish.
type writer struct {
	lim    limits
	number map[NodeID]int32
	ids    []NodeID
	leaves []int32
	arcs   []arc
	seen   []int // by node: the last span that it was met in
	span   int
	left   []int32 // scratch: the distinct nodes of a span
	right  []int32
}

type frame struct {
	e          *expr
	start, mid int // where in leaves its two operands begin
	visits     uint8
}

func (w *writer) walk(root *expr) error {
	stack := []frame{{e: root}}
	for len(stack) > 0 {
		f := &stack[len(stack)-1]
		switch {
		case f.e.op == opVertex:
			if err := w.leaf(f.e.id); err != nil {
				return err
			}
			stack = stack[:len(stack)-1]
		case f.visits == 0:
			f.start, f.visits = len(w.leaves), 1
			stack = append(stack, frame{e: f.e.x})
		case f.visits == 1:
			f.mid, f.visits = len(w.leaves), 2
			stack = append(stack, frame{e: f.e.y})
		default:
			if f.e.op == opConnect {
				if err := w.product(w.leaves[f.start:f.mid], w.leaves[f.mid:]); err != nil {
					return err
				}
			}
			stack = stack[:len(stack)-1]
		}
	}
	return nil
}

func (w *writer) leaf(id NodeID) error {
	n, ok := w.number[id]
	if !ok {
		if len(w.ids) == w.lim.nodes {
			return &TopologyError{Rule: RuleNodeLimit, Have: len(w.ids) + 1, Max: w.lim.nodes}
		}
		n = int32(len(w.ids))
		w.number[id] = n
		w.ids = append(w.ids, id)
		w.seen = append(w.seen, 0)
	}
	w.leaves = append(w.leaves, n)
	return nil
}

// distinct appends each node of a span once to dst and marks it with a fresh number of its own.
func (w *writer) distinct(dst, span []int32) []int32 {
	w.span++
	for _, n := range span {
		if w.seen[n] != w.span {
			w.seen[n] = w.span
			dst = append(dst, n)
		}
	}
	return dst
}

func (w *writer) product(x, y []int32) error {
	w.right = w.distinct(w.right[:0], y)
	if !w.lim.loops {
		for _, n := range x {
			if w.seen[n] == w.span { // it is among y as well
				return &TopologyError{Rule: RuleNoSelfEdge, Nodes: []NodeID{w.ids[n]}}
			}
		}
	}
	w.left = w.distinct(w.left[:0], x)
	size := len(w.left) * len(w.right)
	if size > w.lim.edges {
		return &TopologyError{Rule: RuleEdgeLimit, Have: size, Max: w.lim.edges}
	}
	if len(w.arcs)+size > 2*w.lim.edges { // repetitions aside, is it still within the bound?
		w.arcs = compact(len(w.ids), w.arcs)
		if len(w.arcs) > w.lim.edges {
			return &TopologyError{Rule: RuleEdgeLimit, Have: len(w.arcs), Max: w.lim.edges}
		}
	}
	for _, a := range w.left {
		for _, b := range w.right {
			w.arcs = append(w.arcs, arcOf(a, b))
		}
	}
	return nil
}

// finish numbers the nodes in ascending order.
func (w *writer) finish() (denotation, error) {
	ids := slices.Clone(w.ids)
	slices.Sort(ids)
	place := make([]int32, len(ids))
	for i, id := range ids {
		place[w.number[id]] = int32(i)
	}
	for i, a := range w.arcs {
		w.arcs[i] = arcOf(place[a.from()], place[a.to()])
	}
	arcs := compact(len(ids), w.arcs)
	if len(arcs) > w.lim.edges {
		return denotation{}, &TopologyError{Rule: RuleEdgeLimit, Have: len(arcs), Max: w.lim.edges}
	}
	return denotation{ids: ids, arcs: arcs}, nil
}

// compact sorts the arcs between n nodes, and keeps each once. It may change arcs.
func compact(n int, arcs []arc) []arc {
	if len(arcs) < n {
		slices.Sort(arcs)
	} else {
		spare := make([]arc, len(arcs))
		sortBy(n, spare, arcs, arc.to) // both passes cost less than comparing
		sortBy(n, arcs, spare, arc.from)
	}
	return slices.Compact(arcs)
}

// sortBy sorts arcs into out by one end, which is below n. Arcs with the same end keep their order.
func sortBy(n int, out, arcs []arc, end func(arc) int32) {
	next := make([]int32, n+1)
	for _, a := range arcs {
		next[end(a)+1]++
	}
	for i := range n {
		next[i+1] += next[i]
	}
	for _, a := range arcs {
		e := end(a)
		out[next[e]] = a
		next[e]++
	}
}
