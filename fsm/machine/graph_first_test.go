package machine

import (
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/recovery"
)

// A run that begins is in memory what would be read of it, except for what only its beginning can tell.
func TestFirstRunIsWhatIsRead(t *testing.T) {
	for _, before := range []int{1, 3} {
		g := layeredGraph(12, 4, before)
		g.Nodes[1].Kind = &perdurev1.GraphNode_Signal{Signal: &perdurev1.SignalNode{Name: "s"}}
		g.Nodes[2].Retry = &perdurev1.NodeRetry{Attempts: 3}
		g.Nodes[3].Kind = &perdurev1.GraphNode_Subgraph{Subgraph: layeredGraph(2, 1, 1)}
		w := newWorld(t, 1)
		w.do(submitCmd(nil, "run", g, `{"in":1}`))
		m := w.parts[0].m
		for _, run := range []string{"run", "run:3.0"} {
			m.txn.begin(m.applied + 1)
			ex, ok := m.txn.execution(ns, run)
			if !ok || ex.run == nil {
				t.Fatalf("%s is not in memory", run)
			}
			have, read := *ex.run, *m.txn.readGraph(ex)
			if !have.alone || read.alone {
				t.Errorf("%s: alone %v, and %v when it is read", run, have.alone, read.alone)
			}
			if !proto.Equal(have.graph, read.graph) || !reflect.DeepEqual(have.engine.State(), read.engine.State()) {
				t.Errorf("%s: another graph or another state is read", run)
			}
			for _, r := range []*graphRun{&have, &read} {
				r.graph, r.engine, r.undo, r.spare, r.alone = nil, nil, nil, nil, false
			}
			if !reflect.DeepEqual(have, read) {
				t.Errorf("%s: have\n%+v\nread\n%+v", run, have, read)
			}
			m.txn.abort()
		}
	}
}

// The machine keeps all of a graph but its edges.
func TestKeptGraphHasAllButEdges(t *testing.T) {
	n := &perdurev1.GraphNode{Id: "n", After: []string{"a"}, Inputs: []*perdurev1.NodeInput{{}}, Retry: &perdurev1.NodeRetry{},
		TimeoutMs: 1, OnFailure: 1, Output: 1, Kind: &perdurev1.GraphNode_Sleep{Sleep: &perdurev1.SleepNode{}}}
	g := &perdurev1.Graph{Name: "g", MaxParallel: 1, Wave: true, Nodes: []*perdurev1.GraphNode{n}}
	for _, m := range []proto.Message{g, n} {
		fields, oneof := m.ProtoReflect().Descriptor().Fields(), 0
		for i := range fields.Len() {
			switch f := fields.Get(i); {
			case f.ContainingOneof() != nil:
				oneof++
			case !m.ProtoReflect().Has(f):
				t.Errorf("%s of the test has no value", f.FullName())
			}
		}
		if oneof > 0 && m.ProtoReflect().WhichOneof(m.ProtoReflect().Descriptor().Oneofs().Get(0)) == (protoreflect.FieldDescriptor)(nil) {
			t.Error("the node is of no kind")
		}
	}
	kept := withoutEdges(g)
	if len(n.After) != 1 {
		t.Error("the submitted graph was changed")
	}
	n.After = nil
	if !proto.Equal(kept, g) {
		t.Errorf("kept %v of %v", kept, g)
	}
}

// A run whose id has remains of another run reads whether the ids of its nodes are free.
func TestRunAmongRemainsIsNotAlone(t *testing.T) {
	for _, c := range []struct {
		promise string
		alone   bool
	}{{"run:0", false}, {"run:7.1", false}, {"run-2:0", true}, {"ru", true}} {
		w := newWorld(t, 1)
		w.unaudited = true
		p := w.parts[0]
		g := layeredGraph(2, 2, 0)
		for _, n := range g.Nodes {
			n.Kind = &perdurev1.GraphNode_Signal{Signal: &perdurev1.SignalNode{Name: "s"}}
		}
		p.m.txn.begin(p.index + 1)
		p.m.txn.store(ns).PutPromise(recovery.Promise{ID: c.promise, Incarnation: 1 << 40, State: recovery.PromiseResolved, External: true, TimeoutAt: state.Never})
		fx := Effects{}
		p.m.txn.commit(&fx)
		p.m.txn.begin(p.index + 1)
		if _, refused := applySubmitGraph(p.m.txn, submitCmd(nil, "run", g, "")); refused != nil && c.alone {
			t.Fatal(refused)
		}
		if ex, ok := p.m.txn.execution(ns, "run"); ok && ex.run.alone != c.alone {
			t.Errorf("beside %s: alone %v", c.promise, ex.run.alone)
		}
	}
}
