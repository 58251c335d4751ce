package machine

import (
	"testing"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/recovery"
)

// The machine keeps the promises and tasks of two accesses. A task that is written again leaves no timer behind, though
// its promise was put a while ago and others were read since.
func TestTaskAfterOtherAccesses(t *testing.T) {
	for name, between := range map[string]func(s *store){
		"another promise is put":  func(s *store) { s.PutPromise(lastOf("other")) },
		"another promise is read": func(s *store) { s.Promise("read") },
	} {
		x := lastTxn(t)
		s := x.store(ns)
		s.PutPromise(lastOf("read"))
		s.Promise("e") // absent
		s.PutPromise(lastOf("e"))
		between(s)
		task := recovery.Task{ID: "e", Incarnation: 1, State: recovery.TaskPending, RetryAt: 5, Target: "f"}
		s.PutTask(task)
		s.Promise("e")
		task.State, task.RetryAt, task.Version, task.PID, task.TTL, task.LeaseAt = recovery.TaskAcquired, 0, 1, "p", 50, 60
		s.PutTask(task)
		if _, armed := x.get(keys.DeadlineOf(keys.DeadlineRetry, 5, ns, "e")); armed {
			t.Errorf("%s: the retry timer of a task that is held is left", name)
		}
		if _, armed := x.get(keys.DeadlineOf(keys.DeadlineLease, 60, ns, "e")); !armed {
			t.Errorf("%s: the lease has no timer", name)
		}
	}
}

// What is written is read, though another object was accessed since, and nothing of it once it is deleted.
func TestLastTwoAreThoseWritten(t *testing.T) {
	x := lastTxn(t)
	s := x.store(ns)
	put := func(objectID string, number uint64) {
		p := lastOf(objectID)
		p.Incarnation = number
		s.PutPromise(p)
		s.PutTask(recovery.Task{ID: objectID, Incarnation: number, State: recovery.TaskSuspended, Target: "f"})
	}
	is := func(objectID string, number uint64) {
		t.Helper()
		p, there := s.Promise(objectID)
		task, held := s.Task(objectID)
		if there != (number > 0) || p.Incarnation != number {
			t.Errorf("promise %s is number %d, %v, not %d", objectID, p.Incarnation, there, number)
		}
		if held != (number > 0) || task.Incarnation != number {
			t.Errorf("task %s is number %d, %v, not %d", objectID, task.Incarnation, held, number)
		}
	}
	put("a", 1)
	put("b", 2)
	put("a", 3)
	is("b", 2)
	is("a", 3)
	put("b", 4)
	is("a", 3)
	is("b", 4)
	for _, family := range []keys.Family{keys.Promise, keys.Task} {
		x.remove(keys.Of(family, ns, "a"))
		x.remove(keys.Of(family, ns, "b"))
	}
	x.forgetLast()
	is("a", 0)
	is("b", 0)
}

// The cache finds the execution that was put last under an id, and none that was dropped.
func TestExecutionsFoundLast(t *testing.T) {
	c := newExecCache(10, 1<<20)
	ex := func(objectID string) *execution {
		ex := &execution{ns: ns, h: state.Header{ID: objectID}, j: newJournal(objectID)}
		c.keep(ex)
		return ex
	}
	is := func(objectID string, want *execution) {
		t.Helper()
		if got := c.get(ns, objectID); got != want {
			t.Errorf("%s: found %p, not %p", objectID, got, want)
		}
	}
	a, b := ex("a"), ex("b")
	for range 3 {
		is("a", a)
		is("b", b)
	}
	next := ex("a")
	is("a", next)
	is("b", b)
	c.drop(next)
	is("a", nil)
	c.drop(b)
	is("b", nil)
	if got := c.get("other", "a"); got != nil {
		t.Errorf("found in another namespace: %p", got)
	}
}

func lastTxn(t *testing.T) *txn {
	t.Helper()
	m, err := New(Config{Partitions: 1}, state.NewMemReader())
	if err != nil {
		t.Fatal(err)
	}
	m.txn.begin(1)
	return m.txn
}

func lastOf(objectID string) recovery.Promise {
	return recovery.Promise{ID: objectID, Incarnation: 1, State: recovery.PromisePending, Target: "f", TimeoutAt: state.Never}
}
