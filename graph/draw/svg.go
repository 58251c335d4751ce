package draw

import (
	"bytes"
	"fmt"

	perdurev1 "perdure/api/perdure/v1"
)

// DefaultMaxNodes is how many nodes are drawn one by one unless Options say otherwise.
const DefaultMaxNodes = 200

// Options of a picture.
type Options struct {
	// Title stands above the picture; empty: the name of the graph.
	Title string
	// MaxNodes bounds the nodes that are drawn one by one; a larger graph is drawn as counts. 0: DefaultMaxNodes.
	MaxNodes int
}

const (
	margin    = 24
	titleRoom = 34 // above the picture, if it has a title
	keyRoom   = 40 // below it, if it has a legend
)

// SVG draws a graph as a stand-alone picture. State is the state of each node; nil: the graph alone. Each box
// is a group of the class "node" with its id in data-node and its state in data-state.
func SVG(g *perdurev1.Graph, state func(node string) string, opts Options) []byte {
	if state == nil {
		state = func(string) string { return "" }
	}
	if opts.Title == "" {
		opts.Title = g.GetName()
	}
	if opts.MaxNodes <= 0 {
		opts.MaxNodes = DefaultMaxNodes
	}
	d := newDag(g)
	p := &picture{top: margin}
	if opts.Title != "" {
		p.top += titleRoom
	}
	states := make([]string, len(d.nodes))
	for i, n := range d.nodes {
		states[i] = state(n.GetId())
	}
	if len(d.nodes) > opts.MaxNodes {
		p.summary(d, states)
	} else {
		p.nodes(arrange(d), states)
	}
	return p.close(opts.Title, states)
}

// A picture is the inside of an SVG while it is drawn, and how large it has become.
type picture struct {
	bytes.Buffer
	top           int // where the picture begins
	right, bottom int // what is drawn so far, without margins
}

func (p *picture) put(format string, args ...any) {
	fmt.Fprintf(&p.Buffer, format, args...)
	p.WriteByte('\n')
}

// nodes draws boxes and edges.
func (p *picture) nodes(l *layout, states []string) {
	const pad = 12
	left := make([]int, l.layers) // of each column, and its width
	wide := make([]int, l.layers)
	for n, node := range l.dag.nodes {
		c := l.layer[n]
		wide[c] = max(wide[c], width(cut(node.GetId(), maxID), 82)+2*pad, width(secondLine(node, states[n]), 66)+2*pad, 96)
	}
	x := margin
	for c := range left {
		left[c] = x
		x += wide[c] + gapX
	}
	p.right = max(x-gapX, margin)
	for i := range l.items {
		l.items[i].y += p.top
		p.bottom = max(p.bottom, l.items[i].y+l.items[i].height()/2)
	}
	for n := range l.dag.nodes {
		p.edges(l, n, left, wide)
	}
	for n, node := range l.dag.nodes {
		s := styleOf(states[n])
		x, y, w := left[l.layer[n]], l.items[n].y-boxHeight/2, wide[l.layer[n]]
		id, kind := escape(node.GetId()), escape(kindText(node))
		p.put(`<g class="node" data-node="%s" data-state="%s">`, id, escape(states[n]))
		p.put(`<title>%s</title>`, escape(join(" – ", node.GetId(), kindText(node), states[n])))
		dash := ""
		if s.state == "skipped" {
			dash = ` stroke-dasharray="5 3"`
		}
		p.put(`<rect x="%d" y="%d" width="%d" height="%d" rx="7" fill="%s" stroke="%s" stroke-width="1.5"%s/>`,
			x, y, w, boxHeight, s.fill, s.stroke, dash)
		if _, sub := node.GetKind().(*perdurev1.GraphNode_Subgraph); sub {
			p.put(`<rect x="%d" y="%d" width="%d" height="%d" rx="5" fill="none" stroke="%s"/>`, x+3, y+3, w-6, boxHeight-6, s.stroke)
		}
		p.put(`<text x="%d" y="%d" class="id">%s</text>`, x+pad, y+19, escape(cut(node.GetId(), maxID)))
		line := escape(cut(kindText(node), maxKind))
		if states[n] != "" {
			if kind != "" {
				line += " · "
			}
			line += fmt.Sprintf(`<tspan fill="%s" font-weight="600">%s</tspan>`, s.stroke, escape(cut(states[n], maxKind)))
		}
		p.put(`<text x="%d" y="%d" class="kind">%s</text>`, x+pad, y+34, line)
		p.put(`</g>`)
	}
}

