package machine

import (
	"slices"
	"strings"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/audit"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// A cancelled execution gets its clean-up in the apply that writes its end, however it is cancelled, with or without a
// worker. Its caller learns of the end at once.
func TestCleanupStarts(t *testing.T) {
	const id = "e:4294967295"
	for _, c := range []struct {
		name   string
		cancel func(w *world, v *view)
		reason string // "" if there is no clean-up
	}{
		{"acknowledged", func(w *world, v *view) {
			w.do(cancelCmd("e", "customer withdrew", 100))
			w.commit(v, "cancelled customer-withdrew")
		}, "customer-withdrew"},
		{"the function ends meanwhile", func(w *world, v *view) {
			w.do(cancelCmd("e", "customer withdrew", 100))
			w.commit(v, "return r")
		}, "customer withdrew"},
		{"the function fails meanwhile", func(w *world, v *view) {
			w.do(cancelCmd("e", "customer withdrew", 100))
			w.commit(v, "fail app:no")
		}, "customer withdrew"},
		{"the worker is gone", func(w *world, v *view) {
			w.do(cancelCmd("e", "customer withdrew", 100))
			w.now += 100
			w.tick()
		}, "customer withdrew: the grace period ended"},
		{"no reason, no worker", func(w *world, v *view) {
			w.do(cancelCmd("e", "", 100))
			w.now += 100
			w.tick()
		}, "the grace period ended"},
		{"while it waits", func(w *world, v *view) {
			w.commit(v, "sleep 500000; await 1")
			w.do(cancelCmd("e", "why", 100))
			w.now += 100
			w.tick()
		}, "why: the grace period ended"},
		{"deadline", func(w *world, v *view) { w.now += 60_000; w.tick() }, "timed out"},
		{"terminated", func(w *world, v *view) { w.do(terminateCmd("e", "enough")) }, ""},
		{"terminated while cancelling", func(w *world, v *view) {
			w.do(cancelCmd("e", "why", 100))
			w.do(terminateCmd("e", "enough"))
		}, ""},
		{"completed", func(w *world, v *view) { w.commit(v, "return r") }, ""},
		{"failed", func(w *world, v *view) { w.commit(v, "fail app:no") }, ""},
		{"needed no more", func(w *world, v *view) {
			w.commit(v, "cleanup -1; nothing")
			w.do(cancelCmd("e", "why", 100))
			w.commit(v, "cancelled why")
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 1)
			start := startCmd(w.request(), "e", "f", "in")
			start.GetStart().TimeoutMs = 60_000
			w.do(start)
			v := w.only("w1", "f")
			w.commit(v, "intent charge; cleanup 5000")
			c.cancel(w, v)
			e := w.describe("e")
			if e.Outcome == nil || w.promise("e").State == perdurev1.PromiseState_PROMISE_STATE_PENDING {
				t.Fatalf("it has not ended: %v", e)
			}
			if c.reason == "" {
				if e.Cleanup != nil || len(w.take("w2", 9, state.FunctionCleanup+"f")) > 0 {
					t.Errorf("it has the clean-up %v", e.Cleanup)
				}
				return
			}
			if got := e.Outcome.GetFailure().GetMessage(); got != c.reason || e.Cleanup.GetId() != id {
				t.Fatalf("cancelled because of %q, must be %q; the clean-up is %v", got, c.reason, e.Cleanup)
			}
			// A worker that does not know clean-ups must not run the function from its beginning.
			if got := w.take("old", 9, "f"); len(got) > 0 {
				t.Fatalf("a worker without clean-ups gets %v", got[0].token)
			}
			clean := w.only("w2", state.FunctionCleanup+"f")
			task := w.query(&commandv1.Query{Id: id, Kind: &commandv1.Query_Task{Task: &commandv1.TaskQuery{
				Incarnation: clean.token.Incarnation, Version: clean.token.Version}}}).GetTask()
			if of := task.GetCleanupOf(); of.GetId() != "e" || of.GetIncarnation() != e.Incarnation || of.GetFunction() != "f" ||
				of.GetNextSeq() != e.JournalEvents || task.GetDeadlineMs() != w.now+5000 {
				t.Errorf("the worker gets %v", task)
			}
			w.commit(clean, "step refund -> done; return")
			if d := w.describe(id); d.CleanupOf != "e" || d.ParentId != "e" || d.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED {
				t.Errorf("the clean-up: %v", d)
			}
			if got := w.describe("e").Cleanup.GetStatus(); got != perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED {
				t.Errorf("its status is shown as %v", got)
			}
			if got := w.kinds(id); got != "ExecutionStarted InvokeScheduled InvokeStarted InvokeCompleted ExecutionCompleted" {
				t.Errorf("its journal: %s", got)
			}
		})
	}
}

