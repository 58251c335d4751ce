package report

import (
	_ "embed" // the page's template
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"

	"perdure/bench/load"
	"perdure/bench/suite"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// HTML writes a page with the table and plots, which needs nothing from elsewhere.
func HTML(w io.Writer, figures []suite.Figures) error {
	rows := Rows(figures)
	head, cells := tableCells(rows)
	var notes []string
	for _, r := range rows {
		notes = append(notes, r.notes()...)
	}
	notes = append(notes, limits(rows)...)
	return page.Execute(w, map[string]any{"Head": head, "Rows": cells, "Notes": notes, "Sections": sections(rows)})
}

// section is a workload with its plots.
type section struct {
	Title string
	Plots []template.HTML
}

// sections makes the plots of each workload, in the order of the rows.
func sections(rows []*Row) []section {
	var out []section
	at := map[string][]*Row{}
	var order []string
	for _, r := range rows {
		if at[r.Workload] == nil {
			order = append(order, r.Workload)
		}
		at[r.Workload] = append(at[r.Workload], r)
	}
	for _, name := range order {
		mine := at[name]
		s := section{Title: mine[0].Letter + " · " + mine[0].Title}
		perNode := curves(mine, func(f suite.Figures) float64 { return f.PerSecond })
		s.Plots = append(s.Plots,
			plot{title: mine[0].Unit + " per second", x: "under way", curves: perNode, logX: true}.svg(),
			plot{title: "p50, ms", x: "under way", curves: curves(mine, func(f suite.Figures) float64 { return f.Latency.P50 }), logX: true, logY: true}.svg(),
			plot{title: "p99, ms", x: "under way", curves: curves(mine, func(f suite.Figures) float64 { return f.Latency.P99 }), logX: true, logY: true}.svg(),
			bars("CPU per unit, ms", mine),
			plot{title: "latency by percentile, ms", x: "nines", curves: percentiles(mine), logY: true}.svg(),
		)
		for _, r := range mine {
			if len(r.Rounds[0].Timeline) > 0 {
				s.Plots = append(s.Plots, plot{title: fmt.Sprintf("completions per 100 ms, %s", r.label()), x: "s", curves: []curve{timeline(r.Rounds[0].Timeline)}}.svg())
			}
		}
		out = append(out, s)
	}
	return out
}

// label is a row without its workload.
func (r *Row) label() string {
	return strings.TrimPrefix(fmt.Sprintf("%s, %d nodes, %s", r.Binary, r.Nodes, Bytes(r.Payload)), ", ")
}

// curve is a line of a plot.
type curve struct {
	name   string
	points [][2]float64
}

// curves draws a figure over the number under way, one line for each cluster, payload and binary.
func curves(rows []*Row, of func(suite.Figures) float64) []curve {
	var out []curve
	for _, r := range rows {
		i := slices.IndexFunc(out, func(c curve) bool { return c.name == r.label() })
		if i < 0 {
			out = append(out, curve{name: r.label()})
			i = len(out) - 1
		}
		out[i].points = append(out[i].points, [2]float64{float64(r.Concurrency), r.Median(of)})
	}
	for _, c := range out {
		slices.SortFunc(c.points, func(a, b [2]float64) int { return int(a[0] - b[0]) })
	}
	return out
}

// maxCurves bounds the lines of a plot of percentiles.
const maxCurves = 8

// percentiles draws the latencies of the first round of each row over the number of nines.
func percentiles(rows []*Row) []curve {
	var out []curve
	for _, r := range rows[:min(len(rows), maxCurves)] {
		c := curve{name: fmt.Sprintf("%s, %d", r.label(), r.Concurrency)}
		for i, p := range suite.Percentiles {
			if p < 100 && i < len(r.Latency.Curve) {
				c.points = append(c.points, [2]float64{-math.Log10(1 - p/100), r.Latency.Curve[i]})
			}
		}
		out = append(out, c)
	}
	return out
}

// timeline adds up ten slices at a time.
func timeline(slices []int64) curve {
	const wide = 10
	var c curve
	for i := 0; i+wide <= len(slices); i += wide {
		sum := 0.0
		for _, n := range slices[i : i+wide] {
			sum += float64(n)
		}
		c.points = append(c.points, [2]float64{float64(i) * load.Slice.Seconds(), sum})
	}
	return c
}

// The size of a plot, and what its frame leaves free.
const (
	width, height            = 440.0, 270.0
	left, right, top, bottom = 58.0, 12.0, 30.0, 62.0
	legendLine               = 13.0
)

// colours are told apart by people who cannot tell red from green.
var colours = []string{"#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#000000", "#999999"}

// plot is a diagram of lines.
type plot struct {
	title, x   string
	curves     []curve
	logX, logY bool
}

// scale maps values to positions.
type scale struct {
	low, high, from, to float64
	log                 bool
}

func (s scale) at(v float64) float64 {
	low, high := s.low, s.high
	if s.log {
		v, low, high = math.Log(max(v, s.low)), math.Log(low), math.Log(high)
	}
	if high <= low {
		return (s.from + s.to) / 2
	}
	return s.from + (v-low)/(high-low)*(s.to-s.from)
}

// ticks are round values of a scale.
func (s scale) ticks() []float64 {
	var out []float64
	if s.log {
		for e := math.Floor(math.Log10(s.low)); e <= math.Ceil(math.Log10(s.high)); e++ {
			for _, m := range []float64{1, 2, 5} {
				if v := m * math.Pow(10, e); v >= s.low*0.999 && v <= s.high*1.001 {
					out = append(out, v)
				}
			}
		}
		for len(out) > 7 { // every other one
			var half []float64
			for i := 0; i < len(out); i += 2 {
				half = append(half, out[i])
			}
			out = half
		}
		return out
	}
	step := math.Pow(10, math.Floor(math.Log10(max(s.high-s.low, 1e-9)/2)))
	for _, m := range []float64{1, 2, 5, 10} {
		if (s.high-s.low)/(step*m) <= 6 {
			step *= m
			break
		}
	}
	for v := math.Ceil(s.low/step) * step; v <= s.high*1.0001; v += step {
		out = append(out, v)
	}
	return out
}

func (p plot) svg() template.HTML {
	x := scale{low: math.Inf(1), high: math.Inf(-1), from: left, to: width - right, log: p.logX}
	y := scale{low: math.Inf(1), high: math.Inf(-1), from: height - bottom, to: top, log: p.logY}
	for _, c := range p.curves {
		for _, q := range c.points {
			x.low, x.high = min(x.low, q[0]), max(x.high, q[0])
			if !p.logY || q[1] > 0 {
				y.low, y.high = min(y.low, q[1]), max(y.high, q[1])
			}
		}
	}
	if math.IsInf(x.low, 0) || math.IsInf(y.low, 0) {
		return ""
	}
	if !p.logY {
		y.low, y.high = 0, max(y.high*1.05, 1e-9)
	} else {
		y.low, y.high = y.low/1.2, y.high*1.2
	}
	var b strings.Builder
	frame(&b, p.title, p.x, len(p.curves))
	for _, v := range y.ticks() {
		fmt.Fprintf(&b, `<line class="grid" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/><text class="y" x="%g" y="%.1f">%s</text>`, left, width-right, y.at(v), y.at(v), left-6, y.at(v)+4, number(v))
	}
	for _, v := range p.xTicks(x) {
		fmt.Fprintf(&b, `<text class="x" x="%.1f" y="%g">%s</text>`, x.at(v), height-bottom+16, number(v))
	}
	for i, c := range p.curves {
		colour := colours[i%len(colours)]
		var points []string
		for _, q := range c.points {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x.at(q[0]), y.at(q[1])))
		}
		fmt.Fprintf(&b, `<polyline points="%s" style="stroke:%s"/>`, strings.Join(points, " "), colour)
		if len(c.points) < 30 {
			for _, q := range c.points {
				fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`, x.at(q[0]), y.at(q[1]), colour)
			}
		}
		if c.name != "" {
			legend(&b, i, colour, c.name)
		}
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // the only texts in it are escaped by frame and legend
}

// xTicks are the values of the first curve if they are few.
func (p plot) xTicks(x scale) []float64 {
	if c := p.curves[0]; p.logX && len(c.points) <= 8 {
		var out []float64
		for _, q := range c.points {
			out = append(out, q[0])
		}
		return out
	}
	return x.ticks()
}

// frame begins a plot with room for a legend of so many names.
func frame(b *strings.Builder, title, x string, names int) {
	high := height + legendLine*float64(max(0, (names+1)/2-2))
	fmt.Fprintf(b, `<svg viewBox="0 0 %g %g" width="%g" height="%g" role="img"><text class="title" x="%g" y="16">%s</text><text class="x" x="%g" y="%g">%s</text><line class="axis" x1="%g" x2="%g" y1="%g" y2="%g"/>`,
		width, high, width, high, left, template.HTMLEscapeString(title), (left+width-right)/2, height-bottom+31, template.HTMLEscapeString(x), left, width-right, height-bottom, height-bottom)
}

// legend names a curve: two to a line, below the plot.
func legend(b *strings.Builder, i int, colour, name string) {
	x, y := left-40+float64(i%2)*205, height-20+float64(i/2)*legendLine
	fmt.Fprintf(b, `<rect x="%g" y="%g" width="9" height="9" fill="%s"/><text class="legend" x="%g" y="%g">%s</text>`, x, y-8, colour, x+13, y, template.HTMLEscapeString(name))
}

// maxBars bounds the bars of a plot.
const maxBars = 12

// bars shows the CPU time of servers, worker and client on top of each other, one bar for each row.
func bars(title string, rows []*Row) template.HTML {
	rows = rows[:min(len(rows), maxBars)]
	parts := []struct {
		name string
		of   func(suite.Figures) float64
	}{
		{"servers", func(f suite.Figures) float64 { return f.ServerCPU }},
		{"worker", func(f suite.Figures) float64 { return f.WorkerCPU }},
		{"client", func(f suite.Figures) float64 { return f.ClientCPU }},
	}
	y := scale{low: 0, high: 1e-9, from: height - bottom, to: top}
	for _, r := range rows {
		sum := 0.0
		for _, p := range parts {
			sum += r.Median(p.of)
		}
		y.high = max(y.high, sum*1.05)
	}
	var b strings.Builder
	frame(&b, title, "nodes / under way / payload", len(parts))
	for _, v := range y.ticks() {
		fmt.Fprintf(&b, `<line class="grid" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/><text class="y" x="%g" y="%.1f">%s</text>`, left, width-right, y.at(v), y.at(v), left-6, y.at(v)+4, number(v))
	}
	each := (width - left - right) / float64(len(rows))
	for i, r := range rows {
		at, sum := left+each*float64(i), 0.0
		for j, p := range parts {
			v := r.Median(p.of)
			fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`, at+each*0.15, y.at(sum+v), each*0.7, y.at(sum)-y.at(sum+v), colours[j])
			sum += v
		}
		name := fmt.Sprintf("%d/%d/%s", r.Nodes, r.Concurrency, strings.ReplaceAll(Bytes(r.Payload), " ", ""))
		if r.Binary != "" { // a limit, or one side of a comparison: its last word tells it apart
			name = r.Binary[strings.LastIndexByte(r.Binary, ' ')+1:]
		}
		fmt.Fprintf(&b, `<text class="bar" x="%.1f" y="%g">%s</text>`, at+each/2, height-bottom+14, template.HTMLEscapeString(name))
	}
	for j, p := range parts {
		legend(&b, j, colours[j], p.name)
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // as in svg
}
