package workers

import (
	"testing"
	"time"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/credit"
)

// remoteLink gives a worker a link to a node, as if its stream had opened, and answers the first message.
func (s *stage) remoteLink(w *Worker, server string) (*link, *commandv1.AttachWorker) {
	s.mu.Lock()
	s.known = Survey{Members: map[string]bool{server: true}, Here: 1, Leads: map[string]int{server: 1}}
	l := &link{w: w, server: server, ctx: w.ctx, cancel: func() {}, wake: make(chan struct{}, 1)}
	w.links = append(w.links, l)
	s.mu.Unlock()
	return l, l.opened()
}

// TestFormerLeadersTaskIsDropped: what a previous leader has sent and comes when the node knows a later term
// is dropped, and its credit is there again.
func TestFormerLeadersTaskIsDropped(t *testing.T) {
	s := newStage(t)
	w := s.Attach(spec("w", 5, "f"))
	defer w.Detach()
	l, hello := s.remoteLink(w, "other")
	if hello.Credit == 0 || w.ledger.Granted("other") != int(hello.Credit) {
		t.Fatalf("the other node is granted %d, by the ledger %d", hello.Credit, w.ledger.Granted("other"))
	}
	for _, m := range []struct {
		id   string
		term uint64
	}{{"late", s.term - 1}, {"present", s.term}} {
		l.received(&commandv1.AttachDown{Kind: &commandv1.AttachDown_Task{Task: &commandv1.AttachTask{Term: m.term, Task: &perdurev1.Task{Token: tokenOf(m.id, 1)}}}})
	}
	s.delivers("a task of a previous term, and one of the present", w, "present/1")
	if have := w.Capacity(); have != 4 {
		t.Errorf("one of 5 is used, %d are left", have)
	}
}

// TestHungWorkerIsNotHeardByConnecting: a worker hangs while its stream stays open. A node that its own node
// connects to again grants it no credit, and its own node grants that one none: a connection is no message of
// the worker. After its next message the worker gets the waiting tasks.
func TestHungWorkerIsNotHeardByConnecting(t *testing.T) {
	home, leader := newStage(t), newStage(t)
	w := home.Attach(spec("w", 6, "f"))
	defer w.Detach()
	hung := w.silentAfter() + time.Millisecond
	home.clock.advance(hung)
	l, hello := home.remoteLink(w, "leader")
	if hello.Credit != 0 || hello.UnheardMs != hung.Milliseconds() {
		t.Errorf("a worker that hangs is introduced with %d units, unheard for %d ms", hello.Credit, hello.UnheardMs)
	}
	leader.mu.Lock()
	session := leader.attach(Spec{ID: "w", Namespace: ns, Functions: []string{"f"}, LeaseMS: hello.LeaseMs, Capacity: 3,
		Unheard: time.Duration(hello.UnheardMs) * time.Millisecond}, 1, nil)
	leader.mu.Unlock()
	if got := leader.Reserve(0); len(got) != 0 {
		t.Errorf("an entry grants it %v", Grants(got))
	}
	if got := home.Reserve(0); len(got) != 0 {
		t.Errorf("an entry at its own node grants it %v", Grants(got))
	}
	w.AddCapacity(1)
	if l.give != 0 {
		t.Errorf("the leader is granted %d", l.give)
	}
	w.Heard(1)
	session.received(&commandv1.AttachUp{Timestamp: 1})
	if len(leader.Reserve(0)) != 1 || len(home.Reserve(0)) != 1 || l.give == 0 || !l.notify {
		t.Errorf("a worker that was heard from again gets nothing")
	}
}

// TestRevokedCreditIsReturnedOnce: a session answers a revocation with credit that no entry has reserved, once there is
// some, and a worker gets nothing twice.
func TestRevokedCreditIsReturnedOnce(t *testing.T) {
	s := newStage(t)
	w := s.Attach(spec("w", 2, "f"))
	defer w.Detach()
	first, second := s.Reserve(0), s.Reserve(0)
	l, hello := s.remoteLink(w, "other")
	if hello.Credit != 0 {
		t.Fatalf("%d units are granted that entries have reserved", hello.Credit)
	}
	s.mu.Lock()
	w.step(credit.Wants{Link: l.name(), Wants: true})
	s.mu.Unlock()
	s.Applied(s.r, s.lead, assigned("w", tokenOf("a", 1)), first)
	if l.give != 0 {
		t.Errorf("%d units are granted that an entry has reserved", l.give)
	}
	s.Unreserve(second)
	if l.give != 1 || w.Capacity() != 2 {
		t.Errorf("%d units are granted of 1 that is free, the capacity is %d", l.give, w.Capacity())
	}
}

// TestTaskBytes: a worker may always queue one task of other nodes, and more while neither the worker's nor
// the node's bytes are used up. A detached worker releases its bytes.
func TestTaskBytes(t *testing.T) {
	d := newStage(t).Dispatcher
	w, x := d.newWorker(spec("w", 1, "f"), false), d.newWorker(spec("x", 1, "f"), false)
	arrive := func(w *Worker, id string, size int64) {
		w.arrive(Delivery{Token: &perdurev1.TaskToken{Namespace: ns, Id: id, Incarnation: 1, Version: 1}, Task: &perdurev1.Task{}, size: size})
	}
	for _, step := range []struct {
		what string
		do   func()
		w, x bool
	}{
		{"nothing", func() {}, true, true},
		{"a small task", func() { arrive(w, "a", 1) }, true, true},
		{"a large one", func() { arrive(w, "b", WorkerTaskBytes) }, false, true},
		{"the node is full", func() { arrive(w, "c", nodeTaskBytes) }, false, true},
		{"the other has one", func() { arrive(x, "d", 1) }, false, false},
		{"the other takes it", func() { _, _ = x.Next(t.Context()) }, false, true},
		{"the worker ends", func() { arrive(x, "e", 1); w.end(true) }, true, true},
	} {
		step.do()
		if gotW, gotX := w.mayTake(), x.mayTake(); gotW != step.w || gotX != step.x {
			t.Errorf("%s: %v and %v, must be %v and %v", step.what, gotW, gotX, step.w, step.x)
		}
	}
	_, _ = x.Next(t.Context())
	if n := d.TaskBytes(); n != 0 {
		t.Errorf("%d bytes are counted", n)
	}
}
