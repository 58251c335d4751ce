package graph

import (
	"maps"
	"slices"
	"strings"

	perdurev1 "perdure/api/perdure/v1"
)

// Kind is what a node is, in words as a status shows them: "function charge", "http", "signal approved",
// "sleep", "subgraph"; "" if it has no kind.
func Kind(n *perdurev1.GraphNode) string {
	switch n.GetKind().(type) {
	case *perdurev1.GraphNode_Function:
		return "function " + n.GetFunction().GetFunction()
	case *perdurev1.GraphNode_Http:
		return "http"
	case *perdurev1.GraphNode_Signal:
		return "signal " + n.GetSignal().GetName()
	case *perdurev1.GraphNode_Sleep:
		return "sleep"
	case *perdurev1.GraphNode_Subgraph:
		return "subgraph"
	}
	return ""
}

// kind checks what a node does.
func (v *validator) kind(n *perdurev1.GraphNode, depth int) {
	step := Step{Index: -1}
	switch n.GetKind().(type) {
	case *perdurev1.GraphNode_Function:
		step.Field = "function"
		v.enter(step)
		name := n.GetFunction().GetFunction()
		v.name("function", name, "function")
		if strings.HasPrefix(name, "$") {
			v.report(RuleReserved, field("function"), "the name %s is reserved: it begins with '$'", quoted(name))
		}
	case *perdurev1.GraphNode_Http:
		step.Field = "http"
		v.enter(step)
		v.call(n.GetHttp())
	case *perdurev1.GraphNode_Signal:
		step.Field = "signal"
		v.enter(step)
		v.name("signal", n.GetSignal().GetName(), "name")
	case *perdurev1.GraphNode_Sleep:
		step.Field = "sleep"
		v.enter(step)
		v.duration("duration_ms", n.GetSleep().GetDurationMs(), 1)
	case *perdurev1.GraphNode_Subgraph:
		step.Field = "subgraph"
		v.enter(step)
		v.graph(n.GetSubgraph(), depth+1)
	default:
		v.report(RuleKind, nil, "the node is neither a function, an HTTP call, a signal, a sleep nor a subgraph")
		return
	}
	v.leave()
}

// call checks an HTTP call.
func (v *validator) call(h *perdurev1.HttpNode) {
	if why := badURL(h.GetUrl()); why != "" {
		v.report(RuleURL, field("url"), "%s", why)
	}
	if m := h.GetMethod(); m != "" && (!isToken(m) || len(m) > MaxMethodBytes) {
		v.report(RuleMethod, field("method"), "%s is not a method of HTTP", quoted(m))
	}
	headers := h.GetHeaders()
	if len(headers) > MaxHeaders {
		v.report(RuleHeader, field("headers"), "%d header fields, at most %d are allowed", len(headers), MaxHeaders)
		return
	}
	folded := make(map[string]string, len(headers))
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		at := func() FieldPath { return FieldPath{{Field: "headers", Index: -1, Key: name}} }
		value := headers[name]
		lower := strings.ToLower(name)
		switch {
		case !isToken(name):
			v.report(RuleHeader, at(), "%s is not a name of a header field", quoted(name))
		case len(name)+len(value) > MaxHeaderBytes:
			v.report(RuleHeader, at(), "the field has %d bytes, at most %d are allowed", len(name)+len(value), MaxHeaderBytes)
		case hasControl(strings.ReplaceAll(value, "\t", "")):
			v.report(RuleHeader, at(), "the value has a control character")
		case folded[lower] != "":
			v.report(RuleHeader, at(), "%s is the same field as %s", quoted(name), quoted(folded[lower]))
		default:
			folded[lower] = name
		}
	}
}

// isToken reports whether s is a token of HTTP (RFC 9110, 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		if !isLetterOrDigit(s[i]) && strings.IndexByte("!#$%&'*+-.^_`|~", s[i]) < 0 {
			return false
		}
	}
	return s != ""
}

func isLetterOrDigit(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
