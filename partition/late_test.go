package partition

import (
	"fmt"
	"testing"
	"time"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
)

// toldTask takes what a worker is told next, with all that it comes with.
func toldTask(t *testing.T, w *Worker) Delivery {
	t.Helper()
	d, ok := w.Next(bg(t))
	if !ok || d.Task == nil {
		t.Fatalf("%s is told %+v, %v", w.ID, d, ok)
	}
	return d
}

// heardEverywhere waits until every node knows a timestamp of a worker.
func heardEverywhere(t *testing.T, all []*member, w *Worker, timestamp uint64) {
	t.Helper()
	for _, m := range all {
		waitFor(t, "the timestamp to come to "+m.cfg.NodeID, func() bool {
			m.dispatch.mu.Lock()
			defer m.dispatch.mu.Unlock()
			s := m.dispatch.seats[w.key()]
			return s != nil && s.timestamp == timestamp
		}, func() string { return room(m) })
	}
}

// A task carries the highest timestamp that its leader had from the worker before it acquired the task, whichever
// node leads. One that is told again carries none.
func TestTasksCarryTimestamps(t *testing.T) {
	all := newClusterWith(t, 3, neverActs)
	s := spec("w", 9, "f")
	s.Timestamp = 3
	w := all[0].Dispatcher().Attach(s)
	defer w.Detach()
	for _, timestamp := range []uint64{3, 8} {
		w.d.mu.Lock()
		for _, l := range w.legs {
			l.told = time.Time{} // as if a while had passed
		}
		w.d.mu.Unlock()
		w.Heard(timestamp)
		w.Heard(2) // an older message that was overtaken
		heardEverywhere(t, all, w, timestamp)
		for p := range uint32(3) {
			id := startIn(t, all[0].router, p, fmt.Sprint("x", timestamp))
			if d := toldTask(t, w); d.Token.Id != id || d.Task.AcquiredAfter != timestamp {
				t.Errorf("partition %d: told of %s, acquired after %d, want %s after %d", p, d.Token.Id, d.Task.AcquiredAfter, id, timestamp)
			}
		}
	}
	waitFor(t, "a millisecond to pass", func() bool { return all[0].clock.Now().UnixMilli() > w.since }, func() string { return "" })
	again := all[0].Dispatcher().Attach(s)
	defer again.Detach()
	for range 6 {
		if d := toldTask(t, again); d.Task.AcquiredAfter != 0 || !d.Reserved.IsZero() {
			t.Errorf("told again of %s, as acquired after %d", d.Token.Id, d.Task.AcquiredAfter)
		}
	}
}

// What a former leader has sent and comes when the node knows a later term is dropped, and its room is there again.
func TestFormerLeadersTaskIsDropped(t *testing.T) {
	all := newClusterWith(t, 3, neverActs)
	at := all[0]
	w := at.Dispatcher().Attach(spec("w", 5, "f"))
	defer w.Detach()
	settled(t, at, w, 5)
	var remote *leg
	waitFor(t, "room at another node", func() bool {
		w.d.mu.Lock()
		defer w.d.mu.Unlock()
		for _, l := range w.legs {
			if w.ledger.Granted(l.name()) > 0 {
				remote = l
			}
		}
		return remote != nil
	}, func() string { return room(at) })
	const p = 1
	r := at.router.slots[p].Load()
	message := func(name string, term uint64) *commandv1.AttachDown {
		return &commandv1.AttachDown{Kind: &commandv1.AttachDown_Task{Task: &commandv1.AttachTask{Term: term,
			Task: &perdurev1.Task{Token: &perdurev1.TaskToken{Namespace: ns, Id: idIn(at.router, p, name), Incarnation: 1, Version: 1}}}}}
	}
	remote.received(message("late", r.raft.CurrentTerm()-1))
	remote.received(message("present", r.raft.CurrentTerm()))
	if d := toldTask(t, w); d.Token.Id != idIn(at.router, p, "present") {
		t.Errorf("told of %v", d.Token)
	}
	nothing(t, at.Node, w)
	settled(t, at, w, 4)
}

// A worker that says nothing for half its lease is offered no room, whether it hangs, stands still or is cut off;
// when it is heard from again, it is.
func TestSilentWorkerGetsNothing(t *testing.T) {
	n := newMemNode(t, 2)
	w := n.Dispatcher().Attach(spec("w", 5, "f"))
	defer w.Detach()
	hush := func() {
		w.d.mu.Lock()
		defer w.d.mu.Unlock()
		w.seat.heard = n.clock.Now().Add(-time.Duration(w.LeaseMS)*time.Millisecond/silentAfter - time.Millisecond)
	}
	hush()
	ids := map[string]bool{startIn(t, n.Router(), 0, "x"): true, startIn(t, n.Router(), 1, "y"): true}
	nothing(t, n, w)
	other := n.Dispatcher().Attach(spec("other", 1, "f"))
	defer other.Detach()
	first := deliver(t, other).Id
	if !ids[first] {
		t.Fatalf("the other is told of %s", first)
	}
	delete(ids, first)
	nothing(t, n, w)
	w.Heard(1)
	if got := deliver(t, w).Id; !ids[got] {
		t.Errorf("told of %s", got)
	}
}

