package graph

import (
	"fmt"
	"strconv"
	"strings"
)

// The rules a [Problem] may name. They are stable names: callers may compare them.
const (
	RuleNoNodes   = "graph_has_nodes"     // a graph has at least one node
	RuleNodes     = "node_limit"          // at most MaxNodes nodes
	RuleEdges     = "edge_limit"          // at most MaxEdges edges
	RuleDepth     = "nesting_limit"       // subgraphs nest at most MaxDepth deep
	RuleName      = "name_form"           // names are non-empty UTF-8 of at most MaxNameBytes without control characters
	RuleReserved  = "name_reserved"       // a function's name does not begin with '$'
	RuleID        = "node_id_form"        // 1 to MaxIDBytes of letters, digits, '_', '-', '.'
	RuleTwice     = "node_id_unique"      // no two nodes of a graph have the same id
	RuleAfter     = "edge_known"          // a node comes after nodes of the same graph
	RuleAfterSelf = "edge_not_self"       // no node comes after itself
	RuleAfterOnce = "edge_once"           // an edge is named once
	RuleCycle     = "acyclic"             // no node comes after itself through others
	RuleKind      = "node_has_kind"       // a node is a function, a call, a signal, a sleep or a subgraph
	RuleEnum      = "enum_known"          // an enum's value is one this version knows
	RuleDuration  = "duration_bounds"     // durations are 0 to MaxDurationMs, a sleep at least 1 ms
	RuleRetry     = "retry_bounds"        // attempts and factor are in their bounds
	RuleURL       = "url_form"            // an address is http or https with a host, and without a user
	RuleMethod    = "method_form"         // a method is a token of HTTP
	RuleHeader    = "header_form"         // a header field has a token for a name and visible text for a value
	RuleInputs    = "input_limit"         // at most MaxInputs inputs
	RuleNoInputs  = "kind_takes_inputs"   // a signal and a sleep take no inputs
	RuleInputOnce = "input_unique"        // no two inputs of a node have the same name
	RuleSource    = "input_has_source"    // an input comes from a node, a value or the run
	RuleFrom      = "input_known"         // an input comes from a node of the same graph
	RuleAncestor  = "input_from_ancestor" // an input comes from a node that ends before this one starts
	RulePath      = "path_form"           // a path is members with single dots between them
	RuleValue     = "value_is_json"       // a literal is one JSON value in UTF-8
	RuleType      = "input_type"          // what an input asks for is what its source is declared as
)

// A Step is one step from a message into one of its fields, under the names of the .proto files.
type Step struct {
	Field string
	// Index picks from a repeated field; -1 if the field is not one.
	Index int
	// Key picks from a map.
	Key string
	// Node is the id of the node that was picked, for people: it may be empty or on two nodes.
	Node string
}

// A FieldPath leads from the graph that was submitted to what is wrong. The empty one is the graph itself.
type FieldPath []Step

// String writes a path for people: nodes[3] (id "join").inputs[1].node.
func (p FieldPath) String() string { return p.text(true) }

// Pointer writes a path for programs, by positions alone: nodes[3].inputs[1].node.
func (p FieldPath) Pointer() string { return p.text(false) }

func (p FieldPath) text(ids bool) string {
	var b strings.Builder
	for i, s := range p {
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(s.Field)
		if s.Index >= 0 {
			b.WriteString("[" + strconv.Itoa(s.Index) + "]")
		}
		if s.Key != "" {
			b.WriteString("[" + strconv.Quote(s.Key) + "]")
		}
		if ids && s.Node != "" {
			b.WriteString(" (id " + quoted(s.Node) + ")")
		}
	}
	return b.String()
}

// A Problem is one thing that is wrong with a graph.
type Problem struct {
	Path FieldPath
	// Rule is one of the Rule constants.
	Rule string
	// Message is a sentence without the path.
	Message string
}

// String returns the problem in one line.
func (p Problem) String() string {
	if len(p.Path) == 0 {
		return p.Message
	}
	return p.Path.String() + ": " + p.Message
}

// Error is everything that is wrong with a graph.
type Error struct {
	// Problems are at least one and at most MaxProblems, in an order that depends on the graph alone.
	Problems []Problem
	// More counts the problems beyond those.
	More int
}

// Error returns a line for each problem.
func (e *Error) Error() string {
	if len(e.Problems) == 1 && e.More == 0 {
		return "graph: " + e.Problems[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "graph: %d problems:", len(e.Problems)+e.More)
	for _, p := range e.Problems {
		b.WriteString("\n  " + p.String())
	}
	if e.More > 0 {
		fmt.Fprintf(&b, "\n  and %d more", e.More)
	}
	return b.String()
}

// quoted writes a name that may be anything, shortened.
func quoted(s string) string {
	if len(s) > MaxIDBytes {
		return strconv.Quote(s[:MaxIDBytes]) + "…"
	}
	return strconv.Quote(s)
}
