package group

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition/raftgroup"
)

// heldRounds delays each round of confirmation as it begins, until the test releases it.
type heldRounds struct {
	raftgroup.Acknowledgements
	began, proceed chan struct{}
}

// holdRounds has a replica's rounds of confirmation held back until the test ends.
func holdRounds(t *testing.T, r *Replica) *heldRounds {
	t.Helper()
	h := &heldRounds{Acknowledgements: r.acks, began: make(chan struct{}), proceed: make(chan struct{})}
	r.acks = h
	return h
}

// Mark implements raftgroup.Acknowledgements.
func (h *heldRounds) Mark() uint64 {
	h.began <- struct{}{}
	<-h.proceed
	return h.Acknowledgements.Mark()
}

// next waits for the next round to begin. A read that is answered before it does is a failure.
func (h *heldRounds) next(t *testing.T, read <-chan error) {
	t.Helper()
	select {
	case <-h.began:
	case err := <-read:
		t.Fatalf("a linearizable read was answered (%v) before a round of confirmation began", err)
	case <-time.After(waitLimit):
		t.Fatal("no round of confirmation begins")
	}
}

func answered(t *testing.T, read <-chan error) error {
	t.Helper()
	select {
	case err := <-read:
		return err
	case <-time.After(waitLimit):
		t.Fatal("a read is not answered")
		return nil
	}
}

// TestReadsAreConfirmed: a linearizable read asks for a confirmation of leadership after the read has begun, and is
// refused when the leadership that was confirmed is over by then.
func TestReadsAreConfirmed(t *testing.T) {
	n := newMemNode(t, 1)
	r := n.router.Replicas()[0]
	must(t, n.Router(), promiseCmd("p", 1<<40))
	h := holdRounds(t, r)
	ask := func() <-chan error {
		read := make(chan error, 1)
		go func() {
			_, _, err := r.Query(bg(t), Linearizable, promiseQuery("p"))
			read <- err
		}()
		h.next(t, read)
		return read
	}
	read := ask()
	h.proceed <- struct{}{}
	if err := answered(t, read); err != nil {
		t.Error(err)
	}
	read = ask()
	l := r.lead.Swap(nil)
	h.proceed <- struct{}{}
	if err := answered(t, read); err == nil {
		t.Error("a read was answered although the leadership was over before the confirmation ended")
	}
	r.lead.Store(l)
}

// TestReadsShareOnlyLaterRounds: a read that comes while a round of confirmation is under way is answered after the
// next one. The round under way says nothing of a moment after that read began.
func TestReadsShareOnlyLaterRounds(t *testing.T) {
	n := newMemNode(t, 1)
	r := n.router.Replicas()[0]
	must(t, n.Router(), promiseCmd("p", 1<<40))
	h := holdRounds(t, r)
	read := func() <-chan error {
		done := make(chan error, 1)
		go func() {
			_, _, err := r.Query(bg(t), Linearizable, promiseQuery("p"))
			done <- err
		}()
		return done
	}
	first := read()
	h.next(t, first)
	later := read()
	waitFor(t, "the later read to wait", func() bool {
		r.confirms.mu.Lock()
		defer r.confirms.mu.Unlock()
		return len(r.confirms.waiting) == 1
	}, func() string { return "" })
	h.proceed <- struct{}{}
	if err := answered(t, first); err != nil {
		t.Errorf("the first read: %v", err)
	}
	h.next(t, later)
	h.proceed <- struct{}{}
	if err := answered(t, later); err != nil {
		t.Errorf("the later read: %v", err)
	}
}

// TestLeadershipBeginsWithABarrier: a leader serves, and answers reads, once everything that its predecessors have
// committed is applied. So its term's log has a barrier before the first command.
func TestLeadershipBeginsWithABarrier(t *testing.T) {
	n := newMemNode(t, 1)
	r := n.router.Replicas()[0]
	must(t, n.Router(), promiseCmd("p", 1<<40))
	l := r.serving()
	last, err := n.raftlog.Group(0).LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	barrier := uint64(0)
	for i := uint64(1); i <= last; i++ {
		var e raft.Log
		if err := n.raftlog.Group(0).GetLog(i, &e); err != nil {
			t.Fatal(err)
		}
		if e.Type == raft.LogBarrier && e.Term == l.term {
			barrier = i
		}
		if e.Type == raft.LogCommand && e.Term == l.term && barrier == 0 {
			t.Fatalf("entry %d is a command of term %d, whose leader began to serve without a barrier", i, l.term)
		}
	}
	if barrier == 0 {
		t.Errorf("term %d has no barrier", l.term)
	}
}

// TestStaleReadsOfFormerMembers: a server that may have been replaced answers no stale read unless it leads, and a
// stale read needs no confirmation.
func TestStaleReadsOfFormerMembers(t *testing.T) {
	n := newMemNode(t, 1)
	r := n.router.Replicas()[0]
	must(t, n.Router(), promiseCmd("p", 1<<40))
	h := holdRounds(t, r)
	r.env.MayAnswer = func(leads bool) error {
		if leads {
			return nil
		}
		return errors.New("as the script says")
	}
	read := func() <-chan error {
		done := make(chan error, 1)
		go func() {
			_, _, err := r.Query(bg(t), Stale, promiseQuery("p"))
			done <- err
		}()
		return done
	}
	leading := read()
	select {
	case <-h.began:
		t.Fatal("a stale read asks for a confirmation")
	case err := <-leading:
		if err != nil {
			t.Errorf("a leader's stale read: %v", err)
		}
	}
	l := r.lead.Swap(nil)
	if err := answered(t, read()); reasonOf(err) != perdurev1.Reason_REASON_TRY_LATER {
		t.Errorf("a stale read of a server that may be no member: %v", err)
	}
	r.lead.Store(l)
}