// A worker that hangs while its stream lives gets nothing from a leader that its node connects to again: it counts as
// heard from when it was heard from. When it is, it gets what waits.
func TestHungWorkerIsNotHeardByConnecting(t *testing.T) {
	all := newClusterWith(t, 3, neverActs)
	const p = 1
	leader := leaderOf(t, all, p)
	at := all[0]
	if at == leader {
		at = all[1]
	}
	w := at.Dispatcher().Attach(spec("w", 9, "f"))
	defer w.Detach()
	session := func() (s *seat) {
		waitFor(t, "a session at the leader", func() bool {
			leader.dispatch.mu.Lock()
			defer leader.dispatch.mu.Unlock()
			s = leader.dispatch.seats[w.key()]
			return s != nil
		}, func() string { return room(leader) })
		return s
	}
	former := session()
	w.d.mu.Lock()
	w.seat.heard = at.clock.Now().Add(-w.silentAfter() - time.Millisecond)
	w.d.mu.Unlock()
	leader.dispatch.mu.Lock()
	leader.dispatch.drop(former) // as when the connection breaks
	leader.dispatch.finish()
	if session() == former {
		t.Fatal("its session at the leader goes on")
	}
	id := startIn(t, leader.router, p, "x")
	nothing(t, leader.Node, w)
	if got := held(t, leader.router.slots[p].Load(), "w"); len(got) != 0 {
		t.Fatalf("a worker that hangs is given %v", got)
	}
	w.Heard(1)
	if got := deliver(t, w).Id; got != id {
		t.Errorf("told of %s", got)
	}
}

// What a worker was not sent when its stream ends goes to others at once, whichever node has assigned it.
func TestUntoldTasksGoBack(t *testing.T) {
	all := newClusterWith(t, 3, neverActs)
	w := all[0].Dispatcher().Attach(spec("w", 9, "f"))
	ids := map[string]bool{}
	for p := range uint32(3) {
		ids[startIn(t, all[0].router, p, "x")] = true
	}
	waitFor(t, "all to be queued", func() bool {
		w.d.mu.Lock()
		defer w.d.mu.Unlock()
		return len(w.queue) == 3
	}, func() string { return room(all[0]) })
	w.Detach()
	other := all[1].Dispatcher().Attach(spec("other", 9, "f"))
	defer other.Detach()
	for range 3 {
		if d := toldTask(t, other); !ids[d.Token.Id] || d.Token.Version < 2 {
			t.Errorf("told of %v", d.Token)
		}
	}
}

// A task that its leader has told of again is not returned by a node that did not send it: a later stream of the
// worker may have begun it.
func TestToldAgainIsNotReturned(t *testing.T) {
	all := newClusterWith(t, 3, neverActs)
	const p = 1
	leader := leaderOf(t, all, p)
	var others []*member
	for _, m := range all {
		if m != leader {
			others = append(others, m)
		}
	}
	former := others[0].Dispatcher().Attach(spec("w", 9, "f"))
	defer former.Detach()
	startIn(t, leader.router, p, "x")
	var q Delivery
	waitFor(t, "the task to be queued", func() bool {
		former.d.mu.Lock()
		defer former.d.mu.Unlock()
		if len(former.queue) == 0 {
			return false
		}
		q = former.queue[0]
		return true
	}, func() string { return room(others[0]) })
	if q.term == 0 || q.leg == nil {
		t.Fatalf("the leader has sent %+v", q)
	}
	waitFor(t, "a millisecond to pass", func() bool { return others[1].clock.Now().UnixMilli() > former.since }, func() string { return "" })
	later := others[1].Dispatcher().Attach(spec("w", 9, "f"))
	defer later.Detach()
	if d := toldTask(t, later); d.Token.Version != q.Token.Version {
		t.Fatalf("told of %v", d.Token)
	}
	others[0].returnTo(bg(t), q)
	if got := held(t, leader.router.slots[p].Load(), "w"); len(got) != 1 || got[0].Version != q.Token.Version {
		t.Errorf("the worker has begun %v, and its leader says that it holds %v", q.Token, got)
	}
	// Nor by one that has heard of it in another term.
	q.term++
	others[0].returnTo(bg(t), q)
	if got := held(t, leader.router.slots[p].Load(), "w"); len(got) != 1 {
		t.Errorf("the worker holds %v", got)
	}
}
