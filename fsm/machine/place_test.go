package machine

import (
	"strings"
	"testing"

	commandv1 "perdure/api/command/v1"
	"perdure/fsm/audit"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/recovery"
)

// retries counts the retry timers in the deadline index, and the places that stand for one.
func (w *world) retries(p *part) (timers, places int) {
	w.t.Helper()
	if err := p.state.Scan(nil, nil, func(key, value []byte) bool {
		switch {
		case keys.Family(key[0]) == keys.Deadline && keys.DeadlineKind(key[1]) == keys.DeadlineRetry:
			timers++
		case keys.Family(key[0]) == keys.Ready && state.RetryInPlace(value):
			places++
		}
		return true
	}); err != nil {
		w.t.Fatalf("%v", err)
	}
	return timers, places
}

// A task in a queue of workers has no retry timer in the deadline index, and stays in its place. One that was queued at
// the level below gets rid of its timer when it leaves the queue, and when the timer fires.
func TestPlaceStandsForRetryTimer(t *testing.T) {
	w := newWorldAt(t, state.LevelFunctions-1, 1)
	p := w.parts[0]
	is := func(timers, places int) {
		t.Helper()
		if gotTimers, gotPlaces := w.retries(p); gotTimers != timers || gotPlaces != places {
			t.Fatalf("%d timers, and %d places with one, must be %d and %d", gotTimers, gotPlaces, timers, places)
		}
	}
	for _, id := range []string{"a", "b", "c"} {
		w.do(startCmd(w.request(), id, "f", ""))
		w.now++
	}
	is(3, 0)
	w.raise(p, state.LevelFunctions)
	v := w.take("w1", 1, "f")[0]
	is(2, 0)
	w.do(startCmd(w.request(), "d", "f", ""))
	is(2, 1)
	w.open(p)
	w.commit(v, "child g; await 0") // a child in a queue
	is(2, 2)
	w.commit(w.only("w2", "g"), "return x") // its end puts the caller into a queue
	is(2, 2)
	w.now += state.RetryMS + 1
	w.tick()
	is(0, 4)
	before := content(p.state)
	w.now += 2 * state.RetryMS
	w.tick()
	if after := content(p.state); after != before {
		t.Errorf("a tick changes queued tasks:\n%s", difference(before, after))
	}
	// b and c are behind a and d since their timers have fired.
	for i, id := range []string{"a", "d", "b", "c"} {
		v := w.take("w1", 1, "f")[0]
		if v.token.Id != id {
			t.Errorf("assigned %s, must be %s", v.token.Id, id)
		}
		is(0, 3-i)
		w.commit(v, "return x")
	}
	// A task that ends while it is queued leaves no row in the queue.
	w.do(startCmd(w.request(), "e", "f", ""))
	is(0, 1)
	w.do(terminateCmd("e", "enough"))
	is(0, 0)
}

// A task with a delay has a retry timer until it is queued.
func TestDelayedTaskHasRetryTimer(t *testing.T) {
	w := newWorld(t, 1)
	p := w.parts[0]
	is := func(timers, places int) {
		t.Helper()
		if gotTimers, gotPlaces := w.retries(p); gotTimers != timers || gotPlaces != places {
			t.Fatalf("%d timers, and %d places with one, must be %d and %d", gotTimers, gotPlaces, timers, places)
		}
	}
	v := w.begin("e", "f")
	w.do(releaseCmd(v.token, "", 500))
	is(1, 0)
	w.open(p)
	w.now += 500
	w.tick()
	is(0, 1)
	v = w.only("w1", "f")
	is(0, 0)
	w.do(releaseCmd(v.token, "", 0))
	is(0, 1)
	w.now += 1000
	w.only("w2", "f")
	w.now += 1_000_000 // the lease ends
	w.tick()
	is(0, 1)
}

