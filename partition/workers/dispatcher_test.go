package workers

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/machine"
)

// assigned is what an entry does that acquires tasks for a worker.
func assigned(worker string, tokens ...*perdurev1.TaskToken) *machine.Effects {
	fx := &machine.Effects{}
	for _, token := range tokens {
		fx.Assigned = append(fx.Assigned, machine.Assignment{Worker: worker, Function: "f", Token: token})
	}
	return fx
}

func tokenOf(id string, version uint64) *perdurev1.TaskToken {
	return &perdurev1.TaskToken{Namespace: ns, Id: id, Incarnation: 1, Version: version}
}

// delivered takes a worker's deliveries, in words.
func (s *stage) delivered(w *Worker) (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range w.queue {
		text := fmt.Sprintf("%s/%d", q.Token.Id, q.Token.Version)
		if q.Cancelling {
			text += " cancelling"
		}
		if q.Signal != nil {
			text += " signal " + q.Signal.Name
		}
		out = append(out, text)
	}
	w.queue = nil
	return out
}

func (s *stage) delivers(what string, w *Worker, want ...string) {
	s.t.Helper()
	if have := s.delivered(w); !slices.Equal(have, want) {
		s.t.Errorf("%s: %s received %v, must be %v", what, w.ID, have, want)
	}
}

// granted is how much capacity the reservations of an entry take.
func granted(reserved []Reservation) (n int) {
	for _, b := range reserved {
		n += int(b.grant.Credit)
	}
	return n
}

// TestCapacityIsConserved: entries together grant no more than a worker has announced; what an entry did not use, or
// all of it when the entry did not happen, is granted again.
func TestCapacityIsConserved(t *testing.T) {
	s := newStage(t)
	const capacity = 5
	w := s.Attach(spec("w", capacity, "f"))
	all := func() (entries [][]Reservation, sum int) {
		for {
			reserved := s.Reserve(0)
			if len(reserved) == 0 {
				return entries, sum
			}
			if entries, sum = append(entries, reserved), sum+granted(reserved); sum > 10*capacity {
				t.Fatalf("%d entries grant %d, the worker has announced %d", len(entries), sum, capacity)
			}
		}
	}
	entries, sum := all()
	if sum != capacity || len(entries) < 2 {
		t.Fatalf("%d entries grant %d, the worker has announced %d", len(entries), sum, capacity)
	}
	for _, reserved := range entries {
		s.Unreserve(reserved) // it did not happen
	}
	if entries, sum = all(); sum != capacity {
		t.Fatalf("after entries that did not happen %d are granted, must be %d", sum, capacity)
	}
	// The first entry acquires one task, the others none.
	s.Applied(s.r, s.lead, assigned("w", tokenOf("a", 1)), entries[0])
	for _, reserved := range entries[1:] {
		s.Applied(s.r, s.lead, assigned("w"), reserved)
	}
	s.delivers("after one was acquired", w, "a/1")
	if entries, sum = all(); sum != capacity-1 {
		t.Fatalf("with one task %d are granted, must be %d", sum, capacity-1)
	}
	for _, reserved := range entries {
		s.Unreserve(reserved)
	}
	w.AddCapacity(1)
	if _, sum = all(); sum != capacity {
		t.Errorf("when the worker has finished %d are granted, must be %d", sum, capacity)
	}
}

// TestCapacityOfWhatIsOver: a task that is over before its worker is sent it uses none of the worker's capacity.
func TestCapacityOfWhatIsOver(t *testing.T) {
	s := newStage(t)
	w := s.Attach(spec("w", 2, "f"))
	s.r.over = map[string]bool{"over": true}
	s.assign("w", tokenOf("over", 1))
	s.assign("w", tokenOf("next", 1))
	if got, ok := w.Next(t.Context()); !ok || got.Token.Id != "next" || got.Task == nil {
		t.Fatalf("sent %+v", got)
	}
	if have := w.Capacity(); have != 1 {
		t.Errorf("the worker has announced 2 and was sent 1: %d are left", have)
	}
}

// TestDeliveredOnce: a task that arrives twice (by its entry and by a new leader, or by two leaders) is
// delivered once; its next version is delivered again. A worker that has announced that it holds a task does
// not receive it.
func TestDeliveredOnce(t *testing.T) {
	s := newStage(t)
	knowing := spec("w", 4, "f")
	knowing.Held = []*perdurev1.TaskToken{tokenOf("held", 3)}
	w := s.Attach(knowing)
	reserved := s.Reserve(0)
	s.Applied(s.r, s.lead, assigned("w", tokenOf("a", 1)), reserved)
	resend := func(tokens ...*perdurev1.TaskToken) {
		s.Established(s.lead, nil, assigned("w", tokens...).Assigned)
	}
	resend(tokenOf("a", 1), tokenOf("held", 3))
	s.delivers("its entry and a new leader", w, "a/1")
	resend(tokenOf("a", 1), tokenOf("held", 3))
	s.delivers("another leader", w)
	resend(tokenOf("a", 2), tokenOf("b", 1))
	s.delivers("the next version, and one that its former leader did not send", w, "a/2", "b/1")
	w.Finished(tokenOf("b", 1))
	resend(tokenOf("b", 2))
	s.delivers("one that it had finished", w, "b/2")
}

// TestCancelIsDelivered: a request to cancel reaches the worker that holds the task, and no other.
func TestCancelIsDelivered(t *testing.T) {
	s := newStage(t)
	w, other := s.Attach(spec("w", 1, "f")), s.Attach(spec("other", 1, "f"))
	elsewhere := spec("w", 1, "f")
	elsewhere.Namespace = "elsewhere"
	stranger := s.Attach(elsewhere)
	fx := &machine.Effects{Cancelling: assigned("w", tokenOf("a", 1)).Assigned}
	s.Applied(s.r, s.lead, fx, nil)
	s.delivers("the holder", w, "a/1 cancelling")
	s.delivers("another worker", other)
	s.delivers("another namespace's worker of that id", stranger)
}

