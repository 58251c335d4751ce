package reduction

import (
	"math/rand/v2"
	"reflect"
	"slices"
)

// twin is the dumb twin: the definitions of the papers over maps, with reachability by Warshall's algorithm
// and every quantifier a loop over all nodes. It shares no code with the package but the plain data types.
type twin struct {
	nodes []NodeID // ascending
	at    map[NodeID]int
	reach []row               // reach[i] holds j if j comes after i
	pre   map[NodeID][]NodeID // direct predecessors, ascending
	above map[NodeID][]NodeID // all ancestors, ascending
}

type row []uint64

func (r row) has(i int) bool { return r[i/64]>>(i%64)&1 == 1 }
func (r row) add(i int)      { r[i/64] |= 1 << (i % 64) }

func newTwin(nodes []NodeID, edges []Edge) *twin {
	w := &twin{nodes: slices.Sorted(slices.Values(nodes)), at: map[NodeID]int{}, pre: map[NodeID][]NodeID{}, above: map[NodeID][]NodeID{}}
	for i, id := range w.nodes {
		w.at[id] = i
		w.reach = append(w.reach, make(row, len(nodes)/64+1))
	}
	for _, e := range edges {
		if !w.reaches(e.From, e.To) {
			w.reach[w.at[e.From]].add(w.at[e.To])
			w.pre[e.To] = append(w.pre[e.To], e.From)
		}
	}
	for k := range nodes {
		for i := range nodes {
			if w.reach[i].has(k) {
				for word, bits := range w.reach[k] {
					w.reach[i][word] |= bits
				}
			}
		}
	}
	for j, id := range w.nodes {
		slices.Sort(w.pre[id])
		for i, a := range w.nodes {
			if w.reach[i].has(j) {
				w.above[id] = append(w.above[id], a)
			}
		}
	}
	return w
}

func (w *twin) reaches(a, b NodeID) bool { return w.reach[w.at[a]].has(w.at[b]) }

func (w *twin) ancestors(id NodeID) []NodeID { return w.above[id] }

func (w *twin) predecessors(id NodeID) []NodeID { return w.pre[id] }

func (w *twin) acyclic() bool {
	return !slices.ContainsFunc(w.nodes, func(id NodeID) bool { return w.reaches(id, id) })
}

func copyOf(s State) State {
	c := State{map[NodeID]Status{}, map[NodeID][]byte{}}
	for id, at := range s.Statuses {
		c.Statuses[id] = at
	}
	for id, out := range s.Outputs {
		c.Outputs[id] = out
	}
	return c
}

// applyNodeFact of staged reduction, 3.3, word by word.
func (w *twin) apply(s State, results ...Result) State {
	s = copyOf(s)
	for _, r := range results {
		switch o := r.Outcome.(type) {
		case Succeeded:
			s.Statuses[r.Node] = Status{Kind: StatusCompleted}
			s.Outputs[r.Node] = o.Output
		case Skipped:
			s.Statuses[r.Node] = Status{Kind: StatusSkipped}
		case SuspendedOn:
			s.Statuses[r.Node] = Status{Kind: StatusWaiting, Signal: o.Signal}
		case NodeFailed, NodeTimedOut:
			s.Statuses[r.Node] = Status{Kind: StatusFailed}
		case NodeCancelled, NodeShutdown, NodeRunCancelled:
			s.Statuses[r.Node] = Status{Kind: StatusPending}
		}
	}
	return s
}

// propagateFailure: all reachable Pending and Waiting descendants of Failed nodes are Failed.
func (w *twin) close(s State) State {
	out := copyOf(s)
	for _, id := range w.nodes {
		if k := s.Statuses[id].Kind; k == StatusPending || k == StatusWaiting {
			for _, a := range w.ancestors(id) {
				if s.Statuses[a].Kind == StatusFailed {
					out.Statuses[id] = Status{Kind: StatusFailed}
				}
			}
		}
	}
	return out
}

// resetRunningToPending.
func (w *twin) normalize(s State) State {
	out := copyOf(s)
	for id, at := range s.Statuses {
		if at.Kind == StatusRunning {
			out.Statuses[id] = Status{Kind: StatusPending}
		}
	}
	return out
}

func done(s Status) bool { return s.Kind == StatusCompleted || s.Kind == StatusSkipped }

func (w *twin) allDone(s State, ids []NodeID) bool {
	for _, id := range ids {
		if !done(s.Statuses[id]) {
			return false
		}
	}
	return true
}

// readyNodes of staged reduction, 3.1.
func (w *twin) ready(s State) []NodeID {
	var out []NodeID
	for _, id := range w.nodes {
		if s.Statuses[id].Kind == StatusPending && w.allDone(s, w.predecessors(id)) {
			out = append(out, id)
		}
	}
	return out
}

