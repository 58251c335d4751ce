package reduction

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"perdure/internal/testkit"
)

// cases is how often a property was checked.
type cases int

// property checks f and says how often it did.
func property(t *testing.T, f func(t *rapid.T)) cases {
	t.Helper()
	testkit.Checks(t, testkit.Choose(2000, 700, 2000)) // of which -short tries a fifth
	n := cases(0)
	rapid.Check(t, func(rt *rapid.T) {
		n++
		f(rt)
	})
	t.Logf("%d cases", n)
	return n
}

// saw says how often something happened, and fails if that is rarer than it should be in a thousand cases: a
// property of what never happens has not been tested. Of the few cases of -short a tenth of that suffices, since
// what is drawn there varies more than what the rules say.
func (n cases) saw(t *testing.T, what string, times, inThousand int) {
	t.Helper()
	t.Logf("%7d %s", times, what)
	least := inThousand * int(n) / 1000
	if n < 2000 {
		least = max(1, least/10)
	}
	if n >= 400 && times < least {
		t.Errorf("%s: only %d times in %d cases, not %d", what, times, n, least)
	}
}

// dag is a random graph with its dumb twin and a source of chance for whatever else the test needs. The
// source is seeded by rapid, so a failure is reproduced by rapid's own seed.
type dag struct {
	*Relation
	w     *twin
	rng   *rand.Rand
	shape string
}

// shapes make edges (i, j) with i < j among n nodes.
var shapes = []struct {
	name string
	max  int // nodes; 0 is no bound
	make func(n int, rng *rand.Rand, edge func(i, j int))
}{
	{"edgeless", 0, func(int, *rand.Rand, func(i, j int)) {}},
	{"path", 0, func(n int, _ *rand.Rand, edge func(i, j int)) {
		for i := 1; i < n; i++ {
			edge(i-1, i)
		}
	}},
	{"star", 0, func(n int, _ *rand.Rand, edge func(i, j int)) {
		for i := 1; i < n; i++ {
			edge(0, i)
		}
	}},
	{"fan-in", 0, func(n int, _ *rand.Rand, edge func(i, j int)) {
		for i := range n - 1 {
			edge(i, n-1)
		}
	}},
	{"clique", 40, func(n int, _ *rand.Rand, edge func(i, j int)) {
		for j := range n {
			for i := range j {
				edge(i, j)
			}
		}
	}},
	{"layered", 0, func(n int, rng *rand.Rand, edge func(i, j int)) {
		width := 1 + rng.IntN(6)
		for j := width; j < n; j++ {
			for i := (j/width - 1) * width; i < j/width*width; i++ {
				edge(i, j)
			}
		}
	}},
	{"out-tree", 0, func(n int, rng *rand.Rand, edge func(i, j int)) {
		for j := 1; j < n; j++ {
			edge(rng.IntN(j), j)
		}
	}},
	{"in-tree", 0, func(n int, rng *rand.Rand, edge func(i, j int)) {
		for i := range n - 1 {
			edge(i, i+1+rng.IntN(n-1-i))
		}
	}},
	{"diamonds", 0, func(n int, _ *rand.Rand, edge func(i, j int)) {
		for i := 0; i+3 < n; i += 3 {
			edge(i, i+1)
			edge(i, i+2)
			edge(i+1, i+3)
			edge(i+2, i+3)
		}
	}},
	{"sparse", 0, func(n int, rng *rand.Rand, edge func(i, j int)) {
		for range 2 * n {
			if i, j := rng.IntN(n), rng.IntN(n); i < j {
				edge(i, j)
			}
		}
	}},
	{"dense", 40, func(n int, rng *rand.Rand, edge func(i, j int)) {
		for j := range n {
			for i := range j {
				if rng.IntN(2) == 0 {
					edge(i, j)
				}
			}
		}
	}},
	{"components", 0, func(n int, rng *rand.Rand, edge func(i, j int)) {
		for j := 1; j < n; j++ {
			if i := rng.IntN(j); i%3 == j%3 {
				edge(i, j)
			}
		}
	}},
}