// How many letters of a name are shown in a box.
const (
	maxID   = 32
	maxKind = 36
)

func secondLine(n *perdurev1.GraphNode, state string) string {
	return join(" · ", cut(kindText(n), maxKind), cut(state, maxKind))
}

// join joins what is not empty.
func join(separator string, parts ...string) string {
	out := ""
	for _, s := range parts {
		if s == "" {
			continue
		}
		if out != "" {
			out += separator
		}
		out += s
	}
	return out
}

// edges draws the edges that leave node n: what they share is drawn once.
func (p *picture) edges(l *layout, n int, left, wide []int) {
	if len(l.succ[n]) == 0 {
		return
	}
	curve := func(x1, y1, x2, y2 int) string {
		if y1 == y2 {
			return fmt.Sprintf("M%d %dH%d", x1, y1, x2)
		}
		half := (x2 - x1) / 2
		return fmt.Sprintf("M%d %dC%d %d %d %d %d %d", x1, y1, x1+half, y1, x2-half, y2, x2, y2)
	}
	x, y := left[l.layer[n]]+wide[l.layer[n]], l.items[n].y
	shared := ""
	for i, pass := range l.passes[n] {
		c := l.layer[n] + 1 + i
		to := l.items[pass].y
		shared += curve(x, y, left[c], to) + fmt.Sprintf("H%d", left[c]+wide[c])
		x, y = left[c]+wide[c], to
	}
	if shared != "" {
		p.put(`<path class="edge" d="%s"/>`, shared)
	}
	for _, s := range l.succ[n] {
		c := l.layer[s] - 1
		from := l.items[l.leaves(n, s)].y
		p.put(`<path class="edge" marker-end="url(#arrow)" d="%s"/>`, curve(left[c]+wide[c], from, left[c+1]-2, l.items[s].y))
	}
}

// close adds title and legend and writes the whole.
func (p *picture) close(title string, states []string) []byte {
	legend, drawn := p.legend(states)
	height := max(p.bottom, p.top) + margin
	if drawn > margin {
		height += keyRoom
	}
	whole := max(p.right, drawn, margin+width(cut(title, 80), 100), 240) + margin
	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" `+
		`font-family="system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif">`+"\n", whole, height, whole, height)
	out.WriteString(`<style>.id{font-size:13px;font-weight:600;fill:#111827}.kind{font-size:11px;fill:#4b5563}` +
		`.edge{fill:none;stroke:#94a3b8;stroke-width:1.4}.title{font-size:16px;font-weight:600;fill:#111827}</style>` + "\n")
	out.WriteString(`<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" ` +
		`markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L8 4L0 8z" fill="#64748b"/></marker></defs>` + "\n")
	fmt.Fprintf(&out, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", whole, height)
	if title != "" {
		fmt.Fprintf(&out, `<text x="%d" y="%d" class="title">%s</text>`+"\n", margin, margin+14, escape(cut(title, 80)))
	}
	out.Write(p.Bytes())
	if drawn > margin {
		fmt.Fprintf(&out, `<g transform="translate(0 %d)">`+"\n%s</g>\n", height-keyRoom, legend)
	}
	out.WriteString("</svg>\n")
	return out.Bytes()
}

// legend names the states that occur and counts them; it answers how far to the right it goes.
func (p *picture) legend(states []string) (drawn string, right int) {
	counts := make(map[string]int)
	for _, s := range states {
		counts[styleOf(s).state]++
	}
	var b bytes.Buffer
	x := margin
	for _, s := range styles {
		if counts[s.state] == 0 {
			continue
		}
		text := fmt.Sprintf("%s %d", s.state, counts[s.state])
		fmt.Fprintf(&b, `<rect x="%d" y="4" width="14" height="14" rx="3" fill="%s" stroke="%s"/>`+"\n", x, s.fill, s.stroke)
		fmt.Fprintf(&b, `<text x="%d" y="15" class="kind">%s</text>`+"\n", x+20, text)
		x += 20 + width(text, 66) + 18
	}
	return b.String(), x
}
