package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/audit"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
)

// reach ticks and ships until every partition has reached what a cancel or an end reaches.
func (w *world) reach() {
	w.t.Helper()
	for range 4 {
		for _, p := range w.parts {
			w.settleExpired(p)
		}
		w.ship()
	}
}

// What becomes of an open child, by its close policy and by the path on which its parent ends.
func TestClosePolicies(t *testing.T) {
	const runs, cancels, terminates = "RUNNING", "CANCELLING", "CANCELLED"
	paths := []struct {
		name string
		end  func(w *world, v *view)
		// what becomes of a child with policy follow, cancel, terminate, abandon.
		want [4]string
	}{
		{"completes", func(w *world, v *view) { w.commit(v, "return r") }, [4]string{runs, cancels, terminates, runs}},
		{"fails", func(w *world, v *view) { w.commit(v, "fail app:no") }, [4]string{runs, cancels, terminates, runs}},
		{"is asked to cancel", func(w *world, v *view) { w.do(cancelCmd("e", "why", 9000)) }, [4]string{cancels, cancels, cancels, runs}},
		{"is cancelled", func(w *world, v *view) {
			w.do(cancelCmd("e", "why", 9000))
			w.commit(v, "cancelled why")
		}, [4]string{cancels, cancels, terminates, runs}},
		{"is cancelled by the end of its grace", func(w *world, v *view) {
			w.do(cancelCmd("e", "why", 10))
			w.now += 10
			w.tick()
		}, [4]string{cancels, cancels, terminates, runs}},
		{"misses its deadline", func(w *world, v *view) { w.now += 60_000; w.tick() }, [4]string{cancels, cancels, terminates, runs}},
		{"is terminated", func(w *world, v *view) { w.do(terminateCmd("e", "enough")) }, [4]string{terminates, cancels, terminates, runs}},
		{"waits and is terminated", func(w *world, v *view) {
			w.commit(v, "await 0")
			w.do(terminateCmd("e", "enough"))
		}, [4]string{terminates, cancels, terminates, runs}},
	}
	for _, path := range paths {
		for policy, want := range path.want {
			for _, place := range []string{"", " spread", " id=mine"} {
				t.Run(fmt.Sprintf("%s/%d%s", path.name, policy, place), func(t *testing.T) {
					w := newWorld(t, 3)
					start := startCmd(w.request(), "e", "f", "in")
					start.GetStart().TimeoutMs = 60_000
					w.do(start)
					v := w.only("w1", "f")
					w.commit(v, fmt.Sprintf("child g x close=%d%s; nothing", policy, place))
					w.ship()
					child := w.only("w2", "g")
					if place == " id=mine" && child.token.Id != "mine" {
						t.Fatalf("the child is %v", child.token)
					}
					path.end(w, v)
					for _, p := range w.parts {
						w.open(p) // what is left to do is in the state
					}
					w.reach()
					d := w.describe(child.token.Id)
					if got := strings.TrimPrefix(d.Status.String(), "EXECUTION_STATUS_"); got != want {
						t.Fatalf("the child is %s, must be %s", got, want)
					}
					if d.ParentId != "e" {
						t.Errorf("its parent is shown as %q", d.ParentId)
					}
					if want == runs {
						if path.name == "misses its deadline" {
							child = w.only("w3", "g") // the lease has ended, too
						}
						w.commit(child, "return r")
						return
					}
					if d.CancelReason == "" || path.name == "is terminated" && d.CancelReason != "enough" {
						t.Errorf("the reason is %q", d.CancelReason)
					}
				})
			}
		}
	}
}

// Continue-as-new ends the incarnation: children with a close policy follow it, those elsewhere without one run on, and
// those in the parent's partition are ended with its operations.
func TestClosePolicyContinueAsNew(t *testing.T) {
	for _, c := range []struct{ option, want string }{
		{"close=1", "CANCELLING"}, {"close=2 spread", "CANCELLED"}, {"close=2 id=mine", "CANCELLED"}, {"close=3", "RUNNING"}, {"spread", "RUNNING"},
	} {
		w := newWorld(t, 3)
		v := w.begin("e", "f")
		w.commit(v, "child g x "+c.option+"; nothing")
		w.ship()
		child := w.only("w2", "g")
		w.commit(v, "continue next")
		w.reach()
		if got := strings.TrimPrefix(w.describe(child.token.Id).Status.String(), "EXECUTION_STATUS_"); got != c.want {
			t.Errorf("%s: the child is %s, must be %s", c.option, got, c.want)
		}
	}
}