// A clean-up ends by its own bound, has none of its own, and its end changes nothing of the cancelled execution.
func TestCleanupBounded(t *testing.T) {
	const id = "e:4294967295"
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	w.commit(v, "cleanup 5000; nothing")
	w.do(cancelCmd("e", "why", 10))
	// What comes after the request registers nothing, and takes nothing back.
	w.commit(v, "cleanup -1; nothing")
	w.commit(v, "cancelled why")
	before := w.journal("e")
	clean := w.only("w2", state.FunctionCleanup+"f")
	w.commitRefused(clean, "cleanup 5000; nothing", perdurev1.Reason_REASON_RULE_BROKEN, "cleanup")
	w.commitRefused(clean, "continue again", perdurev1.Reason_REASON_RULE_BROKEN, ruleContinue)
	w.do(cancelCmd(id, "stop that", 0))
	w.now += 5000
	w.tick()
	if d := w.describe(id); d.Outcome.GetFailure().GetType() != "timeout" || d.Cleanup != nil {
		t.Errorf("the clean-up at its bound: %v", d)
	}
	if after := w.journal("e"); len(after) != len(before) {
		t.Errorf("the cancelled execution has %d events more", len(after)-len(before))
	}
	if got := w.query(&commandv1.Query{Id: "e", Kind: &commandv1.Query_Result{Result: &perdurev1.ResultRequest{}}}).GetResult().CleanupId; got != id {
		t.Errorf("the result names the clean-up %q", got)
	}
}

// The reason that a caller gives for a cancel is kept for graph runs too, and for their attempts.
func TestCancelReasonKept(t *testing.T) {
	w := newWorld(t, 1)
	w.submit("run", graphOf("a; b after a"), "")
	v := w.only("w1", "f")
	w.do(cancelCmd("run", "the fair is off", 10))
	if got := w.describe(v.token.Id).CancelReason; got != "the fair is off" {
		t.Errorf("the attempt was cancelled because of %q", got)
	}
	w.commit(v, "return r")
	for _, id := range []string{"run", v.token.Id} {
		if e := w.describe(id); e.CancelReason != "the fair is off" || e.Outcome.GetFailure().GetMessage() != "the fair is off" {
			t.Errorf("%s was cancelled because of %q: %v", id, e.CancelReason, e.Outcome)
		}
	}
	journal := w.journal("run")
	if got := showEvent(journal[len(journal)-1].Event); !strings.Contains(got, "the fair is off") {
		t.Errorf("its journal ends with %s", got)
	}
}

// Below the level of clean-ups nothing of them is written: an older replica applies the same cancel alike.
func TestCancelReasonLevel(t *testing.T) {
	w := newWorldAt(t, state.LevelReplies, 1)
	v := w.begin("e", "f")
	w.do(cancelCmd("e", "why", 10))
	w.commit(v, "return r")
	if e := w.describe("e"); e.CancelReason != "" || e.Outcome.GetFailure().GetMessage() != "cancelled" {
		t.Errorf("%v", e)
	}
}

// An id gets no new incarnation while its clean-up runs, which reads the cancelled journal.
func TestCleanupBeforeRestart(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	w.commit(v, "cleanup 5000; nothing")
	w.do(cancelCmd("e", "why", 10))
	w.commit(v, "cancelled why")
	again := &commandv1.Command{Namespace: ns, Id: "e", Request: &perdurev1.RequestID{Id: w.request()},
		Kind: &commandv1.Command_Restart{Restart: &perdurev1.RestartRequest{Id: "e", From: perdurev1.RestartFrom_RESTART_FROM_START}}}
	w.refused(again, perdurev1.Reason_REASON_RULE_BROKEN)
	w.commit(w.only("w2", state.FunctionCleanup+"f"), "return")
	again.Request.Id = w.request()
	w.do(again)
	if e := w.describe("e"); e.Cleanup != nil || e.CancelReason != "" || e.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING {
		t.Errorf("restarted as %v", e)
	}
}