// drawDAG draws a graph of up to 300 nodes, mostly small. The order of the names has nothing to do with the
// order of the nodes. rapid draws only the seed, because its own numbers prefer the small ones; graphs small
// enough to be looked at are covered without chance, by the exhaustive tests.
func drawDAG(t *rapid.T) dag {
	var seed [32]byte
	for i := range 4 {
		binary.LittleEndian.PutUint64(seed[8*i:], rapid.Uint64().Draw(t, "seed"))
	}
	rng := rand.New(rand.NewChaCha8(seed))
	shape := shapes[rng.IntN(len(shapes))]
	most := 12
	switch size := rng.IntN(100); {
	case size >= 97:
		most = 300
	case size >= 80:
		most = 40
	}
	if shape.max > 0 {
		most = min(most, shape.max)
	}
	n := 1 + rng.IntN(most)
	place := rng.Perm(n)
	nodes := make([]NodeID, n)
	for i := range nodes {
		nodes[i] = NodeID(fmt.Sprintf("n%03d", place[i]))
	}
	var edges []Edge
	shape.make(n, rng, func(i, j int) { edges = append(edges, Edge{nodes[i], nodes[j]}) })
	r, err := Declare(nodes, edges)
	if err != nil {
		t.Fatalf("%s of %d nodes: %v", shape.name, n, err)
	}
	return dag{r, newTwin(nodes, edges), rng, shape.name}
}

func (d dag) chance(percent int) bool { return d.rng.IntN(100) < percent }

func (d dag) output() []byte {
	if n := d.rng.IntN(3); n > 0 {
		return []byte(fmt.Sprint(d.rng.IntN(1000)))[:n-1]
	}
	return nil
}

func (d dag) signal() string { return []string{"go", "stop", "x"}[d.rng.IntN(3)] }

func (d dag) outcome() Outcome {
	switch d.rng.IntN(16) {
	case 0, 1:
		return Skipped{}
	case 2, 3:
		return SuspendedOn{d.signal()}
	case 4:
		return NodeFailed{d.output()}
	case 5:
		return NodeTimedOut{}
	case 6:
		return NodeCancelled{}
	case 7:
		return NodeShutdown{}
	case 8:
		return NodeRunCancelled{}
	}
	return Succeeded{d.output()}
}

func (d dag) status(k StatusKind) Status {
	if k == StatusWaiting {
		return Waiting(d.signal())
	}
	return Status{Kind: k}
}

// anyState draws statuses without regard to edges; with holes, some nodes have none.
func (d dag) anyState(holes bool) State {
	s := State{map[NodeID]Status{}, map[NodeID][]byte{}}
	// A state of many failures closes to nothing but failures, so their share varies.
	failures := d.rng.IntN(30)
	for _, id := range d.ids {
		k := StatusKind(1 + d.rng.IntN(6))
		switch {
		case k == StatusFailed && !d.chance(failures):
			k = StatusPending
		case holes && d.chance(10):
			continue
		}
		s.Statuses[id] = d.status(k)
		if k == StatusCompleted {
			s.Outputs[id] = d.output()
		}
	}
	return s
}

// causalState draws a state that accumulation may leave: what is before a node allows its status. If it is
// to be closed, all consequences of failure are drawn; otherwise some.
func (d dag) causalState(closed bool) State {
	s := State{map[NodeID]Status{}, map[NodeID][]byte{}}
	progress, failures := 30+d.rng.IntN(70), d.rng.IntN(20)
	for _, id := range d.Topological() {
		k := StatusPending
		ready, failed := true, false
		for _, p := range d.Predecessors(id) {
			ready = ready && s.Statuses[p].Kind.satisfies()
		}
		for _, a := range d.w.ancestors(id) {
			failed = failed || s.Statuses[a].Kind == StatusFailed
		}
		switch {
		case ready && d.chance(failures):
			k = StatusFailed
		case ready && d.chance(progress):
			k = []StatusKind{StatusCompleted, StatusCompleted, StatusCompleted, StatusSkipped, StatusRunning, StatusWaiting}[d.rng.IntN(6)]
		case failed && (closed || d.chance(50)):
			k = StatusFailed
		}
		s.Statuses[id] = d.status(k)
		if k == StatusCompleted {
			s.Outputs[id] = d.output()
		}
	}
	return s
}

// results draws a frontier result set: outcomes for some of the nodes, in random order.
func (d dag) results(frontier []NodeID) []Result {
	var out []Result
	for _, i := range d.rng.Perm(len(frontier)) {
		if d.chance(75) {
			out = append(out, Result{frontier[i], d.outcome()})
		}
	}
	return out
}

func (d dag) shuffled(rs []Result) []Result {
	out := make([]Result, len(rs))
	for i, j := range d.rng.Perm(len(rs)) {
		out[i] = rs[j]
	}
	return out
}
