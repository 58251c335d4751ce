package draw

import (
	"cmp"
	"slices"
)

// Sizes in pixels.
const (
	boxHeight  = 44
	lineHeight = 15 // of a third line in a box
	passSize   = 6  // of an edge that passes a column, across it
)

// An item is an element of a column: a node, or the slot through which the edges of a node pass. Where time
// goes down the page a column lies on its side, and its heights are widths.
type item struct {
	node   int // the node, or the one whose edges pass
	pass   bool
	size   int   // what it takes of its column, even
	before []int // the items in the column before that are tied to this one
	after  []int
	index  int // within its column
	y      int // the middle
}

// A layout holds the positions of all items.
type layout struct {
	*dag
	gap     int    // between the items of one column
	items   []item // the first are the nodes
	columns [][]int
	passes  [][]int // by node: the items its edges pass, by column
}

// arrange makes the layout of a graph whose nodes have the given heights in their columns.
func arrange(d *dag, sizes []int, gap int) *layout {
	l := &layout{dag: d, gap: gap, columns: make([][]int, d.layers), passes: make([][]int, len(d.nodes))}
	for n := range d.nodes {
		l.items = append(l.items, item{node: n, size: sizes[n]})
		l.columns[d.layer[n]] = append(l.columns[d.layer[n]], n)
	}
	tie := func(a, b int) {
		if !slices.Contains(l.items[a].after, b) {
			l.items[a].after = append(l.items[a].after, b)
			l.items[b].before = append(l.items[b].before, a)
		}
	}
	for n := range d.nodes {
		last := n
		end := d.layer[n]
		for _, s := range d.succ[n] {
			end = max(end, d.layer[s])
		}
		for column := d.layer[n] + 1; column < end; column++ {
			pass := len(l.items)
			l.items = append(l.items, item{node: n, pass: true, size: passSize})
			l.columns[column] = append(l.columns[column], pass)
			l.passes[n] = append(l.passes[n], pass)
			tie(last, pass)
			last = pass
		}
		for _, s := range d.succ[n] {
			tie(l.leaves(n, s), s)
		}
	}
	l.number()
	l.order()
	l.place()
	return l
}

// leaves is the item at which the last part of the edge from n to s begins.
func (l *layout) leaves(n, s int) int {
	if passed := l.layer[s] - l.layer[n] - 1; passed > 0 {
		return l.passes[n][passed-1]
	}
	return n
}

func (l *layout) number() {
	for _, column := range l.columns {
		for i, it := range column {
			l.items[it].index = i
		}
	}
}

// order sorts the columns by sweeps to and fro, and keeps the order with the fewest crossings.
func (l *layout) order() {
	best, fewest := l.copyColumns(), l.crossings()
	for sweep := 0; sweep < 12 && fewest > 0; sweep++ {
		for i := range l.columns {
			column := l.columns[i]
			neighbours := func(it int) []int { return l.items[it].before }
			if sweep%2 == 1 {
				column = l.columns[len(l.columns)-1-i]
				neighbours = func(it int) []int { return l.items[it].after }
			}
			l.sortColumn(column, neighbours)
		}
		if n := l.crossings(); n < fewest {
			best, fewest = l.copyColumns(), n
		}
	}
	l.columns = best
	l.number()
}

func (l *layout) copyColumns() [][]int {
	out := make([][]int, len(l.columns))
	for i, column := range l.columns {
		out[i] = slices.Clone(column)
	}
	return out
}

// sortColumn sorts by the mean place of the neighbours; an item without neighbours keeps to where it is.
func (l *layout) sortColumn(column []int, neighbours func(int) []int) {
	type mean struct{ sum, count int }
	means := make([]mean, len(l.items))
	for _, it := range column {
		m := mean{l.items[it].index, 1}
		if ns := neighbours(it); len(ns) > 0 {
			m = mean{0, len(ns)}
			for _, n := range ns {
				m.sum += l.items[n].index
			}
		}
		means[it] = m
	}
	slices.SortStableFunc(column, func(a, b int) int {
		return cmp.Compare(means[a].sum*means[b].count, means[b].sum*means[a].count)
	})
	for i, it := range column {
		l.items[it].index = i
	}
}

// crossings counts the pairs of edges between neighbouring columns that cross.
func (l *layout) crossings() int {
	total := 0
	for c := 0; c+1 < len(l.columns); c++ {
		var ends []int // where the edges end, in the order of where they begin
		for _, it := range l.columns[c] {
			from := len(ends)
			for _, s := range l.items[it].after {
				ends = append(ends, l.items[s].index)
			}
			slices.Sort(ends[from:])
		}
		// How many of those before end further on: a tree of partial sums.
		sums := make([]int, len(l.columns[c+1])+1)
		for seen, end := range ends {
			upTo := 0
			for i := end + 1; i > 0; i -= i & -i {
				upTo += sums[i]
			}
			total += seen - upTo
			for i := end + 1; i < len(sums); i += i & -i {
				sums[i]++
			}
		}
	}
	return total
}

// place gives each item its height on the page: towards its neighbours, in the order of its column.
func (l *layout) place() {
	for _, column := range l.columns {
		y := 0
		for _, it := range column {
			y += l.items[it].size / 2
			l.items[it].y = y
			y += l.items[it].size/2 + l.gap
		}
	}
	for sweep := range 12 {
		for i := range l.columns {
			if sweep%2 == 0 {
				l.settle(l.columns[i], func(it *item) []int { return it.before })
			} else {
				l.settle(l.columns[len(l.columns)-1-i], func(it *item) []int { return it.after })
			}
		}
	}
	top := 0
	for i := range l.items {
		top = min(top, l.items[i].y-l.items[i].size/2)
	}
	least := -top
	if top == 0 && len(l.items) > 0 {
		least = -(l.items[0].y - l.items[0].size/2)
		for i := range l.items {
			least = max(least, -(l.items[i].y - l.items[i].size/2))
		}
	}
	for i := range l.items {
		l.items[i].y += least
	}
}

// settle moves a column towards its neighbours: each item as near to their mean as the distances allow, where
// items that push each other share the difference.
func (l *layout) settle(column []int, neighbours func(*item) []int) {
	type block struct{ sum, weight, items int }
	var blocks []block
	offset := 0
	offsets := make([]int, len(column))
	for i, n := range column {
		it := &l.items[n]
		if i > 0 {
			offset += l.items[column[i-1]].size/2 + l.gap + it.size/2
		}
		offsets[i] = offset
		want, weight := it.y, 1
		if ns := neighbours(it); len(ns) > 0 {
			sum := 0
			for _, m := range ns {
				sum += l.items[m].y
			}
			want, weight = divide(sum, len(ns)), 2
			if it.pass {
				weight = 6 // long edges are straight
			}
		}
		blocks = append(blocks, block{(want - offset) * weight, weight, 1})
		for len(blocks) > 1 {
			a, b := blocks[len(blocks)-2], blocks[len(blocks)-1]
			if divide(a.sum, a.weight) <= divide(b.sum, b.weight) {
				break
			}
			blocks = append(blocks[:len(blocks)-2], block{a.sum + b.sum, a.weight + b.weight, a.items + b.items})
		}
	}
	i := 0
	for _, b := range blocks {
		for range b.items {
			l.items[column[i]].y = divide(b.sum, b.weight) + offsets[i]
			i++
		}
	}
}

// divide rounds down, also below zero, so that what is between two neighbours stays there.
func divide(a, b int) int {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
