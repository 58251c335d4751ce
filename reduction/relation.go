package reduction

import (
	"iter"
	"slices"
)

// Relation is a validated topology: the nodes of a DAG with, for each, its predecessors and successors at
// hand (staged reduction, 2.1). It is immutable, and equal graphs have equal relations. Nodes are numbered
// from 0 in ascending order of their ids.
type Relation struct {
	ids    []NodeID
	number map[NodeID]int32 // looked up, never ranged over
	succ   adjacency
	pred   adjacency
	order  []int32 // a topological order
}

// adjacency holds, for every node, a span of one shared list, in ascending order.
type adjacency struct {
	start []int32 // one more than there are nodes
	nodes []int32
}

func (a adjacency) of(n int32) []int32 { return a.nodes[a.start[n]:a.start[n+1]] }

// Lower turns an expression into the relation that it denotes. It refuses, with a *TopologyError, an
// expression with a nameless node, an edge from a node to itself, a cycle, or more than MaxNodes nodes or
// MaxEdges edges. It costs O(nodes + edges) beyond writing the expression out.
func Lower(g Graph) (*Relation, error) {
	d, err := denote(g, ofARun)
	if err != nil {
		return nil, err
	}
	return relate(d)
}

// Declare is for graphs that arrive as lists: it refuses, with a *TopologyError, a node that is declared
// twice and an edge with an end that is not declared, and then every graph that [Lower] refuses. An edge may
// be listed twice, for edges are a set.
func Declare(nodes []NodeID, edges []Edge) (*Relation, error) {
	return DeclareSeq(nodes, len(edges), slices.Values(edges))
}

// DeclareSeq is Declare for edges that are in no list. count is how many there are, or about so many.
func DeclareSeq(nodes []NodeID, count int, edges iter.Seq[Edge]) (*Relation, error) {
	d, err := collect(nodes, count, edges, ofARun)
	if err != nil {
		return nil, err
	}
	return relate(d)
}

func collect(nodes []NodeID, count int, edges iter.Seq[Edge], lim limits) (denotation, error) {
	if len(nodes) > lim.nodes {
		return denotation{}, &TopologyError{Rule: RuleNodeLimit, Have: len(nodes), Max: lim.nodes}
	}
	d := denotation{ids: slices.Clone(nodes)}
	slices.Sort(d.ids)
	for i := 1; i < len(d.ids); i++ {
		if d.ids[i] == d.ids[i-1] {
			return denotation{}, &TopologyError{Rule: RuleNodeOnce, Nodes: []NodeID{d.ids[i]}}
		}
	}
	d.number = numbers(d.ids)
	d.arcs = make([]arc, 0, count)
	look := lookup{nodes: nodes, number: d.number}
	var former NodeID
	var to int32
	declared := false // the end that this edge shares with the one before, as most lists have it
	for e := range edges {
		from, ok := look.find(e.From)
		if !ok {
			return denotation{}, &TopologyError{Rule: RuleNodeDeclared, Nodes: []NodeID{e.From, e.To}}
		}
		if len(d.arcs) == 0 || e.To != former {
			to, declared = d.number[e.To]
			former = e.To
		}
		if !declared {
			return denotation{}, &TopologyError{Rule: RuleNodeDeclared, Nodes: []NodeID{e.To, e.From}}
		}
		if from == to {
			return denotation{}, &TopologyError{Rule: RuleNoSelfEdge, Nodes: []NodeID{e.From}}
		}
		d.arcs = append(d.arcs, arcOf(from, to))
	}
	d.arcs = compact(len(d.ids), d.arcs)
	if len(d.arcs) > lim.edges {
		return denotation{}, &TopologyError{Rule: RuleEdgeLimit, Have: len(d.arcs), Max: lim.edges}
	}
	return d, nil
}

// lookup finds the numbers of nodes. Programs list the predecessors of a node mostly in the order in which they declared them, so it
// tries the node that was declared after the one it found last, which costs less than a look into the map.
type lookup struct {
	nodes  []NodeID // as declared
	number map[NodeID]int32
	places []place // of nodes
	next   int32   // in nodes
}

// place is what a lookup has found of a declared node: its number, and of the node of that number its place in nodes.
type place struct{ number, declared int32 }

func (l *lookup) find(id NodeID) (n int32, ok bool) {
	if l.places == nil {
		l.places = make([]place, len(l.nodes))
		for i, node := range l.nodes {
			n := l.number[node]
			l.places[i].number, l.places[n].declared = n, int32(i)
		}
	}
	if int(l.next) < len(l.nodes) && l.nodes[l.next] == id {
		n = l.places[l.next].number
		l.next++
		return n, true
	}
	if n, ok = l.number[id]; ok {
		l.next = l.places[n].declared + 1
	}
	return n, ok
}

// numbers maps each id to its place.
func numbers(ids []NodeID) map[NodeID]int32 {
	out := make(map[NodeID]int32, len(ids))
	for i, id := range ids {
		out[id] = int32(i)
	}
	return out
}

