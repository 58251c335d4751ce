package machine

import (
	"fmt"
	"math/rand"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
)

// layeredGraph has layers of width nodes; each node comes after some of the layer before it, or after all.
func layeredGraph(nodes, width, before int) *perdurev1.Graph {
	rng := rand.New(rand.NewSource(1))
	g := &perdurev1.Graph{Name: "layers"}
	for i := range nodes {
		n := &perdurev1.GraphNode{Id: fmt.Sprintf("node-%05d", i), Kind: &perdurev1.GraphNode_Function{Function: &perdurev1.FunctionNode{Function: "f"}}}
		if layer := i / width; layer > 0 {
			picked := rng.Perm(width)
			for _, j := range picked[:min(before, width)] {
				n.After = append(n.After, fmt.Sprintf("node-%05d", (layer-1)*width+j))
			}
			n.Inputs = []*perdurev1.NodeInput{{Name: "x", Source: &perdurev1.NodeInput_Node{Node: n.After[0]}}}
		}
		g.Nodes = append(g.Nodes, n)
	}
	return g
}

// BenchmarkGraphNode is one node of a graph: its attempt is taken in the entry that makes it pending, and ends
// in the next. The time per node must not depend on the size of the graph.
func BenchmarkGraphNode(b *testing.B) {
	for _, c := range []struct{ nodes, before int }{{1000, 10}, {10_000, 10}, {1000, 100}, {10_000, 100}} {
		b.Run(fmt.Sprintf("%d nodes after %d", c.nodes, c.before), func(b *testing.B) {
			g := layeredGraph(c.nodes, 100, c.before)
			p := newBenchPart(b)
			grants := []*commandv1.Grant{grant("w", 200, "f")}
			grants[0].LeaseMs = 1 << 40
			run := 0
			var tasks []*perdurev1.TaskToken
			take := func(res *Result) {
				for _, a := range res.Effects.Assigned {
					tasks = append(tasks, a.Token)
				}
			}
			p.reset()
			for n := 0; n < b.N; {
				if len(tasks) == 0 {
					b.StopTimer()
					run++
					cmd := submitCmd(nil, fmt.Sprintf("run-%d", run), g, `{"in":1}`)
					take(p.apply(&commandv1.Entry{Commands: []*commandv1.Command{cmd}, Grants: grants}))
					b.StartTimer()
				}
				token := tasks[0]
				tasks = tasks[1:]
				cmd := wrapCommit(nil, &perdurev1.Commit{Task: token, KnownSeq: 1, Events: []*perdurev1.Event{returning(`{"some":"output of a node"}`)}})
				take(p.apply(&commandv1.Entry{Commands: []*commandv1.Command{cmd}, Grants: grants}))
				n++
			}
			p.report()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "nodes/s")
		})
	}
}

// BenchmarkGraphLoad reads a run of 10,000 nodes and a million edges into memory.
func BenchmarkGraphLoad(b *testing.B) {
	p := newBenchPart(b)
	p.apply(&commandv1.Entry{Commands: []*commandv1.Command{submitCmd(nil, "run", layeredGraph(10_000, 100, 100), "")}})
	b.ResetTimer()
	for range b.N {
		p.m.txn.begin(p.index)
		ex, _ := p.m.txn.execution(ns, "run")
		if r := p.m.txn.readGraph(ex); len(r.rows) != 10_000 {
			b.Fatal("rows")
		}
		p.m.txn.abort()
	}
}

// BenchmarkGraphSubmit starts a run of 10,000 nodes and a million edges.
func BenchmarkGraphSubmit(b *testing.B) {
	p, g := newBenchPart(b), layeredGraph(10_000, 100, 100)
	p.reset()
	for i := range b.N {
		p.apply(&commandv1.Entry{Commands: []*commandv1.Command{submitCmd(nil, fmt.Sprint("run-", i), g, "")}})
	}
}
