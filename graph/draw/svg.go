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
	// Title is written above the picture; empty: the name of the graph.
	Title string
	// MaxNodes bounds the nodes that are drawn one by one; a larger graph is drawn as counts. 0: DefaultMaxNodes.
	MaxNodes int
}

const (
	margin    = 24
	titleRoom = 34 // above the picture, if it has a title
	keyRoom   = 40 // below it, if it has a legend
)

// SVG draws a graph as a self-contained picture. State is the state of each node; nil: the graph alone. Each box
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
		p.nodes(d, states)
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

const (
	pad  = 12 // within a box
	gapX = 56 // between boxes, where time goes to the right
	gapY = 18
	down = 40 // between rows, where time goes down
	side = 20 // between the boxes of a row
	// pageWidth is what fits on a page: a picture that would be wider has its time go down, if that makes it narrower.
	pageWidth = 1200
)

// nodes draws boxes and edges.
func (p *picture) nodes(d *dag, states []string) {
	f := acrossThePage(d, states)
	if f.end() > pageWidth-2*margin {
		if other := downThePage(d, states); other.reach() < f.end() {
			f = other
		}
	}
	f.left, f.top = margin, p.top
	p.right, p.bottom = f.left+f.end(), f.top+f.reach()
	if f.down {
		p.right, p.bottom = f.left+f.reach(), f.top+f.end()
	}
	for n := range d.nodes {
		p.edges(f, n)
	}
	for n, node := range d.nodes {
		p.box(f, n, node, states[n])
	}
}

// A frame holds the positions of a layout's columns: side by side, or, where time goes down, below each
// other.
type frame struct {
	*layout
	down      bool
	at, thick []int // of each column: where it begins, and how wide it is (how high, where time goes down)
	left, top int   // of the whole
	widths    []int // of the boxes, by node; at most
	high      int   // each box
}

// boxWidth is what a box needs for its lines, even.
func boxWidth(node *perdurev1.GraphNode, below ...string) int {
	w := max(width(cut(node.GetId(), maxID), 82)+2*pad, 96)
	for _, line := range below {
		w = max(w, width(line, 66)+2*pad)
	}
	return w + w%2
}

// acrossThePage is the frame in which time goes to the right.
func acrossThePage(d *dag, states []string) *frame {
	f := &frame{at: make([]int, d.layers), thick: make([]int, d.layers), high: boxHeight}
	var sizes []int
	for n, node := range d.nodes {
		sizes = append(sizes, boxHeight)
		w := boxWidth(node, join(" · ", cut(kindText(node), maxKind), cut(states[n], maxKind)))
		f.thick[d.layer[n]] = max(f.thick[d.layer[n]], w)
	}
	for n := range d.nodes {
		f.widths = append(f.widths, f.thick[d.layer[n]])
	}
	x := 0
	for c := range f.at {
		f.at[c] = x
		x += f.thick[c] + gapX
	}
	f.layout = arrange(d, sizes, gapY)
	return f
}

// downThePage is the frame in which time goes down. A node's state has a line of its own, so that the boxes are narrow.
func downThePage(d *dag, states []string) *frame {
	f := &frame{down: true, at: make([]int, d.layers), thick: make([]int, d.layers), high: boxHeight}
	for n, node := range d.nodes {
		f.widths = append(f.widths, boxWidth(node, cut(kindText(node), maxKind), cut(states[n], maxKind)))
		if states[n] != "" {
			f.high = boxHeight + lineHeight
		}
	}
	for c := range f.at {
		f.at[c], f.thick[c] = c*(f.high+down), f.high
	}
	f.layout = arrange(d, f.widths, side)
	return f
}

// end is where the last column ends; reach is how far the columns go.
func (f *frame) end() int {
	if last := len(f.at) - 1; last >= 0 {
		return f.at[last] + f.thick[last]
	}
	return 0
}

func (f *frame) reach() (far int) {
	for i := range f.items {
		far = max(far, f.items[i].y+f.items[i].size/2)
	}
	return far
}

