package draw

import (
	perdurev1 "perdure/api/perdure/v1"
)

// A dag is what is drawn of a graph: nodes by position, and edges that go to a later layer.
type dag struct {
	nodes  []*perdurev1.GraphNode
	pred   [][]int
	succ   [][]int
	layer  []int
	layers int
}

// newDag reads a graph. Of nodes with one id the first is drawn; edges from unknown nodes, and those that
// lead back in a cycle, are left out.
func newDag(g *perdurev1.Graph) *dag {
	d := &dag{}
	index := make(map[string]int)
	for _, n := range g.GetNodes() {
		if _, twice := index[n.GetId()]; !twice {
			index[n.GetId()] = len(d.nodes)
			d.nodes = append(d.nodes, n)
		}
	}
	d.pred, d.succ = make([][]int, len(d.nodes)), make([][]int, len(d.nodes))
	met := make([]int, len(d.nodes)) // met[p] == n+1: the edge from p to n is there
	for n, node := range d.nodes {
		for _, id := range node.GetAfter() {
			if p, ok := index[id]; ok && p != n && met[p] != n+1 {
				met[p] = n + 1
				d.pred[n] = append(d.pred[n], p)
				d.succ[p] = append(d.succ[p], n)
			}
		}
	}
	d.assign()
	for n := range d.nodes {
		forward := func(from []int, ok func(int) bool) []int {
			var out []int
			for _, m := range from {
				if ok(m) {
					out = append(out, m)
				}
			}
			return out
		}
		d.pred[n] = forward(d.pred[n], func(p int) bool { return d.layer[p] < d.layer[n] })
		d.succ[n] = forward(d.succ[n], func(s int) bool { return d.layer[s] > d.layer[n] })
	}
	return d
}

// assign gives each node the layer behind its last predecessor. Where a cycle prevents this, the first node
// left comes first.
func (d *dag) assign() {
	d.layer = make([]int, len(d.nodes))
	missing := make([]int, len(d.nodes))
	done := make([]bool, len(d.nodes))
	var queue []int
	for n := range d.nodes {
		if missing[n] = len(d.pred[n]); missing[n] == 0 {
			queue = append(queue, n)
		}
	}
	next := 0
	for i := 0; i < len(d.nodes); i++ {
		for i == len(queue) {
			if missing[next] > 0 && !done[next] {
				missing[next] = 0
				queue = append(queue, next)
			}
			next++
		}
		n := queue[i]
		done[n] = true
		for _, p := range d.pred[n] {
			if done[p] {
				d.layer[n] = max(d.layer[n], d.layer[p]+1)
			}
		}
		for _, s := range d.succ[n] {
			if missing[s]--; missing[s] == 0 && !done[s] {
				queue = append(queue, s)
			}
		}
	}
	for n := range d.nodes {
		if len(d.pred[n]) > 0 || len(d.succ[n]) == 0 {
			continue
		}
		first := d.layer[d.succ[n][0]]
		for _, s := range d.succ[n] {
			first = min(first, d.layer[s])
		}
		d.layer[n] = max(first-1, 0)
	}
	for _, l := range d.layer {
		d.layers = max(d.layers, l+1)
	}
}