// The audit compares a cancelled execution with its clean-up, from either side.
func TestAuditFindsCleanup(t *testing.T) {
	const id = "e:4294967295"
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	w.commit(v, "cleanup 5000; nothing")
	w.do(cancelCmd("e", "why", 10))
	w.commit(v, "cancelled why")
	for _, c := range []struct {
		what, rule string
		plant      func(s *plot)
	}{
		{"no clean-up", audit.RuleCleanup, func(s *plot) { s.header("e", func(h *state.Header) { h.CleanupChild = 0 }) }},
		{"another clean-up", audit.RuleCleanup, func(s *plot) { s.header("e", func(h *state.Header) { h.CleanupChild-- }) }},
		{"a clean-up of an operation's number", audit.RuleCleanup, func(s *plot) { s.header("e", func(h *state.Header) { h.CleanupChild = 3 }) }},
		{"another bound", audit.RuleCleanup, func(s *plot) { s.header("e", func(h *state.Header) { h.CleanupMS++ }) }},
		{"a clean-up of another incarnation", audit.RuleCleanup, func(s *plot) { s.header(id, func(h *state.Header) { h.ParentIncarnation++ }) }},
		{"a clean-up without a cancelled execution", audit.RuleCleanup, func(s *plot) { s.drop(keys.Of(keys.Header, ns, "e")) }},
		{"another reason", audit.RuleHeader, func(s *plot) { s.header("e", func(h *state.Header) { h.CancelReason = "because" }) }},
	} {
		s := &plot{t: t, state: w.parts[0].state.Clone(), cfg: w.parts[0].cfg}
		c.plant(s)
		if found := audited(t, s.state, s.cfg); !slices.ContainsFunc(found, func(v audit.Violation) bool { return v.Rule == c.rule }) {
			t.Errorf("%s is not found: %s", c.what, lines(found))
		}
	}
}

// A new incarnation of a parent begins its work after the clean-ups of the former one's children have ended: what they
// undo is undone. Children that nothing cleans up after end at once.
func TestCleanupOutlivesParentsIncarnation(t *testing.T) {
	const clean = "p:0:4294967295"
	for _, c := range []struct {
		name string
		next func(w *world, v *view)
	}{
		{"continues as new", func(w *world, v *view) { w.commit(v, "continue again") }},
		{"is restarted", func(w *world, v *view) { w.do(restartCmd(w.request(), "p", fromStart, 0)) }},
		{"is terminated and started again", func(w *world, v *view) {
			w.do(terminateCmd("p", "enough"))
			again := startCmd(w.request(), "p", "f", "in")
			again.GetStart().Reuse = perdurev1.Reuse_REUSE_ALWAYS
			w.do(again)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 1)
			v := w.begin("p", "f")
			w.commit(v, "child g; child h")
			child, other := w.only("w2", "g"), w.only("w2", "h")
			w.commit(child, "child i; step charge -> paid; cleanup 50000")
			w.do(cancelCmd("p:0", "lost the race", 100))
			w.commit(child, "cancelled lost")
			w.read(v)
			c.next(w, v)
			w.tick()
			w.commitRefused(other, "return", perdurev1.Reason_REASON_STALE_TASK, "")
			if got := w.take("w1", 9, "f"); len(got) > 0 || w.describe("p").WakeSource == "no worker" {
				t.Fatalf("the next incarnation has begun, with %d tasks: %v", len(got), w.describe("p"))
			}
			undo := w.only("w2", state.FunctionCleanup+"g")
			w.commit(undo, "child j")
			w.now += 200 // within the lease
			w.tick()
			w.commit(w.only("w3", "j"), "return done")
			w.read(undo)
			w.commit(undo, "step refund -> done; return")
			w.tick()
			w.commit(w.only("w1", "f"), "child g; return")
			if got := w.describe("p:0"); got.Cleanup != nil || w.promiseExists(clean) {
				t.Errorf("of the former child there is left %v", got)
			}
		})
	}
}

// A child that is being cleaned up after does not start again for its restarted parent: the restart is
// refused, or finds the id of a child with an id of its own taken.
func TestCleanupBeforeChildStartsAgain(t *testing.T) {
	for _, place := range []string{"", " id=mine"} {
		w := newWorld(t, 1)
		v := w.begin("p", "f")
		w.commit(v, "child g in"+place+"; await 0")
		child := w.only("w2", "g")
		w.commit(child, "step charge -> paid; cleanup 50000")
		w.do(cancelCmd(child.token.Id, "too slow", 100))
		w.commit(child, "cancelled slow")
		v = w.resumed(v)
		w.commit(v, "fail app:no")
		begins := uint64(slices.Index(strings.Fields(w.kinds("p")), "ExecutionAwaiting"))
		restart := func() *commandv1.Command {
			again := restartCmd(w.request(), "p", fromEvent, begins)
			again.GetRestart().NewChildren = true
			return again
		}
		if place == "" {
			w.refused(restart(), perdurev1.Reason_REASON_RULE_BROKEN)
		} else {
			w.do(restart())
			v = w.only("w1", "f")
			w.commit(v, "fail app:no")
			if got := w.kinds("p"); !strings.Contains(got, "InvokeCompleted") {
				t.Fatalf("the child with the taken id has not failed: %s", got)
			}
		}
		w.commit(w.only("w2", state.FunctionCleanup+"g"), "step refund -> done; return")
		if place == "" {
			w.do(restart())
			w.commit(w.only("w2", "g"), "return")
		}
	}
}
