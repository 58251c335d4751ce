package reduction

// The graphs that people write are few shapes, and each is a short expression in the four constructors.

// Overlays returns the overlay of all graphs, and Empty for none.
func Overlays(gs ...Graph) Graph { return fold(Overlay, gs) }

// Connects puts each after all before it, Empty of none.
func Connects(gs ...Graph) Graph { return fold(Connect, gs) }

// fold halves the list, so that an expression over n graphs is only log n deep. Both operators are
// associative, so nothing else depends on it.
func fold(op func(x, y Graph) Graph, gs []Graph) Graph {
	switch len(gs) {
	case 0:
		return Empty()
	case 1:
		return gs[0]
	}
	half := len(gs) / 2
	return op(fold(op, gs[:half]), fold(op, gs[half:]))
}

func vertexEach(ids []NodeID) []Graph {
	out := make([]Graph, len(ids))
	for i, id := range ids {
		out[i] = Vertex(id)
	}
	return out
}

// Vertices returns the graph of these nodes, without edges.
func Vertices(ids ...NodeID) Graph { return Overlays(vertexEach(ids)...) }

// EdgeOf returns the graph of two nodes and one edge: to runs after from.
func EdgeOf(from, to NodeID) Graph { return Connect(Vertex(from), Vertex(to)) }

// Edges returns the graph of these edges and their end nodes.
func Edges(es ...Edge) Graph {
	gs := make([]Graph, len(es))
	for i, e := range es {
		gs[i] = EdgeOf(e.From, e.To)
	}
	return Overlays(gs...)
}

// Path runs the nodes one after the other: an edge from each to the next. A path of one node is that node.
func Path(ids ...NodeID) Graph {
	if len(ids) == 1 {
		return Vertex(ids[0])
	}
	gs := make([]Graph, 0, len(ids))
	for i := 1; i < len(ids); i++ {
		gs = append(gs, EdgeOf(ids[i-1], ids[i]))
	}
	return Overlays(gs...)
}

// Star fans out: every leaf after the centre. Without leaves it is the centre.
func Star(center NodeID, leaves ...NodeID) Graph { return Connect(Vertex(center), Vertices(leaves...)) }

// FanIn gathers: the sink after every source. Without sources it is the sink.
func FanIn(sink NodeID, sources ...NodeID) Graph { return Connect(Vertices(sources...), Vertex(sink)) }

// Clique puts every node after all earlier nodes of the list.
func Clique(ids ...NodeID) Graph { return Connects(vertexEach(ids)...) }

// Layered puts every node of a layer after every node of the layer before it, and of no other. An empty
// layer separates: what follows it does not depend on what precedes it.
func Layered(layers ...[]NodeID) Graph {
	if len(layers) == 1 {
		return Vertices(layers[0]...)
	}
	gs := make([]Graph, 0, len(layers))
	for i := 1; i < len(layers); i++ {
		gs = append(gs, Connect(Vertices(layers[i-1]...), Vertices(layers[i]...)))
	}
	return Overlays(gs...)
}