// TestSignalIsDelivered: a signal reaches the worker that holds the task, if its stream is here and it reads signals. It uses no
// credit, comes behind its task, is never returned, and is dropped when many deliveries wait.
func TestSignalIsDelivered(t *testing.T) {
	s := newStage(t)
	reads := spec("w", 1, "f")
	reads.Signals = true
	w, other := s.Attach(reads), s.Attach(spec("other", 1, "f"))
	arrived := func(worker string, n int) *machine.Effects {
		fx := &machine.Effects{}
		for range n {
			fx.Arrived = append(fx.Arrived, machine.SignalArrival{Worker: worker, Token: tokenOf("a", 1), Name: "go", Payload: []byte("x"), DeliveryID: 1})
		}
		return fx
	}
	s.assign("w", tokenOf("a", 1))
	s.Applied(s.r, s.lead, arrived("w", 1), nil)
	s.Applied(s.r, s.lead, arrived("other", 1), nil)
	s.Applied(s.r, s.lead, arrived("nobody", 1), nil)
	s.delivers("the holder", w, "a/1", "a/1 signal go")
	s.delivers("a worker that reads none", other)
	s.Applied(s.r, s.lead, arrived("w", 1), nil)
	if got, ok := w.Next(t.Context()); !ok || got.Task != nil || got.Signal.GetDeliveryId() != 1 {
		t.Errorf("sent %+v", got)
	}
	s.Applied(s.r, s.lead, arrived("w", 2*maxSignalQueue), nil)
	if n := w.Queued(); n != maxSignalQueue {
		t.Errorf("%d signals wait, must be %d", n, maxSignalQueue)
	}
	w.Detach()
	if got := s.r.returned(); len(got) != 0 {
		t.Errorf("%v were returned", got)
	}
}

// TestUnsentIsReturned: when a session ends, the tasks that its worker was not sent are released, and no
// others: not what it was sent, nor what it was to be sent again.
func TestUnsentIsReturned(t *testing.T) {
	s := newStage(t)
	w := s.Attach(spec("w", 4, "f"))
	for k := range 4 {
		s.assign("w", tokenOf(fmt.Sprint("x", k), 1))
	}
	for range 2 {
		if _, ok := w.Next(t.Context()); !ok {
			t.Fatal("the stream is over")
		}
	}
	w.Detach()
	waitFor(t, "two of four to go back", func() bool { return slices.Equal(s.r.returned(), []string{"x2/1", "x3/1"}) }, s.r.returned)
	// The worker attaches again and holds nothing: its tasks are sent again. Its session ends before they are.
	s.r.hold(assigned("w", tokenOf("x0", 1), tokenOf("x1", 1)).Assigned)
	again := s.Attach(spec("w", 0, "f"))
	waitFor(t, "both to be queued again", func() bool { return again.Queued() == 2 }, s.r.returned)
	again.Detach()
	s.Close() // what is under way is through then
	if got := s.r.returned(); len(got) != 2 {
		t.Errorf("%v went back", got)
	}
}

// TestFreshIsReturned: a task that an entry acquires while the session of its worker begins is not taken for
// one that an earlier session may have sent, so it is released when the session ends. The session's search
// for tasks in the state finds it, before its entry delivers it or after.
func TestFreshIsReturned(t *testing.T) {
	for _, first := range []string{"the entry delivers", "the search finds it"} {
		t.Run(first, func(t *testing.T) {
			s := newStage(t)
			s.r.mu.Lock() // the search waits
			w := s.Attach(spec("w", 4, "f"))
			reserved := s.Reserve(0)
			deliver := func() { s.Applied(s.r, s.lead, assigned("w", tokenOf("fresh", 1)), reserved) }
			if first == "the entry delivers" {
				deliver()
			}
			s.r.held = assigned("w", tokenOf("fresh", 1), tokenOf("earlier", 1)).Assigned
			s.r.mu.Unlock()
			if first == "the search finds it" {
				waitFor(t, "the search", func() bool { return s.r.searched() > 0 }, s.r.returned)
				deliver()
			}
			waitFor(t, "both to be queued", func() bool { return w.Queued() == 2 }, s.r.returned)
			w.Detach()
			s.Close() // what is under way is through then
			if got := s.r.returned(); !slices.Equal(got, []string{"fresh/1"}) {
				t.Errorf("%v went back", got)
			}
		})
	}
}

// TestResentIsNotReturned: a leader returns a task that another node did not send in the term in which it was
// acquired, unless it has sent it again: a later session of the worker may have begun it.
func TestResentIsNotReturned(t *testing.T) {
	s := newStage(t)
	w := s.Attach(spec("w", 4, "f"))
	defer w.Detach()
	s.assign("w", tokenOf("a", 1))
	s.assign("w", tokenOf("b", 1))
	s.Established(s.lead, nil, assigned("w", tokenOf("b", 1)).Assigned)
	for _, c := range []struct {
		id   string
		term uint64
		want error
	}{{"a", 7, nil}, {"a", 6, ErrNotReturned}, {"b", 7, ErrNotReturned}} {
		if _, err := s.Return(t.Context(), s.r, c.term, releaseOf(tokenOf(c.id, 1))); !errors.Is(err, c.want) {
			t.Errorf("%s in term %d: %v, want %v", c.id, c.term, err, c.want)
		}
	}
	if got := s.r.returned(); !slices.Equal(got, []string{"a/1"}) {
		t.Errorf("%v were returned", got)
	}
}
