package draw

import (
	"strings"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/graph"
)

// A style is how a state looks.
type style struct {
	state        string
	fill, stroke string
}

// styles are the known states in the order of the legend. The strokes are dark enough for text on the fills.
var styles = []style{
	{"completed", "#dcfce7", "#15803d"},
	{"running", "#dbeafe", "#1d4ed8"},
	{"waiting", "#fef3c7", "#b45309"},
	{"failed", "#fee2e2", "#b91c1c"},
	{"skipped", "#ede9fe", "#6d28d9"},
	{"pending", "#f3f4f6", "#4b5563"},
}

// plain is how everything else looks.
var plain = style{"", "#ffffff", "#4b5563"}

func styleOf(state string) style {
	for _, s := range styles {
		if s.state == state {
			return s
		}
	}
	s := plain
	s.state = state
	return s
}

// kindText is the second line of a box.
func kindText(n *perdurev1.GraphNode) string {
	kind := graph.Kind(n)
	if sub, ok := n.GetKind().(*perdurev1.GraphNode_Subgraph); ok {
		return kind + " of " + count(len(sub.Subgraph.GetNodes()), "node")
	}
	return kind
}

// cut shortens text to a number of runes.
func cut(s string, runes int) string {
	seen := 0
	for i := range s {
		if seen++; seen > runes {
			return s[:i] + "…"
		}
	}
	return s
}

// width estimates the width of text in pixels; per is that of one letter in tenths of a pixel.
func width(s string, per int) int {
	tenths := 0
	for _, c := range s {
		if c >= 0x1100 {
			tenths += per // wide scripts
		}
		tenths += per
	}
	return (tenths + 9) / 10
}

var xmlEscapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#39;")

// escape makes text fit for XML, in content and in attributes. A character that XML cannot hold becomes
// U+FFFD.
func escape(s string) string {
	s = strings.Map(func(c rune) rune {
		switch {
		case c == '\t' || c == '\n' || c == '\r':
			return ' '
		case c < ' ' || c == 0xfffe || c == 0xffff:
			return '\ufffd'
		}
		return c
	}, s)
	return xmlEscapes.Replace(strings.ToValidUTF8(s, "\ufffd"))
}
