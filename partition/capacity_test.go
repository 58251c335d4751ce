package partition

import (
	"fmt"
	"slices"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/machine"
	"perdure/internal/credit"
)

func init() { credit.Assert = true }

// A stage is a dispatcher of its own, for one partition that it leads by its own account: entries are what the test
// says. The state below it holds nothing.
type stage struct {
	*Dispatcher
	t    *testing.T
	r    *Replica
	life *leadership
}

func newStage(t *testing.T) *stage {
	empty := newMemNode(t, 1).router.Replicas()[0].store
	s := &stage{Dispatcher: newDispatcher(), t: t, r: &Replica{id: 0, store: empty, clock: SystemClock{}, stopping: make(chan struct{})}}
	s.life = &leadership{r: s.r}
	s.established(s.life, nil, nil)
	return s
}

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

// told takes what waits for a worker, in words.
func (s *stage) told(w *Worker) (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range w.queue {
		text := fmt.Sprintf("%s/%d", q.Token.Id, q.Token.Version)
		if q.Cancelling {
			text += " cancelling"
		}
		out = append(out, text)
	}
	w.queue = nil
	return out
}

func (s *stage) tells(what string, w *Worker, want ...string) {
	s.t.Helper()
	if have := s.told(w); !slices.Equal(have, want) {
		s.t.Errorf("%s: %s is told of %v, must be of %v", what, w.ID, have, want)
	}
}

// offered is how much capacity the bookings of an entry take.
func offered(room []booking) (n int) {
	for _, b := range room {
		n += int(b.offer.Room)
	}
	return n
}

// TestCapacityIsConserved: entries together offer no more than a worker has announced; what an entry did not use, or
// all of it when the entry did not happen, is offered again.
func TestCapacityIsConserved(t *testing.T) {
	s := newStage(t)
	const capacity = 5
	w := s.Attach(spec("w", capacity, "f"))
	all := func() (entries [][]booking, sum int) {
		for {
			room := s.reserve(0)
			if len(room) == 0 {
				return entries, sum
			}
			if entries, sum = append(entries, room), sum+offered(room); sum > 10*capacity {
				t.Fatalf("%d entries offer %d, the worker has announced %d", len(entries), sum, capacity)
			}
		}
	}
	entries, sum := all()
	if sum != capacity || len(entries) < 2 {
		t.Fatalf("%d entries offer %d, the worker has announced %d", len(entries), sum, capacity)
	}
	for _, room := range entries {
		s.unreserve(room) // it did not happen
	}
	if entries, sum = all(); sum != capacity {
		t.Fatalf("after entries that did not happen %d are offered, must be %d", sum, capacity)
	}
	// The first entry acquires one task, the others none.
	s.applied(s.r, s.life, assigned("w", tokenOf("a", 1)), entries[0])
	for _, room := range entries[1:] {
		s.applied(s.r, s.life, assigned("w"), room)
	}
	s.tells("after one was acquired", w, "a/1")
	if entries, sum = all(); sum != capacity-1 {
		t.Fatalf("with one task %d are offered, must be %d", sum, capacity-1)
	}
	for _, room := range entries {
		s.unreserve(room)
	}
	w.AddRoom(1)
	if _, sum = all(); sum != capacity {
		t.Errorf("when the worker has finished %d are offered, must be %d", sum, capacity)
	}
}

// TestCapacityOfWhatIsOver: a task that is over before its worker is told of it takes none of the worker's capacity.
func TestCapacityOfWhatIsOver(t *testing.T) {
	n := newMemNode(t, 1)
	r, d := n.router.Replicas()[0], n.Dispatcher()
	w := d.Attach(spec("w", 2, "f"))
	defer w.Detach()
	must(t, n.Router(), startCmd("s", "over", "f", ""))
	waitFor(t, "the task to be its own", func() bool { return len(held(t, r, "w")) == 1 }, func() string { return "" })
	must(t, n.Router(), terminateCmd("over"))
	must(t, n.Router(), startCmd("s2", "next", "f", ""))
	if got := deliver(t, w); got.Id != "next" {
		t.Fatalf("told of %v", got)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if have := w.seat.share.Granted(); have != 1 {
		t.Errorf("the worker has announced 2 and was told of 1: %d are left", have)
	}
}

// TestToldOnce: a task that is brought twice (by its entry and by a new leader, or by two leaders) is told once; the
// next version of it is told again. A worker that has said that it holds a task is not told of it.
func TestToldOnce(t *testing.T) {
	s := newStage(t)
	knowing := spec("w", 4, "f")
	knowing.Held = []*perdurev1.TaskToken{tokenOf("held", 3)}
	w := s.Attach(knowing)
	room := s.reserve(0)
	s.applied(s.r, s.life, assigned("w", tokenOf("a", 1)), room)
	remind := func(tokens ...*perdurev1.TaskToken) {
		s.established(s.life, nil, assigned("w", tokens...).Assigned)
	}
	remind(tokenOf("a", 1), tokenOf("held", 3))
	s.tells("its entry and a new leader", w, "a/1")
	remind(tokenOf("a", 1), tokenOf("held", 3))
	s.tells("another leader", w)
	remind(tokenOf("a", 2), tokenOf("b", 1))
	s.tells("the next version, and one whose former leader told nobody", w, "a/2", "b/1")
	w.Finished(tokenOf("b", 1))
	remind(tokenOf("b", 2))
	s.tells("one that it had finished", w, "b/2")
}

// TestCancelIsTold: a request to cancel reaches the worker that holds the task, and nobody else.
func TestCancelIsTold(t *testing.T) {
	s := newStage(t)
	w, other := s.Attach(spec("w", 1, "f")), s.Attach(spec("other", 1, "f"))
	elsewhere := spec("w", 1, "f")
	elsewhere.Namespace = "elsewhere"
	stranger := s.Attach(elsewhere)
	fx := &machine.Effects{Cancelling: assigned("w", tokenOf("a", 1)).Assigned}
	s.applied(s.r, s.life, fx, nil)
	s.tells("the holder", w, "a/1 cancelling")
	s.tells("another worker", other)
	s.tells("another namespace's worker of that id", stranger)
}

// TestUntoldGoesBack: when a session ends, the tasks that its worker was not told of are released, and no others: not
// what it was told of, nor what it was to be told of again.
func TestUntoldGoesBack(t *testing.T) {
	n := newMemNode(t, 1)
	r, d := n.router.Replicas()[0], n.Dispatcher()
	w := d.Attach(spec("w", 4, "f"))
	for k := range 4 {
		must(t, n.Router(), startCmd(fmt.Sprint("s", k), fmt.Sprint("x", k), "f", ""))
	}
	waitFor(t, "four tasks to be its own", func() bool { return len(held(t, r, "w")) == 4 }, func() string { return "" })
	mine := []string{deliver(t, w).Id, deliver(t, w).Id}
	settled := func(what string) {
		t.Helper()
		waitFor(t, "what is returned to be through", func() bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			return len(d.returning) == 0
		}, func() string { return "" })
		var have []string
		for _, token := range held(t, r, "w") {
			have = append(have, token.Id)
		}
		slices.Sort(have)
		slices.Sort(mine)
		if !slices.Equal(have, mine) {
			t.Fatalf("%s: the worker holds %v, must hold %v", what, have, mine)
		}
	}
	w.Detach()
	settled("two of four were told")
	// It comes back and knows nothing: it is told again of what it holds. Its session ends before that.
	again := d.Attach(spec("w", 0, "f"))
	waitFor(t, "both to be told again", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(again.queue) == 2
	}, func() string { return "" })
	again.Detach()
	settled("both were to be told again")
}
