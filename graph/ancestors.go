package graph

import (
	"cmp"
	"slices"
)

// A query asks whether source comes before target; input is the position of the input that asks.
type query struct {
	source, target, input int32
}

// lacking returns the queries whose source does not come before their target, in their order. It passes over
// the part of the graph between sources and targets once for each 64 distinct sources, with one bit for each.
func (l *level) lacking(queries []query) []query {
	position := make([]int32, len(l.order))
	for i, n := range l.order {
		position[n] = int32(i)
	}
	byPlace := make([]int32, len(queries))
	for i := range byPlace {
		byPlace[i] = int32(i)
	}
	slices.SortFunc(byPlace, func(a, b int32) int {
		return cmp.Or(cmp.Compare(position[queries[a].source], position[queries[b].source]), cmp.Compare(a, b))
	})
	no := make([]bool, len(queries))
	reached := make([]uint64, len(l.order)) // by position: which sources of the block come before it
	bit := make([]uint8, len(l.order))      // by position: 1 + the bit of a source of the block
	for len(byPlace) > 0 {
		// A block: the queries of the next 64 sources.
		size, sources, end := 0, 0, int32(0)
		first := position[queries[byPlace[0]].source]
		for ; size < len(byPlace); size++ {
			q := queries[byPlace[size]]
			at := position[q.source]
			if bit[at] == 0 {
				if sources == 64 {
					break
				}
				sources++
				bit[at] = uint8(sources)
			}
			end = max(end, position[q.target])
		}
		for at := first; at <= end; at++ {
			var word uint64
			for _, p := range l.before(l.order[at]) {
				if from := position[p]; from >= first {
					word |= reached[from]
					if bit[from] > 0 {
						word |= 1 << (bit[from] - 1)
					}
				}
			}
			reached[at] = word
		}
		for _, i := range byPlace[:size] {
			q := queries[i]
			source, target := position[q.source], position[q.target]
			no[i] = target < source || reached[target]&(1<<(bit[source]-1)) == 0
		}
		for _, i := range byPlace[:size] {
			bit[position[queries[i].source]] = 0
		}
		byPlace = byPlace[size:]
	}
	var out []query
	for i, q := range queries {
		if no[i] {
			out = append(out, q)
		}
	}
	return out
}
