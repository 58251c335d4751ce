package graph

import (
	"slices"
)

// sort fills l.order and returns nil; or, if there is a cycle, returns one: each node comes after the one
// before it, the first after the last, and the first is the earliest of the graph.
func (l *level) sort() []int32 {
	count := len(l.nodes)
	missing := make([]int32, count)
	start := make([]int32, count+1) // successors of n: succ[start[n]:start[n+1]]
	for n := range int32(count) {
		missing[n] = int32(len(l.before(n)))
		for _, p := range l.before(n) {
			start[p+1]++
		}
	}
	for n := range count {
		start[n+1] += start[n]
	}
	succ := make([]int32, len(l.pred))
	next := slices.Clone(start[:count])
	for n := range int32(count) {
		for _, p := range l.before(n) {
			succ[next[p]] = n
			next[p]++
		}
	}
	order := make([]int32, 0, count)
	for n := range int32(count) {
		if missing[n] == 0 {
			order = append(order, n)
		}
	}
	for i := 0; i < len(order); i++ {
		for _, n := range succ[start[order[i]]:start[order[i]+1]] {
			if missing[n]--; missing[n] == 0 {
				order = append(order, n)
			}
		}
	}
	if len(order) < count {
		return l.findCycle(missing)
	}
	l.order = order
	return nil
}

// findCycle walks backwards among the nodes that still miss a predecessor. Each has such a predecessor, so
// the walk must come back to where it has been.
func (l *level) findCycle(missing []int32) []int32 {
	waits := func(n int32) bool { return missing[n] > 0 }
	n := int32(slices.IndexFunc(missing, func(m int32) bool { return m > 0 }))
	visit := make([]int, len(l.nodes)) // when it was visited, from 1
	var walk []int32
	for visit[n] == 0 {
		walk = append(walk, n)
		visit[n] = len(walk)
		before := l.before(n)
		n = before[slices.IndexFunc(before, waits)]
	}
	walk = walk[visit[n]-1:]
	slices.Reverse(walk)
	least := slices.Index(walk, slices.Min(walk))
	return slices.Concat(walk[least:], walk[:least])
}