// A cancel reaches every generation of a call tree, and more children than one command may touch.
func TestCancelReachesAllChildren(t *testing.T) {
	const n = childrenBudget*2 + 7
	w := newWorld(t, 1)
	w.unaudited = true
	v := w.begin("e", "f")
	for range n {
		w.commit(v, "child g x")
	}
	children := w.take("w2", n, "g")
	w.commit(children[0], "child h y; await 0")
	grandchild := w.only("w3", "h")
	w.unaudited = false
	w.do(cancelCmd("e", "enough", 1000))
	w.one(tickCmd(0))
	if got := w.describe(fmt.Sprint("e:", n-1)).Status; got != perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING {
		t.Errorf("one command has reached all children: the last one is %s", got)
	}
	w.reach()
	for _, c := range append(children, grandchild) {
		if d := w.describe(c.token.Id); d.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLING || d.CancelReason != "enough" {
			t.Fatalf("%s is %s because of %q", c.token.Id, d.Status, d.CancelReason)
		}
	}
}

// A child's own id: it names the execution, and one that is taken is refused by its name as the child's result.
func TestChildOwnID(t *testing.T) {
	for _, parts := range []int{1, 4} {
		w := newWorld(t, parts)
		w.do(startCmd(w.request(), "taken", "f2", "in"))
		v := w.begin("e", "f")
		w.commit(v, "child g x id=mine; child g x id=taken")
		w.ship()
		w.read(v)
		child := w.only("w2", "g")
		if child.token.Id != "mine" {
			t.Fatalf("the child is %v", child.token)
		}
		reply := w.commit(v, "await 1")
		if reply.State != perdurev1.TaskState_TASK_STATE_ACQUIRED {
			t.Fatalf("%d partitions: it waits for a child whose id is taken: %v", parts, reply)
		}
		var got string
		for _, e := range w.journal("e") {
			if done := e.Event.GetInvokeCompleted(); done.GetPromiseId() == "e:1" {
				got = showOutcome(done.Result)
			}
		}
		if want := `!conflict "the child's id \"taken\" is taken"`; got != want {
			t.Errorf("the result is %s, must be %s", got, want)
		}
		w.commit(child, "return r")
		w.ship()
		w.read(v)
		if w.promise("e:0").State != perdurev1.PromiseState_PROMISE_STATE_RESOLVED {
			t.Errorf("the promise is %v", w.promise("e:0"))
		}
		w.commitRefused(v, "child g x id=a:0", perdurev1.Reason_REASON_BAD_ID, "")
	}
}

// A child with a delay is not given to a worker before; its timeout counts from then, and a cancel ends it at once.
func TestChildDelay(t *testing.T) {
	for _, option := range []string{"", " spread", " id=mine"} {
		w := newWorld(t, 3)
		v := w.begin("e", "f")
		w.commit(v, "child g x delay=5000 timeout=1000"+option+"; await 0")
		w.ship()
		childID := "e:0"
		if _, after, ok := strings.Cut(w.describe("e").WakeSource, ", execution "); ok {
			childID = after
		}
		if d := w.describe(childID); d.WakeSource != "start delay" || d.DeadlineMs != w.now+6000 {
			t.Errorf("%s: it is woken by %q, ends at %d", childID, d.WakeSource, d.DeadlineMs)
		}
		w.now += 4999
		w.reach()
		if got := w.take("w2", 9, "g"); len(got) > 0 {
			t.Fatalf("it begins early: %v", got[0].token)
		}
		w.now++
		w.reach()
		w.commit(w.only("w2", "g"), "return r")
		w.ship()

		w.commit(w.only("w1", "f"), "child g x delay=5000"+option+"2; await 1")
		w.ship()
		w.do(cancelCmd("e", "why", 1000))
		w.reach()
		if got := w.promise("e:1").State; got != perdurev1.PromiseState_PROMISE_STATE_REJECTED && got != perdurev1.PromiseState_PROMISE_STATE_REJECTED_CANCELED {
			t.Errorf("%s: a child that has not begun is %s after a cancel", option, got)
		}
	}
}

// A restart that starts children again replaces one with an id of its own.
func TestChildOwnIDStartedAgain(t *testing.T) {
	w := newWorld(t, 3)
	v := w.begin("e", "f")
	w.commit(v, "child g x id=mine close=2; await 0")
	w.ship()
	child := w.only("w2", "g")
	w.do(&commandv1.Command{Request: &perdurev1.RequestID{Id: w.request()}, Namespace: ns, Id: "e", Kind: &commandv1.Command_Restart{
		Restart: &perdurev1.RestartRequest{Id: "e", From: perdurev1.RestartFrom_RESTART_FROM_EVENT, Event: 3, NewChildren: true}}})
	w.reach()
	if refused := w.one(w.commitCmd(child, "return old")); wire.ReplyError(refused) == nil {
		t.Error("the former child effects something")
	}
	again := w.only("w2", "g")
	if again.token.Id != "mine" || again.token.Incarnation == child.token.Incarnation {
		t.Fatalf("it is started again as %v", again.token)
	}
	w.commit(again, "return new")
	w.ship()
	w.commit(w.only("w1", "f"), "return")
}

