package rpc_test

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	perdurev1 "perdure/api/perdure/v1"
)

// TestGraphsAtAnyNode submits a run at one node, watches it at another and signals it at the third, for any
// leader of its partition. The watchers are answered although all leaderships move meanwhile.
func TestGraphsAtAnyNode(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t)
	const many = 8 // of four partitions
	type run struct {
		id      string
		version uint64
		moved   chan error
	}
	var runs []*run
	for i := range many {
		r := &run{id: fmt.Sprint("run-", i), moved: make(chan error, 1)}
		at, other := nodes[i%3], nodes[(i+1)%3]
		submit := &perdurev1.SubmitGraphRequest{Namespace: at.ns, Id: r.id, Graph: twoSignals(), Request: rid()}
		first, err := at.graphs().Submit(soon(t), submit)
		if err != nil || !first.Created {
			t.Fatalf("%s: %v, %v", r.id, first, err)
		}
		// The same request at another node is the same request, and is answered so.
		again, err := other.graphs().Submit(soon(t), proto.CloneOf(submit))
		if err != nil || !proto.Equal(again, first) {
			t.Fatalf("%s again: %v, %v, it was %v", r.id, again, err, first)
		}
		s := other.graphStatus(r.id)
		if s.Incarnation != first.Incarnation || s.Nodes[0].Status != perdurev1.NodeStatus_NODE_STATUS_WAITING {
			t.Fatalf("%s: %v", r.id, s)
		}
		r.version = s.Version
		go func() {
			s, err := other.graphs().GetStatus(soon(t), &perdurev1.GraphStatusRequest{Namespace: at.ns, Id: r.id, AfterVersion: r.version,
				WaitMs: testTimeout.Milliseconds()})
			if err == nil && s.Version <= r.version {
				err = fmt.Errorf("%s: was answered %v", r.id, s)
			}
			r.moved <- err
		}()
		runs = append(runs, r)
	}
	operator := perdurev1.NewClusterClient(nodes[0].conn)
	for i := range 3 {
		if _, err := operator.TransferLeadership(soon(t), &perdurev1.TransferLeadershipRequest{FromNode: fmt.Sprint("n", i+1)}); err != nil {
			t.Fatalf("the leaderships of n%d: %v", i+1, err)
		}
	}
	for i, r := range runs {
		nodes[(i+2)%3].signal(r.id, "one", "1")
		if err := receive(t, "answer", r.moved); err != nil {
			t.Errorf("%s: %v", r.id, err)
		}
		nodes[(i+2)%3].signal(r.id, "two", "2")
		end, err := nodes[i%3].executions.Result(soon(t), &perdurev1.ResultRequest{Namespace: nodes[0].ns, Id: r.id, WaitMs: testTimeout.Milliseconds()})
		if err != nil || string(end.GetOutcome().GetValue()) != `{"second":2}` {
			t.Errorf("%s ended with %v, %v", r.id, end, err)
		}
		o, err := nodes[(i+1)%3].graphs().GetOutcome(soon(t), &perdurev1.NodeOutcomeRequest{Namespace: nodes[0].ns, Id: r.id, Node: "first"})
		if err != nil || string(o.Output) != "1" {
			t.Errorf("%s: the first node has come to %v, %v", r.id, o, err)
		}
	}
}
