package workers

import (
	"fmt"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
)

// splits attaches a worker that splits its capacity itself.
func (s *stage) splits(id string, capacity int, held ...*perdurev1.TaskToken) *Worker {
	sp := spec(id, capacity, "f")
	sp.Splits, sp.Held = true, held
	return s.Attach(sp)
}

// received is the next message of a worker, in words.
func received(t *testing.T, w *Worker) string {
	t.Helper()
	if w.Queued() == 0 {
		w.d.mu.Lock()
		n, ok := w.notice()
		w.d.mu.Unlock()
		if !ok {
			return ""
		}
		return words(n)
	}
	d, ok := w.Next(t.Context())
	if !ok {
		return "over"
	}
	return words(d)
}

func words(d Delivery) string {
	switch {
	case d.Notice.GetCreditReturned() != nil:
		return fmt.Sprintf("returned %d", d.Notice.GetCreditReturned().Tasks)
	case d.Notice.GetCreditWanted() != nil:
		return fmt.Sprintf("wanted %v", d.Notice.GetCreditWanted().Wanted)
	case d.Notice != nil:
		return "nodes"
	case d.Task.GetAgain():
		return d.Token.Id + " again"
	}
	return d.Token.Id
}

// TestSplitWorker: a node that a worker has granted a part of its capacity spends no more than that, returns what no
// entry has reserved, and says when tasks wait without credit.
func TestSplitWorker(t *testing.T) {
	s := newStage(t)
	w := s.splits("w", 1)
	defer w.Detach()
	w.AddCapacity(2)
	expect := func(what, want string) {
		t.Helper()
		if got := received(t, w); got != want {
			t.Errorf("%s: the worker receives %q, must be %q", what, got, want)
		}
	}
	first, second := s.Reserve(0), s.Reserve(0)
	if granted(first) != 2 || granted(second) != 1 || len(s.Reserve(0)) != 0 {
		t.Fatalf("of 3 units entries grant %d and %d", granted(first), granted(second))
	}
	w.Revoke(3)
	expect("every unit is reserved", "")
	s.Applied(s.r, s.lead, assigned("w", tokenOf("a", 1)), first)
	expect("one of two reserved units was used", "returned 1")
	expect("a revocation is answered once", "a")
	s.Unreserve(second)
	if w.Capacity() != 1 {
		t.Errorf("%d units are left, must be 1", w.Capacity())
	}
	// A task is over before it is sent: its unit can be used again.
	w.AddCapacity(1)
	s.r.over = map[string]bool{"over": true}
	s.assign("w", tokenOf("over", 1))
	s.assign("w", tokenOf("b", 1))
	expect("a task that is over comes first", "b")
	if w.Capacity() != 1 {
		t.Errorf("%d units are left of 2, one was used", w.Capacity())
	}
	w.Revoke(1)
	expect("the unit is free", "returned 1")
	w.Revoke(1)
	expect("nothing is left to return", "returned 0")
	fx := assigned("w")
	fx.Ready = append(fx.Ready, queueOf("f"))
	s.Applied(s.r, s.lead, fx, nil)
	expect("a task waits", "wanted true")
	expect("it is said once", "")
	w.AddCapacity(1)
	if got := s.Reserve(0); granted(got) != 1 {
		t.Errorf("1 unit is granted for the task that waits, an entry has %d", granted(got))
	}
}

// TestSplitWorkerIsResentOnce: tasks that a worker holds by the state are sent again without credit, unless it has said
// that it holds them or was sent them over the same stream.
func TestSplitWorkerIsResentOnce(t *testing.T) {
	s := newStage(t)
	w := s.splits("w", 2, tokenOf("held", 3))
	defer w.Detach()
	s.assign("w", tokenOf("a", 1))
	s.Established(s.lead, nil, assigned("w", tokenOf("held", 3), tokenOf("a", 1), tokenOf("lost", 1)).Assigned)
	for _, want := range []string{"a", "lost again", ""} {
		if got := received(t, w); got != want {
			t.Errorf("the worker receives %q, must be %q", got, want)
		}
	}
	if w.Capacity() != 1 {
		t.Errorf("%d units are left of 2, one was used", w.Capacity())
	}
}

// TestSplitWorkerIsNotLentOn: no node that a worker has a session with itself lends its credit to others.
func TestSplitWorkerIsNotLentOn(t *testing.T) {
	s := newStage(t)
	s.known.Members = map[string]bool{"other": true}
	w, old := s.splits("w", 4), s.Attach(spec("old", 4, "f"))
	if len(w.links) != 0 || len(old.links) != 1 {
		t.Errorf("a worker that splits its capacity has %d links, another one %d", len(w.links), len(old.links))
	}
}

// TestSplitWorkerLearnsNodes: the list is sent once, and when it has changed.
func TestSplitWorkerLearnsNodes(t *testing.T) {
	s := newStage(t)
	leads := uint32(1)
	s.env.Survey = func() Survey {
		return Survey{Here: 1, Nodes: &perdurev1.NodeList{NodeId: "n1", Nodes: []*perdurev1.ClusterAddress{{NodeId: "n1", Leads: leads}}}}
	}
	s.survey()
	w := s.splits("w", 4)
	defer w.Detach()
	var got []string
	for _, n := range []uint32{1, 2, 2} {
		leads = n
		s.survey()
		got = append(got, received(t, w))
	}
	if fmt.Sprint(got) != "[nodes nodes ]" {
		t.Errorf("the worker receives %q", got)
	}
}
