package rpc_test

import (
	"testing"

	perdurev1 "perdure/api/perdure/v1"
)

// TestSplitsCredit is a worker that splits its capacity itself, as a node sees it.
func TestSplitsCredit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	list, err := w.tasks.ListNodes(soon(t), &perdurev1.ListNodesRequest{Namespace: w.ns})
	if err != nil || list.NodeId != "n1" || len(list.Nodes) != 1 || list.Nodes[0].NodeId != "n1" {
		t.Fatalf("the nodes are %v, %v", list, err)
	}
	s := w.hello(&perdurev1.Hello{WorkerId: t.Name(), Functions: []string{"f"}, LeaseMs: 600_000, SplitsCredit: true})
	say := func(m *perdurev1.WorkRequest) {
		t.Helper()
		if err := s.raw.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	w.start("e", "f")
	if m := receive(t, "word of a waiting task", s.pushed); !m.GetCreditWanted().GetWanted() {
		t.Fatalf("a task waits, and the node says %v", m)
	}
	s.noTask()
	say(&perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_Credit{Credit: &perdurev1.Credit{Tasks: 3}}})
	if task := s.task(); task.Again || task.Token.Id != "e" {
		t.Errorf("the task is %v", task)
	}
	if m := receive(t, "word that none waits", s.pushed); m.GetCreditWanted() == nil || m.GetCreditWanted().Wanted {
		t.Fatalf("no task waits, and the node says %v", m)
	}
	for back, last := uint32(0), uint32(1); last > 0 || back < 2; { // entries may have reserved some meanwhile
		say(&perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_RevokeCredit{RevokeCredit: &perdurev1.RevokeCredit{Tasks: 9}}})
		m := receive(t, "credit", s.pushed)
		last = m.GetCreditReturned().GetTasks()
		if back += last; m.GetCreditReturned() == nil || back > 2 {
			t.Fatalf("the node says %v; it has 2 units to return", m)
		}
	}
	// It has lost its task, and comes back.
	s.cancel()
	again := w.hello(&perdurev1.Hello{WorkerId: t.Name(), Functions: []string{"f"}, LeaseMs: 600_000, SplitsCredit: true})
	if task := again.task(); !task.Again || task.Token.Id != "e" || task.AcquiredAfter != 0 {
		t.Errorf("the task that it holds comes as %v", task)
	}
}
