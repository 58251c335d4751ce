package state

import (
	perdurev1 "perdure/api/perdure/v1"
	"perdure/reduction"

	"google.golang.org/protobuf/proto"
)

func DecodeGraph(b []byte) (graph *perdurev1.Graph, spec, input []byte, err error) {
	d := decoder{b: b}
	spec, input = d.bytes(), d.bytes()
	if err := d.end(); err != nil {
		return nil, nil, nil, err
	}
	graph = &perdurev1.Graph{}
	if err := proto.Unmarshal(spec, graph); err != nil {
		return nil, nil, nil, err
	}
	return graph, spec, input, nil
}

// RelationOf is the topology of a graph.
func RelationOf(g *perdurev1.Graph) (*reduction.Relation, error) {
	nodes := make([]reduction.NodeID, len(g.Nodes))
	count := 0
	for _, n := range g.Nodes {
		count += len(n.After)
	}
	edges := make([]reduction.Edge, 0, count)
	for i, n := range g.Nodes {
		nodes[i] = reduction.NodeID(n.Id)
		for _, before := range n.After {
			edges = append(edges, reduction.Edge{From: reduction.NodeID(before), To: nodes[i]})
		}
	}
	return reduction.Declare(nodes, edges)
}

// EncodeGraph is what is stored of a run's graph, given its encoding, and its input.
func EncodeGraph(spec, input []byte) []byte {
	e := encoder{b: make([]byte, 0, 16+len(spec)+len(input))}
	e.bytes(spec)
	e.bytes(input)
	return e.b
}
