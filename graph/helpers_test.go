package graph_test

import (
	"fmt"

	perdurev1 "perdure/api/perdure/v1"
)

// node makes a function node.
func node(id string, after ...string) *perdurev1.GraphNode {
	return &perdurev1.GraphNode{Id: id, After: after,
		Kind: &perdurev1.GraphNode_Function{Function: &perdurev1.FunctionNode{Function: "f"}}}
}

func with(n *perdurev1.GraphNode, change func(*perdurev1.GraphNode)) *perdurev1.GraphNode {
	change(n)
	return n
}

func graphOf(nodes ...*perdurev1.GraphNode) *perdurev1.Graph { return &perdurev1.Graph{Nodes: nodes} }

func fromNode(name, source string) *perdurev1.NodeInput {
	return &perdurev1.NodeInput{Name: name, Source: &perdurev1.NodeInput_Node{Node: source}}
}

func fromValue(name, value string) *perdurev1.NodeInput {
	return &perdurev1.NodeInput{Name: name, Source: &perdurev1.NodeInput_Value{Value: []byte(value)}}
}

func fromRun(name, path string) *perdurev1.NodeInput {
	return &perdurev1.NodeInput{Name: name, Source: &perdurev1.NodeInput_Run{Run: true}, Path: path}
}

func typed(in *perdurev1.NodeInput, path string, t perdurev1.ValueType) *perdurev1.NodeInput {
	in.Path, in.Type = path, t
	return in
}

func takes(n *perdurev1.GraphNode, inputs ...*perdurev1.NodeInput) *perdurev1.GraphNode {
	n.Inputs = inputs
	return n
}

func call(url string, headers map[string]string) *perdurev1.GraphNode {
	return &perdurev1.GraphNode{Id: "a", Kind: &perdurev1.GraphNode_Http{Http: &perdurev1.HttpNode{Url: url, Headers: headers}}}
}

// layered makes layers of nodes of which each comes after all of the layer before.
func layered(layers, width int) *perdurev1.Graph {
	g := &perdurev1.Graph{}
	var last []string
	for l := range layers {
		var this []string
		for w := range width {
			id := fmt.Sprintf("n%d.%d", l, w)
			this = append(this, id)
			g.Nodes = append(g.Nodes, node(id, last...))
		}
		last = this
	}
	return g
}
