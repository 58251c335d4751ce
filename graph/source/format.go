package source

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/graph"
)

// Format writes a graph as YAML, in the order of its nodes and inputs. Parse reads the same graph from it if
// graph.Validate accepts the graph and its literals nest at most 500 deep; white space in literals is lost.
// Format omits fields that have their default.
func Format(g *perdurev1.Graph) []byte {
	var w writer
	w.graph(g, "")
	return w.Bytes()
}

// A writer writes YAML: blocks for graphs and nodes, flow for what is inside.
type writer struct{ bytes.Buffer }

func (w *writer) line(indent, format string, args ...any) {
	w.WriteString(indent)
	fmt.Fprintf(w, format, args...)
	w.WriteByte('\n')
}

func (w *writer) graph(g *perdurev1.Graph, indent string) {
	if g.GetName() != "" {
		w.line(indent, "name: %s", word(g.GetName()))
	}
	if g.GetMaxParallel() > 0 {
		w.line(indent, "maxParallel: %d", g.GetMaxParallel())
	}
	if g.GetWave() {
		w.line(indent, "wave: true")
	}
	w.line(indent, "nodes:")
	for _, n := range g.GetNodes() {
		w.line(indent+"  ", "%s:", word(n.GetId()))
		w.node(n, indent+"    ")
	}
}

func (w *writer) node(n *perdurev1.GraphNode, indent string) {
	switch n.GetKind().(type) {
	case *perdurev1.GraphNode_Function:
		w.line(indent, "function: %s", word(n.GetFunction().GetFunction()))
	case *perdurev1.GraphNode_Http:
		w.line(indent, "http: %s", call(n.GetHttp()))
	case *perdurev1.GraphNode_Signal:
		w.line(indent, "signal: %s", word(n.GetSignal().GetName()))
	case *perdurev1.GraphNode_Sleep:
		w.line(indent, "sleep: %s", formatDuration(n.GetSleep().GetDurationMs()))
	case *perdurev1.GraphNode_Subgraph:
		w.line(indent, "graph:")
		w.graph(n.GetSubgraph(), indent+"  ")
	}
	if len(n.GetAfter()) > 0 {
		ids := make([]string, 0, len(n.GetAfter()))
		for _, id := range n.GetAfter() {
			ids = append(ids, word(id))
		}
		w.line(indent, "after: [%s]", strings.Join(ids, ", "))
	}
	if len(n.GetInputs()) > 0 {
		w.line(indent, "inputs:")
		for _, in := range n.GetInputs() {
			w.line(indent+"  ", "%s: %s", word(in.GetName()), input(in))
		}
	}
	if n.GetRetry() != nil {
		w.line(indent, "retry: %s", retry(n.GetRetry()))
	}
	if n.GetTimeoutMs() > 0 {
		w.line(indent, "timeout: %s", formatDuration(n.GetTimeoutMs()))
	}
	if n.GetOnFailure() != 0 {
		w.line(indent, "onFailure: %s", failureWords[n.GetOnFailure()])
	}
	if n.GetOutput() != 0 {
		w.line(indent, "output: %s", typeWords[n.GetOutput()])
	}
}

func call(h *perdurev1.HttpNode) string {
	parts := []string{"url: " + word(h.GetUrl())}
	if h.GetMethod() != "" {
		parts = append(parts, "method: "+word(h.GetMethod()))
	}
	if len(h.GetHeaders()) > 0 {
		var fields []string
		for _, name := range slices.Sorted(maps.Keys(h.GetHeaders())) {
			fields = append(fields, member(name)+word(h.GetHeaders()[name]))
		}
		parts = append(parts, "headers: {"+strings.Join(fields, ", ")+"}")
	}
	if h.GetSendInputs() {
		parts = append(parts, "sendInputs: true")
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func retry(r *perdurev1.NodeRetry) string {
	var parts []string
	if r.GetAttempts() > 0 {
		parts = append(parts, "attempts: "+strconv.FormatUint(uint64(r.GetAttempts()), 10))
	}
	if r.GetInitialMs() > 0 {
		parts = append(parts, "initial: "+formatDuration(r.GetInitialMs()))
	}
	if r.GetMaxMs() > 0 {
		parts = append(parts, "max: "+formatDuration(r.GetMaxMs()))
	}
	if f := r.GetFactorPercent(); f > 0 {
		text := strconv.FormatUint(uint64(f/100), 10)
		if f%100 > 0 {
			text += "." + strings.TrimRight(fmt.Sprintf("%02d", f%100), "0")
		}
		parts = append(parts, "factor: "+text)
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func input(in *perdurev1.NodeInput) string {
	var parts []string
	path := in.GetPath()
	switch in.GetSource().(type) {
	case *perdurev1.NodeInput_Node:
		parts = append(parts, "node: "+word(in.GetNode()))
	case *perdurev1.NodeInput_Run:
		if path == "" {
			parts = append(parts, "run: true")
		} else {
			parts = append(parts, "run: "+word(path))
			path = ""
		}
	default:
		text, plain := value(in.GetValue())
		if plain && path == "" && in.GetType() == 0 {
			return text
		}
		parts = append(parts, "value: "+text)
	}
	if path != "" {
		parts = append(parts, "path: "+word(path))
	}
	if in.GetType() != 0 {
		parts = append(parts, "type: "+typeWords[in.GetType()])
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// value writes JSON as YAML in one line. Plain says that it may be written in place of a source.
func value(literal []byte) (text string, plain bool) {
	d := json.NewDecoder(bytes.NewReader(literal))
	d.UseNumber()
	plain = true
	var b strings.Builder
	var write func(depth int)
	write = func(depth int) {
		t, err := d.Token()
		if err != nil {
			b.WriteString("null") // Validate refuses what is not JSON
			return
		}
		switch t := t.(type) {
		case json.Delim:
			b.WriteString(t.String())
			for i := 0; d.More(); i++ {
				if i > 0 {
					b.WriteString(", ")
				}
				if t == '{' {
					key, _ := d.Token()
					name, _ := key.(string)
					if depth == 0 && slices.Contains(inputKeys, name) {
						plain = false
					}
					b.WriteString(member(name))
				}
				write(depth + 1)
			}
			if _, err := d.Token(); err == nil {
				b.WriteByte(t.String()[0] + 2) // ']' and '}' come two after '[' and '{'
			}
		case string:
			b.WriteString(word(t))
		case json.Number:
			b.WriteString(t.String())
		case bool:
			b.WriteString(strconv.FormatBool(t))
		default:
			b.WriteString("null")
		}
	}
	write(0)
	return b.String(), plain
}

// member writes a key in a flow mapping. YAML wants it marked if it is long.
func member(name string) string {
	if text := word(name); len(text) < 1000 {
		return text + ": "
	}
	return "? " + quote(name) + " : "
}

// reserved are words that some YAML reader takes for something other than text.
var reserved = []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}

// word writes text: plain if it has no other reading, otherwise quoted.
func word(s string) string {
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		if letter || i > 0 && (c >= '0' && c <= '9' || c == '-' || c == '.' || c == '/') {
			continue
		}
		return quote(s)
	}
	if s == "" || slices.Contains(reserved, strings.ToLower(s)) {
		return quote(s)
	}
	return s
}

// quote writes text in double quotes, with what YAML does not print escaped.
func quote(s string) string {
	var b strings.Builder
	for _, c := range string(graph.Quote(s)) {
		if c >= 0x7f && c < 0xa0 || c == 0xfeff || c == 0xfffe || c == 0xffff {
			fmt.Fprintf(&b, "\\u%04x", c)
			continue
		}
		b.WriteRune(c)
	}
	return b.String()
}
