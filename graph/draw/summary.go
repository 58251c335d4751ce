package draw

import (
	"fmt"
	"strconv"
)

const (
	maxRows   = 60
	rowHeight = 34
	barHeight = 20
	barWidth  = 480
	maxNamed  = 3 // failed nodes named in a row
)

// summary draws a row for each layer, or for several where there are too many.
func (p *picture) summary(d *dag, states []string) {
	each := (d.layers + maxRows - 1) / maxRows
	rows := (d.layers + each - 1) / each
	members := make([][]int, rows)
	most := 1
	for n := range d.nodes {
		row := d.layer[n] / each
		members[row] = append(members[row], n)
		most = max(most, len(members[row]))
	}
	label := 0
	for row := range members {
		label = max(label, width(rowName(row, each, d.layers), 82))
	}
	bar := margin + label + 20
	for row, nodes := range members {
		y := p.top + row*rowHeight
		if row > 0 {
			p.put(`<path class="edge" marker-end="url(#arrow)" d="M%d %dV%d"/>`, bar+8, y-rowHeight+barHeight, y-2)
		}
		p.put(`<g class="layer"><text x="%d" y="%d" class="id">%s</text>`, margin, y+15, rowName(row, each, d.layers))
		p.row(d, nodes, states, bar, y, max(barWidth*len(nodes)/most, 16))
		p.put(`</g>`)
		p.bottom = y + barHeight
	}
}

// rowName names the layers of a row, from 1.
func rowName(row, each, layers int) string {
	first, last := row*each+1, min((row+1)*each, layers)
	if first == last {
		return "layer " + strconv.Itoa(first)
	}
	return fmt.Sprintf("layers %d–%d", first, last)
}

// row draws one bar, divided by state, with its counts.
func (p *picture) row(d *dag, nodes []int, states []string, x, y, wide int) {
	counts := make(map[string]int)
	named, failed := "", 0
	for _, n := range nodes {
		s := styleOf(states[n])
		if s.fill == plain.fill {
			s.state = "" // what has no colour is counted together
		}
		counts[s.state]++
		if s.state == "failed" {
			if failed++; failed <= maxNamed {
				named = join(", ", named, cut(d.nodes[n].GetId(), maxID))
			}
		}
	}
	text := count(len(nodes), "node")
	at, done := x, 0
	for _, s := range append(styles[:len(styles):len(styles)], plain) {
		n := counts[s.state]
		if n == 0 {
			continue
		}
		done += n
		end := x + wide*done/len(nodes)
		p.put(`<rect x="%d" y="%d" width="%d" height="%d" fill="%s" stroke="%s"/>`, at, y, max(end-at, 1), barHeight, s.fill, s.stroke)
		at = end
		if s.state != "" {
			text += fmt.Sprintf(" · %d %s", n, s.state)
		}
	}
	if failed > maxNamed {
		named += ", …"
	}
	if named != "" {
		text += ": " + named
	}
	p.put(`<text x="%d" y="%d" class="kind">%s</text>`, x+wide+12, y+14, escape(text))
	p.right = max(p.right, x+wide+12+width(text, 66))
}

// count is a number of things in words.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}
