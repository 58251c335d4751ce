package reduction

import (
	"strconv"
	"strings"
)

// The rules that a [TopologyError] may name.
const (
	RuleAcyclic       = "acyclic"      // no node comes after itself (staged reduction, 1.2)
	RuleNoSelfEdge    = "no_self_edge" // no edge joins a node to itself, the shortest cycle
	RuleNodeOnce      = "node_declared_once"
	RuleNodeDeclared  = "edge_joins_declared_nodes"
	RuleNodeNamed     = "node_id_not_empty"
	RuleNodeLimit     = "at_most_max_nodes"
	RuleEdgeLimit     = "at_most_max_edges"
	RuleExpressionEnd = "expression_size" // an expression writes at most 2·MaxEdges + MaxNodes vertices
)

// TopologyError is the refusal of a graph: no run can have it.
type TopologyError struct {
	// Rule is one of the Rule constants above.
	Rule string
	// Nodes are those concerned. For RuleAcyclic it is the whole cycle in the direction of its edges,
	// starting at its least node; the edge from the last to the first closes it. For RuleNodeDeclared it
	// is the undeclared node, then the edge's other end.
	Nodes []NodeID
	// Have and Max are the number found and the bound, for the limits; both 0 otherwise. A count stops
	// when it exceeds the bound.
	Have, Max int
}

// shownNodes is how many nodes of a cycle the message spells out.
const shownNodes = 20

// Error names the rule and the nodes.
func (e *TopologyError) Error() string {
	var b strings.Builder
	b.WriteString("reduction: " + e.Rule + ":")
	switch e.Rule {
	case RuleAcyclic:
		for i, id := range e.Nodes {
			if i == shownNodes {
				b.WriteString(" … (" + strconv.Itoa(len(e.Nodes)) + " nodes) →")
				break
			}
			b.WriteString(" " + quoted(string(id)) + " →")
		}
		b.WriteString(" " + quoted(string(e.Nodes[0])))
	case RuleNoSelfEdge:
		b.WriteString(" an edge joins " + quoted(string(e.Nodes[0])) + " to itself")
	case RuleNodeOnce:
		b.WriteString(" " + quoted(string(e.Nodes[0])) + " is declared twice")
	case RuleNodeDeclared:
		b.WriteString(" an edge joins " + quoted(string(e.Nodes[1])) + " and " + quoted(string(e.Nodes[0])) + ", which is not declared")
	case RuleNodeNamed:
		b.WriteString(" a node has no name")
	default:
		b.WriteString(" " + strconv.Itoa(e.Have) + ", at most " + strconv.Itoa(e.Max))
	}
	return b.String()
}

// quoted shows a user's text in a message, cut so that it cannot flood a log.
func quoted(s string) string {
	if len(s) > 80 {
		return strconv.Quote(s[:80]) + "…"
	}
	return strconv.Quote(s)
}