// box is the position of a node's box.
func (f *frame) box(n int) (x, y int) {
	c := f.layer[n]
	if f.down {
		return f.left + f.items[n].y - f.widths[n]/2, f.top + f.at[c]
	}
	return f.left + f.at[c], f.top + f.items[n].y - f.high/2
}

// point is a place on the page: so far in time, and so far across.
func (f *frame) point(time, across int) string {
	if f.down {
		return fmt.Sprintf("%d %d", f.left+across, f.top+time)
	}
	return fmt.Sprintf("%d %d", f.left+time, f.top+across)
}

// straight is a line on to a time.
func (f *frame) straight(time int) string {
	if f.down {
		return fmt.Sprintf("V%d", f.top+time)
	}
	return fmt.Sprintf("H%d", f.left+time)
}

// curve is a line from one place to a later one.
func (f *frame) curve(t1, a1, t2, a2 int) string {
	if a1 == a2 {
		return "M" + f.point(t1, a1) + f.straight(t2)
	}
	half := (t2 - t1) / 2
	return "M" + f.point(t1, a1) + "C" + f.point(t1+half, a1) + " " + f.point(t2-half, a2) + " " + f.point(t2, a2)
}

// box draws a node.
func (p *picture) box(f *frame, n int, node *perdurev1.GraphNode, state string) {
	s := styleOf(state)
	x, y := f.box(n)
	w := f.widths[n]
	id, kind := escape(node.GetId()), escape(kindText(node))
	p.put(`<g class="node" data-node="%s" data-state="%s">`, id, escape(state))
	p.put(`<title>%s</title>`, escape(join(" – ", node.GetId(), kindText(node), state)))
	dash := ""
	if s.state == "skipped" {
		dash = ` stroke-dasharray="5 3"`
	}
	p.put(`<rect x="%d" y="%d" width="%d" height="%d" rx="7" fill="%s" stroke="%s" stroke-width="1.5"%s/>`,
		x, y, w, f.high, s.fill, s.stroke, dash)
	if _, sub := node.GetKind().(*perdurev1.GraphNode_Subgraph); sub {
		p.put(`<rect x="%d" y="%d" width="%d" height="%d" rx="5" fill="none" stroke="%s"/>`, x+3, y+3, w-6, f.high-6, s.stroke)
	}
	p.put(`<text x="%d" y="%d" class="id">%s</text>`, x+pad, y+19, escape(cut(node.GetId(), maxID)))
	line := escape(cut(kindText(node), maxKind))
	below := y + 34
	if state != "" {
		switch {
		case f.down && kind != "":
			p.put(`<text x="%d" y="%d" class="kind">%s</text>`, x+pad, below, line)
			line, below = "", below+lineHeight
		case kind != "":
			line += " · "
		}
		line += fmt.Sprintf(`<tspan fill="%s" font-weight="600">%s</tspan>`, s.stroke, escape(cut(state, maxKind)))
	}
	p.put(`<text x="%d" y="%d" class="kind">%s</text>`, x+pad, below, line)
	p.put(`</g>`)
}

// How many letters of a name are shown in a box.
const (
	maxID   = 32
	maxKind = 36
)

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
func (p *picture) edges(f *frame, n int) {
	if len(f.succ[n]) == 0 {
		return
	}
	end := func(c int) int { return f.at[c] + f.thick[c] }
	t, a := end(f.layer[n]), f.items[n].y
	shared := ""
	for i, pass := range f.passes[n] {
		c := f.layer[n] + 1 + i
		to := f.items[pass].y
		shared += f.curve(t, a, f.at[c], to) + f.straight(end(c))
		t, a = end(c), to
	}
	if shared != "" {
		p.put(`<path class="edge" d="%s"/>`, shared)
	}
	for _, s := range f.succ[n] {
		c := f.layer[s] - 1
		from := f.items[f.leaves(n, s)].y
		p.put(`<path class="edge" marker-end="url(#arrow)" d="%s"/>`, f.curve(end(c), from, f.at[c+1]-2, f.items[s].y))
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

// legend lists the states that occur with their counts; it returns its right edge.
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