// classifyGraphState of staged reduction, 3.5, on the normalised view.
func (w *twin) classify(s State) Step {
	s = w.close(w.normalize(s))
	if ready := w.ready(s); len(ready) > 0 {
		return Progressing{ready}
	}
	allSettled, anyFailed := true, false
	var waits []Wait
	for _, id := range w.nodes {
		at := s.Statuses[id]
		allSettled = allSettled && (done(at) || at.Kind == StatusFailed)
		anyFailed = anyFailed || at.Kind == StatusFailed
		if at.Kind == StatusWaiting {
			waits = append(waits, Wait{id, at.Signal})
		}
	}
	switch {
	case allSettled:
		return Settled{Failed: anyFailed}
	case len(waits) > 0:
		return Suspended{waits}
	}
	return Stuck{w.diagnose(s)}
}

func (w *twin) diagnose(s State) Diagnosis {
	var out Diagnosis
	for _, id := range w.nodes {
		if at := s.Statuses[id]; !done(at) && at.Kind != StatusFailed {
			b := Blocked{Node: id, Status: at}
			for _, p := range w.predecessors(id) {
				if !done(s.Statuses[p]) {
					b.By = append(b.By, Blocker{p, s.Statuses[p]})
				}
			}
			out = append(out, b)
		}
	}
	return out
}

// wrong says which items of Definition 1 fail (index 1 to 6), and, at index 0, whether the causal history of
// Proposition 1 does.
func (w *twin) wrong(s State, frontier []NodeID) [7]bool {
	var bad [7]bool
	node := func(id NodeID) bool { return slices.Contains(w.nodes, id) }
	for _, id := range w.nodes {
		at, ok := s.Statuses[id]
		if !ok || at.Kind < StatusPending || at.Kind > StatusWaiting || (at.Signal == "") == (at.Kind == StatusWaiting) {
			bad[1] = true
		}
		if at.Kind == StatusRunning {
			bad[4] = true
		}
		failedBefore := slices.ContainsFunc(w.ancestors(id), func(a NodeID) bool { return s.Statuses[a].Kind == StatusFailed })
		if failedBefore && (at.Kind == StatusPending || at.Kind == StatusWaiting) {
			bad[5] = true
		}
		begun := at.Kind >= StatusRunning && at.Kind <= StatusWaiting
		if begun && !w.allDone(s, w.predecessors(id)) && !(at.Kind == StatusFailed && failedBefore) {
			bad[0] = true
		}
	}
	for id, at := range s.Statuses {
		bad[1] = bad[1] || !node(id)
		if _, has := s.Outputs[id]; at.Kind == StatusCompleted && !has {
			bad[3] = true
		}
	}
	for id := range s.Outputs {
		bad[2] = bad[2] || !node(id)
		bad[3] = bad[3] || s.Statuses[id].Kind != StatusCompleted
	}
	bad[6] = !slices.Equal(slices.Sorted(slices.Values(frontier)), w.ready(s))
	return bad
}

// refusal is the rule by which a result is not taken, in words of the documentation; "" if it is.
func (w *twin) refusal(s State, r Result) string {
	at, known := s.Statuses[r.Node]
	forward, isForward := r.Outcome.(Forward)
	one := slices.ContainsFunc(allOutcomes, func(o Outcome) bool { return reflect.TypeOf(o) == reflect.TypeOf(r.Outcome) })
	switch {
	case !slices.Contains(w.nodes, r.Node):
		return RuleKnownNode
	case !one:
		return RuleOutcome
	case forward == SuspendedOn{}:
		return RuleSignal
	case !known:
		return RuleKnownNode
	case done(at), at.Kind == StatusFailed:
		return RuleOpen
	case at.Kind == StatusWaiting && isForward && forward.Kind() != OutcomeNodeFailed && forward.Kind() != OutcomeNodeTimedOut:
		return RuleWaiting
	case !w.allDone(s, w.predecessors(r.Node)):
		return RuleReady
	}
	return ""
}

// allDAGs calls f for every graph of n labelled nodes that has no cycle: 1, 1, 3, 25, 543 of them.
func allDAGs(n int, f func(nodes []NodeID, edges []Edge)) {
	allDigraphs(n, false, func(nodes []NodeID, edges []Edge) {
		if newTwin(nodes, edges).acyclic() {
			f(nodes, edges)
		}
	})
}

// allDigraphs calls f for every directed graph of n labelled nodes, with edges from nodes to themselves or
// without.
func allDigraphs(n int, loops bool, f func(nodes []NodeID, edges []Edge)) {
	nodes := []NodeID{"a", "b", "c", "d", "e"}[:n]
	var possible []Edge
	for _, x := range nodes {
		for _, y := range nodes {
			if x != y || loops {
				possible = append(possible, Edge{x, y})
			}
		}
	}
	for chosen := range 1 << len(possible) {
		var edges []Edge
		for i, e := range possible {
			if chosen>>i&1 == 1 {
				edges = append(edges, e)
			}
		}
		f(nodes, edges)
	}
}

// assignments calls f for every way to give each of n places one of m values. The slice is reused.
func assignments(n, m int, f func(value []int)) {
	value := make([]int, n)
	for {
		f(value)
		i := 0
		for i < n && value[i] == m-1 {
			value[i] = 0
			i++
		}
		if i == n {
			return
		}
		value[i]++
	}
}

func permuted[T any](rng *rand.Rand, in []T) []T {
	out := slices.Clone(in)
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}
