package rpc_test

import (
	"fmt"
	"math"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
)

// A worker that says in its commit that it keeps the function gets the journal from its known_seq on at the next task of
// the same stream. Whatever else it says, it gets the whole journal or a refusal.
func TestKeptEntries(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.hello(&perdurev1.Hello{WorkerId: t.Name(), Functions: []string{"f"}, Capacity: 1, LeaseMs: 600_000})
	next := uint32(0) // child number
	wait := func() []*perdurev1.Event {
		return []*perdurev1.Event{{Kind: &perdurev1.Event_ExecutionAwaiting{ExecutionAwaiting: &perdurev1.ExecutionAwaiting{
			Kind: perdurev1.AwaitKind_AWAIT_KIND_SIGNAL, SignalName: "go", WaitingOn: []string{fmt.Sprint("e:", next)}}}}}
	}
	w.start("e", "f")
	task := s.task()
	// suspend ends the task in a wait, and wake ends the wait.
	suspend := func(s *stream, keeps bool, known uint64) {
		t.Helper()
		m := s.commit(&perdurev1.Commit{Task: task.Token, NextChild: next, KnownSeq: known, Keeps: keeps, Events: wait(), Credit: 1})
		next++
		if m.GetCommit().GetState() != perdurev1.TaskState_TASK_STATE_SUSPENDED {
			t.Fatalf("a wait was answered by %v", m)
		}
	}
	wake := func(s *stream, what string, from uint64) {
		t.Helper()
		if _, err := w.executions.Signal(soon(t), &perdurev1.SignalRequest{Namespace: w.ns, Id: "e", Name: "go", Request: rid()}); err != nil {
			t.Fatal(err)
		}
		task = s.task()
		entries := task.GetEntries()
		if len(entries) == 0 || entries[0].GetSeq() != from || uint64(len(entries)) != task.GetNextSeq()-from {
			t.Fatalf("%s: the task has %d of %d entries, and not all from %d on", what, len(entries), task.GetNextSeq(), from)
		}
	}

	for _, c := range []struct {
		what  string
		keeps bool
		known func(next uint64) uint64
		whole bool
	}{
		{"a function in memory", true, func(next uint64) uint64 { return next }, false},
		{"again", true, func(next uint64) uint64 { return next }, false},
		{"none in memory", false, func(next uint64) uint64 { return next }, true},
		{"a position behind", true, func(uint64) uint64 { return 2 }, false},
		{"the whole journal", true, func(uint64) uint64 { return 0 }, true},
		{"beyond the journal", true, func(next uint64) uint64 { return next + 100 }, true},
		{"far beyond it", true, func(uint64) uint64 { return math.MaxInt64 }, true},
		{"a negative number", true, func(uint64) uint64 { return math.MaxUint64 }, true},
	} {
		known := c.known(task.GetNextSeq())
		suspend(s, c.keeps, known)
		if c.whole {
			known = 0
		}
		wake(s, c.what, known)
	}

	// A commit with a token that is not the task's says nothing of the task's next version.
	other := &perdurev1.TaskToken{Namespace: w.ns, Id: "e", Incarnation: task.Token.Incarnation + 1, Version: task.Token.Version}
	callRefused(t, "another incarnation", s.commit(&perdurev1.Commit{Task: other, NextChild: next, KnownSeq: task.GetNextSeq(), Keeps: true, Events: wait()}),
		perdurev1.Reason_REASON_STALE_TASK)
	suspend(s, false, task.GetNextSeq())
	wake(s, "another incarnation", 0)

	// The next incarnation has another journal.
	m := s.commit(&perdurev1.Commit{Task: task.Token, NextChild: next, KnownSeq: task.GetNextSeq(), Keeps: true, Credit: 1, ContinueAsNew: &perdurev1.ContinueAsNew{}})
	if m.GetCommit().GetState() != perdurev1.TaskState_TASK_STATE_PENDING {
		t.Fatalf("continue-as-new was answered by %v", m)
	}
	former := task
	if task = s.task(); task.Token.Incarnation == former.Token.Incarnation || task.GetEntries()[0].GetEvent().GetExecutionStarted() == nil {
		t.Errorf("the next incarnation's task is %v", task)
	}

	// The worker's next stream knows nothing of this one.
	next = 0
	suspend(s, true, task.GetNextSeq())
	s.cancel()
	receive(t, "the stream's end", s.ended)
	s = w.hello(&perdurev1.Hello{WorkerId: t.Name(), Functions: []string{"f"}, Capacity: 1, LeaseMs: 600_000})
	wake(s, "another stream", 0)
}

// A task is whole if its worker must have dropped the function for others that wait: the worker keeps as many as it says.
func TestKeptFunctions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.hello(&perdurev1.Hello{WorkerId: t.Name(), Functions: []string{"f"}, Capacity: 1, LeaseMs: 600_000, Keeps: 2})
	for _, id := range []string{"a", "b", "c"} {
		w.start(id, "f")
		task := s.task()
		m := s.commit(&perdurev1.Commit{Task: task.Token, KnownSeq: task.GetNextSeq(), Keeps: true, Credit: 1, Events: []*perdurev1.Event{{
			Kind: &perdurev1.Event_ExecutionAwaiting{ExecutionAwaiting: &perdurev1.ExecutionAwaiting{
				Kind: perdurev1.AwaitKind_AWAIT_KIND_SIGNAL, SignalName: "go", WaitingOn: []string{id + ":0"}}}}}})
		if m.GetCommit().GetState() != perdurev1.TaskState_TASK_STATE_SUSPENDED {
			t.Fatalf("a wait was answered by %v", m)
		}
	}
	for id, first := range map[string]uint64{"a": 0, "b": 1, "c": 1} {
		if _, err := w.executions.Signal(soon(t), &perdurev1.SignalRequest{Namespace: w.ns, Id: id, Name: "go", Request: rid()}); err != nil {
			t.Fatal(err)
		}
		task := s.task()
		if got := task.GetEntries()[0].GetSeq(); task.Token.Id != id || got != first {
			t.Errorf("the task of %s, %s, comes from entry %d on, not %d", id, task.Token.Id, got, first)
		}
		m := s.commit(&perdurev1.Commit{Task: task.Token, NextChild: 1, KnownSeq: task.GetNextSeq(), Credit: 1, Events: []*perdurev1.Event{completed("done")}})
		if m.GetCommit().GetState() != perdurev1.TaskState_TASK_STATE_FULFILLED {
			t.Fatalf("the end of %s was answered by %v", id, m)
		}
	}
}
