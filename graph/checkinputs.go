package graph

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	perdurev1 "perdure/api/perdure/v1"
)

// inputs checks what node i gets. Whether a source that is not a direct predecessor comes before the node
// is left to distant.
func (v *validator) inputs(l *level, i int) {
	n := l.nodes[i]
	inputs := n.GetInputs()
	if len(inputs) == 0 {
		return
	}
	switch n.GetKind().(type) {
	case *perdurev1.GraphNode_Signal:
		v.report(RuleNoInputs, field("inputs"), "a signal takes no inputs")
		return
	case *perdurev1.GraphNode_Sleep:
		v.report(RuleNoInputs, field("inputs"), "a sleep takes no inputs")
		return
	}
	if len(inputs) > MaxInputs {
		v.report(RuleInputs, field("inputs"), "%d inputs, at most %d are allowed", len(inputs), MaxInputs)
		return
	}
	for _, p := range l.before(int32(i)) {
		l.seen[p] = int32(i) + 1
	}
	var names map[string]int
	if len(inputs) > 1 {
		names = make(map[string]int, len(inputs))
	}
	for j, in := range inputs {
		v.enter(Step{Field: "inputs", Index: j})
		v.name("input", in.GetName(), "name")
		if first, taken := names[in.GetName()]; taken && in.GetName() != "" {
			v.report(RuleInputOnce, field("name"), "%s is the name of inputs[%d] already", quoted(in.GetName()), first)
		} else if names != nil {
			names[in.GetName()] = j
		}
		if why := badPath(in.GetPath()); why != "" {
			v.report(RulePath, field("path"), "%s", why)
		}
		v.known("type", perdurev1.ValueType_name, int32(in.GetType()))
		v.source(l, int32(i), int32(j), in)
		v.leave()
	}
}

// source checks where an input comes from.
func (v *validator) source(l *level, target, j int32, in *perdurev1.NodeInput) {
	switch in.GetSource().(type) {
	case *perdurev1.NodeInput_Node:
		source, known := l.index[in.GetNode()]
		switch {
		case !known:
			v.report(RuleFrom, field("node"), "there is no node %s%s", quoted(in.GetNode()), v.hint(l, in.GetNode()))
		case source == target:
			v.report(RuleAncestor, field("node"), "a node cannot take its own output")
		default:
			if l.seen[source] != target+1 {
				l.wanted = append(l.wanted, query{source: source, target: target, input: j})
			}
			v.types(in, outputType(l.nodes[source]), func() string { return "the output of " + in.GetNode() + " is declared as" })
		}
	case *perdurev1.NodeInput_Value:
		value := in.GetValue()
		if !isJSON(value) {
			v.report(RuleValue, field("value"), "the value is not JSON")
			return
		}
		v.types(in, literalType(value), func() string { return "the value is" })
	case *perdurev1.NodeInput_Run:
		if !in.GetRun() {
			v.report(RuleSource, field("run"), "false is no source; name a node, a value or the run")
		}
	default:
		v.report(RuleSource, nil, "the input comes from nowhere; name a node, a value or the run")
	}
}

// distant checks the inputs that come from nodes which are not direct predecessors. The order of nodes is not
// defined in a graph with a cycle.
func (v *validator) distant(l *level) {
	if l.order == nil || len(l.wanted) == 0 {
		return
	}
	for _, q := range l.lacking(l.wanted) {
		n := l.nodes[q.target]
		path := FieldPath{{Field: "nodes", Index: int(q.target), Node: n.GetId()},
			{Field: "inputs", Index: int(q.input)}, {Field: "node", Index: -1}}
		source := l.nodes[q.source].GetId()
		v.report(RuleAncestor, path, "%s does not come before this node; name it, or a node after it, in \"after\"", quoted(source))
	}
}

// types compares the type that an input asks for with the declared type of its source; what names the source.
func (v *validator) types(in *perdurev1.NodeInput, declared perdurev1.ValueType, what func() string) {
	const anything = perdurev1.ValueType_VALUE_TYPE_ANY
	switch {
	case declared == anything:
	case in.GetPath() != "":
		if declared != perdurev1.ValueType_VALUE_TYPE_OBJECT && declared != perdurev1.ValueType_VALUE_TYPE_ARRAY {
			v.report(RuleType, field("path"), "%s %s, which has no members", what(), TypeName(declared))
		}
	case in.GetType() != anything && in.GetType() != declared:
		v.report(RuleType, field("type"), "%s %s, not %s", what(), TypeName(declared), TypeName(in.GetType()))
	}
}

// TypeName is the name of a type as people write it: "any", "object", "array", "string", "number", "bool".
func TypeName(t perdurev1.ValueType) string {
	return strings.ToLower(strings.TrimPrefix(t.String(), "VALUE_TYPE_"))
}

// outputType is the declared type of a node's output. That of a subgraph is an object, whatever it declares.
func outputType(n *perdurev1.GraphNode) perdurev1.ValueType {
	if _, sub := n.GetKind().(*perdurev1.GraphNode_Subgraph); sub {
		return perdurev1.ValueType_VALUE_TYPE_OBJECT
	}
	return n.GetOutput()
}

// literalType is the type of a JSON value; null passes for everything.
func literalType(value []byte) perdurev1.ValueType {
	switch trim(value)[0] {
	case '{':
		return perdurev1.ValueType_VALUE_TYPE_OBJECT
	case '[':
		return perdurev1.ValueType_VALUE_TYPE_ARRAY
	case '"':
		return perdurev1.ValueType_VALUE_TYPE_STRING
	case 't', 'f':
		return perdurev1.ValueType_VALUE_TYPE_BOOL
	case 'n':
		return perdurev1.ValueType_VALUE_TYPE_ANY
	}
	return perdurev1.ValueType_VALUE_TYPE_NUMBER
}

// badPath says what is wrong with a path, or "". The empty path is the whole.
func badPath(path string) string {
	switch {
	case path == "":
		return ""
	case len(path) > MaxPathBytes:
		return fmt.Sprintf("the path has %d bytes, at most %d are allowed", len(path), MaxPathBytes)
	case !utf8.ValidString(path):
		return "the path is not valid UTF-8"
	case hasControl(path):
		return "the path has a control character"
	case path[0] == '.' || path[len(path)-1] == '.' || strings.Contains(path, ".."):
		return "the path " + quoted(path) + " has an empty member"
	case strings.Count(path, ".") >= MaxPathMembers:
		return fmt.Sprintf("the path has %d members, at most %d are allowed", strings.Count(path, ".")+1, MaxPathMembers)
	}
	return ""
}

// isJSON reports whether b is one JSON value in UTF-8.
func isJSON(b []byte) bool { return utf8.Valid(b) && json.Valid(b) }
