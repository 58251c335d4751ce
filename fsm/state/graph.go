package state

import (
	perdurev1 "perdure/api/perdure/v1"
	"perdure/reduction"

	"google.golang.org/protobuf/proto"
)

// DecodeGraph is the inverse of EncodeGraph. spec is the graph's encoding. It and input are parts of b.
func DecodeGraph(b []byte) (graph *perdurev1.Graph, spec, input []byte, err error) {
	if spec, input, err = SplitGraph(b); err != nil {
		return nil, nil, nil, err
	}
	graph = &perdurev1.Graph{}
	if err := proto.Unmarshal(spec, graph); err != nil {
		return nil, nil, nil, err
	}
	return graph, spec, input, nil
}

// SplitGraph is DecodeGraph without the graph.
func SplitGraph(b []byte) (spec, input []byte, err error) {
	d := decoder{b: b}
	spec, input = d.bytes(), d.bytes()
	if err := d.end(); err != nil {
		return nil, nil, err
	}
	return spec, input, nil
}

// RelationOf is the topology of a graph.
func RelationOf(g *perdurev1.Graph) (*reduction.Relation, error) {
	nodes := make([]reduction.NodeID, len(g.Nodes))
	count := 0
	for i, n := range g.Nodes {
		nodes[i] = reduction.NodeID(n.Id)
		count += len(n.After)
	}
	return reduction.DeclareSeq(nodes, count, func(yield func(reduction.Edge) bool) {
		for i, n := range g.Nodes {
			for _, before := range n.After {
				if !yield(reduction.Edge{From: reduction.NodeID(before), To: nodes[i]}) {
					return
				}
			}
		}
	})
}

// EncodeGraph is what is stored of a run's graph and input.
func EncodeGraph(g *perdurev1.Graph, input []byte) ([]byte, error) {
	size := Deterministic.Size(g)
	e := encoder{b: make([]byte, 0, 16+size+len(input))}
	e.u64(uint64(size))
	sized := Deterministic
	sized.UseCachedSize = true
	b, err := sized.MarshalAppend(e.b, g)
	if err != nil {
		return nil, err
	}
	e.b = b
	e.bytes(input)
	return e.b, nil
}