// The entry that assigns a queued task writes neither its retry timer nor reads its place a second time.
func TestQueuedTaskIsAssignedWithoutReads(t *testing.T) {
	w := newWorld(t, 1)
	w.unaudited, w.effectsUnchecked = true, true
	p := w.parts[0]
	below := &reading{Reader: p.state, gets: map[keys.Family]int{}, scans: map[keys.Family]int{}}
	cfg := p.cfg
	cfg.CheckInvariants = false
	m, err := New(cfg, below)
	if err != nil {
		t.Fatal(err)
	}
	p.m = m
	w.do(startCmd(w.request(), "e", "f", ""))
	w.do(startCmd(w.request(), "e2", "f", ""))
	clear(below.gets)
	p.index++
	if _, err := m.Apply(p.index, &commandv1.Entry{TimeMs: w.now, Grants: []*commandv1.Grant{grant("w1", 2, "f")}}); err != nil {
		t.Fatal(err)
	}
	for _, write := range m.Writes() {
		if keys.Family(write.Key[0]) == keys.Deadline && keys.DeadlineKind(write.Key[1]) == keys.DeadlineRetry {
			t.Errorf("written: %q", write.Key)
		}
	}
	if n := below.gets[keys.Ready]; n > 0 {
		t.Errorf("%d places are read", n)
	}
}

// A queued task that is written again keeps its place as its only timer. One whose place this transaction has removed has
// no other there.
func TestTaskIsWrittenAgainInItsQueue(t *testing.T) {
	w := newWorld(t, 1)
	p := w.parts[0]
	w.do(startCmd(w.request(), "e", "f", ""))
	m, err := New(p.cfg, p.state)
	if err != nil {
		t.Fatal(err)
	}
	x := m.txn
	x.begin(p.index + 1)
	s := x.store(ns)
	task, _ := s.Task("e")
	s.PutTask(task)
	if err := x.commitChecked(&Effects{}); err != nil {
		t.Error(err)
	}
	x.begin(p.index + 2)
	x.place = lastPlace{ns: ns, target: "f", id: "e", order: task.RetryAt, timed: true, known: true}
	later := task
	later.RetryAt++
	s.PutTask(later)
	s.PutTask(task)
	s.PutTask(later)
	if err := x.commitChecked(&Effects{}); err != nil || len(m.ready) != 0 {
		t.Errorf("queues %v (%v)", m.ready, err)
	}
}

// A task that ends by its deadline while it is being assigned leaves its place, and is assigned to nobody.
func TestPlaceOfTaskThatEndsInItsAssignment(t *testing.T) {
	for _, level := range []uint64{state.LevelFunctions - 1, state.LevelFunctions} {
		w := newWorldAt(t, level, 1)
		start := startCmd(w.request(), "e", "f", "")
		start.GetStart().TimeoutMs = 2000
		w.do(start)
		w.raise(w.parts[0], state.LevelFunctions)
		w.now += 2000
		if got := w.take("w1", 1, "f"); len(got) != 0 {
			t.Errorf("assigned %v", got)
		}
		if timers, places := w.retries(w.parts[0]); timers+places != 0 || len(w.parts[0].m.ready) != 0 {
			t.Errorf("level %d: %d timers and %d places are left, queues %v", level, timers, places, w.parts[0].m.ready)
		}
	}
}

// The audit finds a place that does not stand for the timer of its task, one that does although there is another, and
// one with any other value.
func TestAuditFindsPlaceWithoutTimer(t *testing.T) {
	for _, c := range []struct {
		rule  string
		value []byte
		timer bool
	}{
		{rule: "", value: state.PlaceWithRetry},
		{rule: "", value: []byte{}, timer: true},
		{rule: recovery.PendingTaskNoTimeout, value: []byte{}},
		{rule: recovery.PendingTaskNoTimeout, value: state.PlaceWithRetry, timer: true},
		{rule: audit.RuleDamaged, value: []byte{2}},
	} {
		w := newWorld(t, 1)
		p := w.parts[0]
		w.do(startCmd(w.request(), "e", "f", ""))
		s := &plot{t: t, state: p.state, cfg: p.cfg}
		at := s.readTask("e").RetryAt
		s.put(keys.ReadyOf(ns, "f", at, "e"), c.value)
		if c.timer {
			s.put(keys.DeadlineOf(keys.DeadlineRetry, at, ns, "e"), []byte{})
		}
		report, err := audit.Run(p.state, 0, p.cfg.part())
		if err != nil {
			t.Fatal(err)
		}
		found := ""
		for _, problem := range report.Violations {
			found += problem.Rule + " "
		}
		if c.rule == "" && found != "" || !strings.Contains(found, c.rule) {
			t.Errorf("%+v: found %q", c, found)
		}
	}
}
