package draw

import (
	"fmt"
	"strings"

	perdurev1 "perdure/api/perdure/v1"
)

// DOT writes a graph in the language of Graphviz, with the colours of SVG. State is the state of each node;
// nil: the graph alone. All nodes are written, however many; of subgraphs only how large they are.
func DOT(g *perdurev1.Graph, state func(node string) string) string {
	if state == nil {
		state = func(string) string { return "" }
	}
	var b strings.Builder
	fmt.Fprintf(&b, "digraph %s {\n", dotQuote(g.GetName()))
	b.WriteString("  rankdir=LR;\n")
	b.WriteString("  node [shape=box, style=\"rounded,filled\", fontname=\"sans-serif\"];\n")
	for _, n := range g.GetNodes() {
		s := styleOf(state(n.GetId()))
		label := join("\n", n.GetId(), join(" · ", kindText(n), s.state))
		fmt.Fprintf(&b, "  %s [label=%s, fillcolor=%q, color=%q];\n", dotQuote(n.GetId()), dotQuote(label), s.fill, s.stroke)
	}
	for _, n := range g.GetNodes() {
		for _, p := range n.GetAfter() {
			fmt.Fprintf(&b, "  %s -> %s;\n", dotQuote(p), dotQuote(n.GetId()))
		}
	}
	b.WriteString("}\n")
	return b.String()
}

var dotEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", " ", "\x00", "\ufffd")

func dotQuote(s string) string {
	return `"` + dotEscapes.Replace(strings.ToValidUTF8(s, "\ufffd")) + `"`
}
