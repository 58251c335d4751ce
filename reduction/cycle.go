package reduction

import "slices"

// sortTopologically fills r.order and returns nil; or, if a cycle makes that impossible, returns one.
func (r *Relation) sortTopologically() []NodeID {
	missing := make([]int32, len(r.ids))
	r.order = make([]int32, 0, len(r.ids))
	for n := range missing {
		missing[n] = int32(len(r.pred.of(int32(n))))
		if missing[n] == 0 {
			r.order = append(r.order, int32(n))
		}
	}
	for i := 0; i < len(r.order); i++ {
		for _, m := range r.succ.of(r.order[i]) {
			if missing[m]--; missing[m] == 0 {
				r.order = append(r.order, m)
			}
		}
	}
	if len(r.order) == len(r.ids) {
		return nil
	}
	return r.cycle(missing)
}

// cycle names one cycle among the nodes that still miss a predecessor. Each of them has such a predecessor,
// so walking from one to the next must come back to a node it has been at; what lies between the two visits
// is a cycle, met backwards.
func (r *Relation) cycle(missing []int32) []NodeID {
	n := int32(slices.IndexFunc(missing, func(m int32) bool { return m > 0 }))
	visited := make([]int, len(r.ids)) // when, from 1
	var walk []int32
	for visited[n] == 0 {
		walk = append(walk, n)
		visited[n] = len(walk)
		before := r.pred.of(n)
		n = before[slices.IndexFunc(before, func(p int32) bool { return missing[p] > 0 })]
	}
	walk = walk[visited[n]-1:]
	slices.Reverse(walk)
	least := slices.Index(walk, slices.Min(walk))
	return r.names(slices.Concat(walk[least:], walk[:least]))
}