// relate builds the two adjacencies of a denotation without self edges, and refuses cycles.
func relate(d denotation) (*Relation, error) {
	if len(d.ids) > 0 && d.ids[0] == "" {
		return nil, &TopologyError{Rule: RuleNodeNamed, Nodes: []NodeID{""}}
	}
	r := &Relation{ids: d.ids, number: d.number}
	if r.number == nil {
		r.number = numbers(d.ids)
	}
	r.succ = spread(len(d.ids), d.arcs, arc.from, arc.to)
	r.pred = spread(len(d.ids), d.arcs, arc.to, arc.from)
	if cycle := r.sortTopologically(); cycle != nil {
		return nil, &TopologyError{Rule: RuleAcyclic, Nodes: cycle}
	}
	return r, nil
}

// spread groups sorted arcs by one end, listing the other in ascending order.
func spread(n int, arcs []arc, key, value func(arc) int32) adjacency {
	a := adjacency{start: make([]int32, n+1), nodes: make([]int32, len(arcs))}
	for _, e := range arcs {
		a.start[key(e)+1]++
	}
	for i := range n {
		a.start[i+1] += a.start[i]
	}
	next := slices.Clone(a.start)
	for _, e := range arcs {
		k := key(e)
		a.nodes[next[k]] = value(e)
		next[k]++
	}
	return a
}

// Len is the number of nodes.
func (r *Relation) Len() int { return len(r.ids) }

// EdgeCount is the number of edges.
func (r *Relation) EdgeCount() int { return len(r.succ.nodes) }

// Has reports whether id is a node.
func (r *Relation) Has(id NodeID) bool {
	_, ok := r.number[id]
	return ok
}

// Number is the place of id among the nodes in ascending order, from 0. It is a short name for a node as
// long as the relation does not change.
func (r *Relation) Number(id NodeID) (int, bool) {
	n, ok := r.number[id]
	return int(n), ok
}

// Node is the inverse of Number. It panics unless 0 <= n < Len().
func (r *Relation) Node(n int) NodeID { return r.ids[n] }

// Nodes lists the nodes in ascending order.
func (r *Relation) Nodes() []NodeID { return slices.Clone(r.ids) }

// Sinks lists the nodes without a successor in ascending order.
func (r *Relation) Sinks() (out []NodeID) {
	for n, id := range r.ids {
		if len(r.succ.of(int32(n))) == 0 {
			out = append(out, id)
		}
	}
	return out
}

// Edges lists the edges in ascending order of their ends.
func (r *Relation) Edges() []Edge {
	out := make([]Edge, 0, r.EdgeCount())
	for n, id := range r.ids {
		for _, m := range r.succ.of(int32(n)) {
			out = append(out, Edge{id, r.ids[m]})
		}
	}
	return out
}

// Predecessors lists the nodes that id comes directly after, in ascending order; nil if id is not a node.
func (r *Relation) Predecessors(id NodeID) []NodeID { return r.neighbours(r.pred, id) }

// Successors lists the nodes that come directly after id, in ascending order; nil if id is not a node.
func (r *Relation) Successors(id NodeID) []NodeID { return r.neighbours(r.succ, id) }

func (r *Relation) neighbours(a adjacency, id NodeID) []NodeID {
	n, ok := r.number[id]
	if !ok {
		return nil
	}
	return r.names(a.of(n))
}

func (r *Relation) names(ns []int32) []NodeID {
	out := make([]NodeID, len(ns))
	for i, n := range ns {
		out[i] = r.ids[n]
	}
	return out
}

// Topological lists the nodes so that each comes after its predecessors: layer by layer of dependence, the
// same for equal relations.
func (r *Relation) Topological() []NodeID { return r.names(r.order) }

// Descendants lists the nodes that come after id, directly or not, in ascending order; nil if id is not a
// node. It costs O(nodes + edges).
func (r *Relation) Descendants(id NodeID) []NodeID {
	n, ok := r.number[id]
	if !ok {
		return nil
	}
	seen := make([]bool, len(r.ids))
	queue := []int32{n}
	for i := 0; i < len(queue); i++ {
		for _, m := range r.succ.of(queue[i]) {
			if !seen[m] {
				seen[m] = true
				queue = append(queue, m)
			}
		}
	}
	found := queue[1:]
	slices.Sort(found)
	return r.names(found)
}

// Reaches reports whether to comes after from, directly or not. No node reaches itself.
func (r *Relation) Reaches(from, to NodeID) bool {
	_, found := slices.BinarySearch(r.Descendants(from), to)
	return found
}

// Equal reports whether both have the same nodes and edges.
func (r *Relation) Equal(o *Relation) bool {
	return slices.Equal(r.ids, o.ids) && slices.Equal(r.succ.start, o.succ.start) && slices.Equal(r.succ.nodes, o.succ.nodes)
}

// Size estimates the memory that r holds, in bytes: what a cache should count.
func (r *Relation) Size() int {
	const perNode = 16 + 24 + 3*4 // a string's header, a place in the map, three numbers
	size := perNode*len(r.ids) + 2*4*len(r.succ.nodes)
	for _, id := range r.ids {
		size += len(id)
	}
	return size
}