// Below their feature level children run on, as they did.
func TestClosePolicyNeedsLevel(t *testing.T) {
	w := newWorldAt(t, state.LevelFunctions-1, 3)
	v := w.begin("e", "f")
	w.commit(v, "child g x; child g y spread; nothing")
	w.ship()
	w.do(cancelCmd("e", "why", 1000))
	w.reach()
	for _, c := range w.take("w2", 9, "g") {
		if got := w.describe(c.token.Id).Status; got != perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING {
			t.Errorf("%s is %s", c.token.Id, got)
		}
	}
	for text, want := range map[string]uint64{"child g x": 1, "child g x id=a": 6, "child g x delay=1": 6, "child g x close=1": 6} {
		if level, _ := LevelOf(w.commitCmd(v, text)); level != want {
			t.Errorf("%q needs level %d, must be %d", text, level, want)
		}
	}
}

// Damage of what leads to the children of a cancelled execution is named.
func TestAuditFindsChildren(t *testing.T) {
	w := newWorld(t, 1)
	w.commit(w.begin("e", "f"), "child g x; await 0")
	w.do(cancelCmd("e", "why", 1000))
	for _, c := range []struct {
		what, rule string
		plant      func(s *plot)
	}{
		{"a deadline that is not in the index", audit.RuleDeadline, func(s *plot) { s.header("e", func(h *state.Header) { h.ChildrenAt = 1 }) }},
		{"a child to go on with, and no deadline", audit.RuleHeader, func(s *plot) { s.header("e", func(h *state.Header) { h.ChildrenAt, h.ChildrenFrom = 0, 3 }) }},
		{"children of a running execution", audit.RuleHeader, func(s *plot) { s.header("e:0", func(h *state.Header) { h.ChildrenAt = 1 }) }},
		{"a deadline that no execution has", audit.RuleDeadline, func(s *plot) { s.put(keys.DeadlineOf(keys.DeadlineChildren, 7, ns, "e"), []byte{}) }},
		{"terminated and open", audit.RuleHeader, func(s *plot) { s.header("e", func(h *state.Header) { h.Terminated = true }) }},
		{"a close policy without a parent", audit.RuleHeader, func(s *plot) { s.header("e", func(h *state.Header) { h.ClosePolicy = 1 }) }},
	} {
		s := &plot{t: t, state: w.parts[0].state.Clone(), cfg: w.parts[0].cfg}
		c.plant(s)
		if found := audited(t, s.state, s.cfg); !slices.ContainsFunc(found, func(v audit.Violation) bool { return v.Rule == c.rule }) {
			t.Errorf("%s is not found: %s", c.what, lines(found))
		}
	}
}

// A detached start is completed by the partition of its id: the same start again is a success, another one is
// a conflict that names the id. It has no parent, and outlives the function that sent it.
func TestDetachedStart(t *testing.T) {
	for _, parts := range []int{1, 4} {
		w := newWorld(t, parts)
		w.do(startCmd(w.request(), "taken", "g", "other"))
		w.do(startCmd(w.request(), "same", "g", "x"))
		v := w.begin("e", "f")
		w.commit(v, "spawn mine h x delay=5000; spawn taken g x; spawn same g x; nothing")
		w.ship()
		for n, want := range []string{`""`, `!conflict "execution \"taken\" was started before with another input"`, `""`} {
			if got := w.sendResult("e", uint32(n)); got != want {
				t.Errorf("%d partitions: start %d has the result %s, must be %s", parts, n, got, want)
			}
		}
		d := w.describe("mine")
		if d.ParentId != "" || d.WakeSource != "start delay" || d.Function != "h" {
			t.Errorf("it is started as %v", d)
		}
		w.do(terminateCmd("e", "enough"))
		w.now += 5000
		w.reach()
		w.commit(w.only("w2", "h"), "return r")
	}
}

// The next incarnation of a parent calls a child by the id of the former one's: it is taken, and the child is
// left alone.
func TestChildOwnIDAfterContinueAsNew(t *testing.T) {
	w := newWorld(t, 3)
	v := w.begin("e", "f")
	w.commit(v, "child g x id=mine; nothing")
	w.ship()
	child := w.only("w2", "g")
	w.commit(v, "continue next")
	w.reach()
	v = w.only("w1", "f")
	w.commit(v, "child g x id=mine; nothing")
	w.ship()
	if got, want := w.sendResult("e", 0), `!conflict "the child's id \"mine\" is taken"`; got != want {
		t.Errorf("the result is %s, must be %s", got, want)
	}
	w.commit(child, "return r")
}
