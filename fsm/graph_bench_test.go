package fsm

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/machine"
	"perdure/fsm/state"
	"perdure/fsm/wire"
)

// BenchmarkGraphNode is what a replica does for one node of graphs of 10,000 in layers of 100, of which up to 32 end in
// one entry: from the entries' bytes to Pebble, with its flushes and compactions.
func BenchmarkGraphNode(b *testing.B) {
	keysWritten, bytesWritten := 0, 0
	s, err := Open("state", Options{FS: vfs.NewMem(), Create: true, Stamp: stampOfTests, Logger: quiet{}, Machine: machine.Config{Partitions: 1},
		MemTableBytes: 8 << 20, OnFatal: func(err error) { b.Error(err) },
		OnWritten: func(keys, bytes int) { keysWritten, bytesWritten = keysWritten+keys, bytesWritten+bytes }})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	index, now := uint64(0), int64(1_000_000)
	var tasks []*perdurev1.TaskToken
	apply := func(commands ...*commandv1.Command) {
		index++
		now += 5
		data, err := EncodeEntry(&commandv1.Entry{TimeMs: now, Commands: commands, Grants: []*commandv1.Grant{
			{Worker: "w", Namespace: ns, Functions: []string{"f"}, Credit: 200, LeaseMs: 10_000_000}}})
		if err != nil {
			b.Fatal(err)
		}
		res, applied := s.Apply(&raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: data}).(*machine.Result)
		if !applied {
			b.Fatalf("entry %d is not applied", index)
		}
		for _, r := range res.Replies {
			if e := wire.ReplyError(r); e != nil {
				b.Fatal(e)
			}
		}
		for _, a := range res.Effects.Assigned {
			tasks = append(tasks, a.Token)
		}
	}
	apply(&commandv1.Command{Kind: &commandv1.Command_RaiseLevel{RaiseLevel: &commandv1.RaiseLevel{Level: state.FeatureLevel}}})
	g := benchmarkGraph(100, 100, 10)
	b.ReportAllocs()
	b.ResetTimer()
	for n, run := 0, 0; n < b.N; {
		if len(tasks) == 0 {
			run++
			id := fmt.Sprintf("run-%d", run)
			apply(&commandv1.Command{Namespace: ns, Id: id, Request: &perdurev1.RequestID{Id: []byte(id)},
				Kind: &commandv1.Command_SubmitGraph{SubmitGraph: &perdurev1.SubmitGraphRequest{Id: id, Graph: g, AllowUnknownFunctions: true}}})
		}
		var commands []*commandv1.Command
		for _, task := range tasks[:min(len(tasks), 32)] {
			commands = append(commands, &commandv1.Command{Namespace: ns, Id: task.Id, Request: &perdurev1.RequestID{Id: fmt.Appendf(nil, "commit-%s", task.Id)},
				Kind: &commandv1.Command_Commit{Commit: &perdurev1.Commit{Task: task, KnownSeq: 1, Events: []*perdurev1.Event{
					{Kind: &perdurev1.Event_ExecutionCompleted{ExecutionCompleted: &perdurev1.ExecutionCompleted{Result: []byte(`{"number":12345}`)}}}}}}})
		}
		tasks = tasks[len(commands):]
		n += len(commands)
		apply(commands...)
	}
	b.StopTimer()
	per := func(n uint64, unit string) { b.ReportMetric(float64(n)/float64(b.N), unit) }
	m := s.db.Metrics()
	total := m.Total()
	per(uint64(keysWritten), "keys/op")
	per(uint64(bytesWritten), "bytes/op")
	per(total.TableBytesFlushed, "flushed-B/op")
	per(total.TableBytesCompacted, "compacted-B/op")
}

// benchmarkGraph has layers of function nodes, each of which comes after some of the layer before.
func benchmarkGraph(layers, width, before int) *perdurev1.Graph {
	g := &perdurev1.Graph{Name: "layers"}
	name := func(layer, i int) string { return fmt.Sprintf("node-%d-%d", layer, i%width) }
	for layer := range layers {
		for i := range width {
			n := &perdurev1.GraphNode{Id: name(layer, i), Kind: &perdurev1.GraphNode_Function{Function: &perdurev1.FunctionNode{Function: "f"}}}
			if layer > 0 {
				for k := range before {
					n.After = append(n.After, name(layer-1, i+k))
				}
				n.Inputs = []*perdurev1.NodeInput{{Name: "n", Source: &perdurev1.NodeInput_Node{Node: name(layer-1, i)}}}
			}
			g.Nodes = append(g.Nodes, n)
		}
	}
	return g
}
