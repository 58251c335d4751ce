package machine

import (
	"strings"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

const (
	acquired  = perdurev1.TaskState_TASK_STATE_ACQUIRED
	suspended = perdurev1.TaskState_TASK_STATE_SUSPENDED
	fulfilled = perdurev1.TaskState_TASK_STATE_FULFILLED
)

// A wait ends with the result that completes it, and not before.
func TestWaits(t *testing.T) {
	for _, c := range []struct {
		wait string
		// wakes is the number of results after which the task is back: child 0, then 1, then the timer 2.
		wakes int
	}{
		{"await 0", 1}, {"await 1", 2}, {"await 2", 3},
		{"any 0", 1}, {"any 1,2", 2}, {"any 0,1,2", 1},
		{"all 0", 1}, {"all 0,1", 2}, {"all 0,1,2", 3}, {"all 0,2", 3},
	} {
		t.Run(c.wait, func(t *testing.T) {
			w := newWorld(t, 1)
			v := w.begin("e", "f")
			if got := w.commit(v, "child g; child g; sleep 5000; "+c.wait); got.State != suspended {
				t.Fatalf("answered %v", got)
			}
			for i, step := range []func(){
				func() { w.commit(w.views[viewKey{"w2", "e:0"}], "return a") },
				func() { w.commit(w.views[viewKey{"w2", "e:1"}], "fail app:b") },
				func() { w.now = 6000; w.tick() },
			} {
				if i == 0 {
					w.take("w2", 2, "g")
				}
				step()
				back := w.describe("e").Task.State == "pending"
				if back != (i+1 >= c.wakes) {
					t.Fatalf("after %d results the task is %v", i+1, w.describe("e").Task)
				}
				if back != strings.Contains(w.kinds("e"), "ExecutionResumed") {
					t.Fatalf("after %d results the journal is %s", i+1, w.kinds("e"))
				}
			}
			v = w.only("w3", "f")
			if got := w.commit(v, "return x"); got.State != fulfilled {
				t.Errorf("answered %v", got)
			}
		})
	}
}

// A wait that is satisfied when its commit applies is not recorded: the worker continues, and the answer has
// the missing entries.
func TestNeedlessWait(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	w.commit(v, "child g; child g; sleep 400000")
	child := w.take("w2", 2, "g")[0]
	w.read(v)
	// The result arrives between two commits of the worker: its next commit is still valid.
	w.commit(child, "return a")
	reply := w.commit(v, "step s -> t; await 0")
	if reply.State != acquired || len(reply.Entries) != 1 || reply.Entries[0].Event.GetInvokeCompleted().GetPromiseId() != "e:0" {
		t.Errorf("answered %v", reply)
	}
	if strings.Contains(w.kinds("e"), "ExecutionAwaiting") {
		t.Errorf("the wait was recorded: %s", w.kinds("e"))
	}
	for _, wait := range []string{"await 0", "any 0,1", "any 0,2", "all 0"} {
		before := w.kinds("e")
		if got := w.commit(v, wait); got.State != acquired || len(got.Entries) != 0 || w.kinds("e") != before {
			t.Errorf("%s: answered %v", wait, got)
		}
	}
	if strings.Contains(w.kinds("e"), "ExecutionAwaiting") {
		t.Errorf("a wait was recorded: %s", w.kinds("e"))
	}
	w.commitRefused(v, "await 0; step late", perdurev1.Reason_REASON_RULE_BROKEN, "")
	if got := w.commit(v, "all 0,1"); got.State != suspended {
		t.Errorf("answered %v", got)
	}
}

// A wait on what is due already, while only the tick is missing, does not sleep either.
func TestWaitOnExpired(t *testing.T) {
	for _, c := range []struct {
		name, first, wait string
		state             perdurev1.TaskState
		got               string
	}{
		{"timer", "sleep 3000", "await 0", acquired, "TimerFired ExecutionResumed"},
		{"child", "child g timeout=3000", "await 0", acquired, "InvokeStarted InvokeCompleted ExecutionResumed"},
		{"spread child", "child g spread timeout=3000", "await 0", acquired, "InvokeStarted InvokeCompleted ExecutionResumed"},
		{"any", "sleep 3000; sleep 400000", "any 0,1", acquired, "TimerFired ExecutionResumed"},
		{"two of two", "sleep 3000; child g timeout=2000", "all 0,1", acquired, "TimerFired InvokeStarted InvokeCompleted ExecutionResumed"},
		{"one of two", "sleep 3000; sleep 400000", "all 0,1", suspended, ""},
		{"at once", "sleep 0", "await 0", acquired, "TimerFired"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 3)
			v := w.begin("e", "f")
			if c.name == "at once" {
				c.first, c.wait = "step s", "sleep 0; await 1"
			}
			w.commit(v, c.first)
			w.now += 3500
			reply := w.commit(v, c.wait)
			var got []string
			for _, e := range reply.Entries {
				got = append(got, strings.Fields(showEvent(e.Event))[0])
			}
			if reply.State != c.state || strings.Join(got, " ") != c.got {
				t.Errorf("answered %v", reply)
			}
			if c.state == suspended {
				if got := w.describe("e"); got.WakeSource != "timer e:1" {
					t.Errorf("it is %v", got)
				}
				w.now = 500_000
				w.tick()
				v = w.only("w2", "f")
			}
			w.commit(v, "return x")
		})
	}
}

// So it is when an earlier wait has left its callback on what is due.
func TestWaitOnExpiredAgain(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	w.commit(v, "child g timeout=3000; child g; any 0,1")
	children := w.take("w2", 2, "g")
	w.commit(children[1], "return b")
	v = w.only("w1", "f")
	w.now += 3500
	if got := w.commit(v, "await 0"); got.State != acquired || len(got.Entries) != 2 {
		t.Errorf("answered %v", got)
	}
	w.commit(v, "return x")
}

// A malformed wait is refused by name, whether or not what it names is resolved.
func TestMalformedWait(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	w.commit(v, "step a; sleep 0; child g; random r; set; wait s timeout=1")
	w.now += 10
	w.tick()
	v = w.only("w1", "f")
	w.commit(v, "intent b; child g")
	w.do(signalCmd(nil, "e", "s", "x"))
	for _, c := range []struct{ ops, rule string }{
		{"await", "R12"}, {"any", "R12"}, {"all", "R12"}, {"await 0,1", "R12"}, {"all 1,0", "R12"}, {"all 0,0", "R12"},
		{"await 3", "R12"}, {"await 4", "R12"}, {"await 5", "R12"}, {"await 9", "R12"}, {"await other:0", "R12"}, {"await e", "R12"},
		{"wait s; wait s", ""}, {"step x; await 2; step y", ""},
		// A local step has no promise that could wake anybody.
		{"await 6", "awaited_exists"}, {"all 6,7", "awaited_exists"},
	} {
		w.commitRefused(v, c.ops, perdurev1.Reason_REASON_RULE_BROKEN, c.rule)
	}
	for _, ev := range []*perdurev1.Event{
		awaiting(perdurev1.AwaitKind_AWAIT_KIND_UNSPECIFIED, ""),
		awaiting(perdurev1.AwaitKind_AWAIT_KIND_UNSPECIFIED, "", "e:0"),
		awaiting(17, "", "e:0"),
		awaiting(256+1, "", "e:0"),
		awaiting(perdurev1.AwaitKind_AWAIT_KIND_SINGLE, "s", "e:0"),
		awaiting(perdurev1.AwaitKind_AWAIT_KIND_SIGNAL, "s"),
		awaiting(perdurev1.AwaitKind_AWAIT_KIND_SIGNAL, "s", "e:0"),
		awaiting(perdurev1.AwaitKind_AWAIT_KIND_SIGNAL, "s", "e:8", "e:9"),
		awaiting(perdurev1.AwaitKind_AWAIT_KIND_SIGNAL, "none", "e:1"),
	} {
		cmd := w.commitCmd(v, "nothing")
		cmd.GetCommit().Events = []*perdurev1.Event{ev}
		w.refused(cmd, perdurev1.Reason_REASON_RULE_BROKEN)
	}
	if got := w.commit(v, "wait s"); got.State != acquired || len(got.Entries) != 2 {
		t.Errorf("after all that: %v", got)
	}
}

// The other callbacks of an ended any-wait resume no task later.
func TestLeftOverCallbacks(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	w.commit(v, "child g; child g; child g; any 0,1,2")
	children := w.take("w2", 3, "g")
	w.commit(children[1], "return b")
	v = w.only("w1", "f")
	// One result while it runs, one while it sleeps on something else.
	w.commit(children[0], "return a")
	w.commit(v, "sleep 5000; wait s")
	w.commit(children[2], "return c")
	if got := w.describe("e"); got.Task.State != "suspended" || got.WakeSource != "signal s" {
		t.Errorf("woken by a wait of the past: %v", got)
	}
	w.now += 6000
	w.tick()
	if got := w.describe("e"); got.Task.State != "suspended" {
		t.Errorf("woken by a timer without a waiter: %v", got)
	}
	w.do(signalCmd(nil, "e", "s", "x"))
	w.commit(w.only("w1", "f"), "return x")
}

// An execution that awaits its own operations has no callback with a row. A wait that began when each had one ends like
// any other, and leaves none.
func TestCallbacksWithoutRows(t *testing.T) {
	w := newWorldAt(t, state.LevelFunctions-1, 1)
	p := w.parts[0]
	rows := func(want int) {
		t.Helper()
		got := 0
		if err := p.state.Scan([]byte{byte(keys.Callback)}, []byte{byte(keys.AwaitedBy) + 1}, func(_, _ []byte) bool {
			got++
			return true
		}); err != nil || got != want {
			t.Errorf("%d rows, must be %d: %v", got, want, err)
		}
	}
	v := w.begin("e", "f")
	w.commit(v, "child g; child g; child g; all 0,1")
	children := w.take("w2", 3, "g")
	rows(4)
	w.raise(p, state.LevelFunctions)
	w.commit(children[0], "return a")
	rows(2)
	w.open(p)
	w.commit(children[1], "return b")
	rows(0)
	w.commit(w.only("w1", "f"), "await 2")
	rows(0)
	w.open(p)
	w.commit(children[2], "return c")
	w.commit(w.only("w1", "f"), "sleep 5000; wait s")
	rows(0)
	w.now += 6000
	w.tick()
	if got := w.describe("e"); got.Task.State != "suspended" {
		t.Errorf("woken by what it does not wait for: %v", got)
	}
	w.do(signalCmd(nil, "e", "s", "x"))
	w.commit(w.only("w1", "f"), "return x")
}

// A child whose end comes when its caller's deadline has come as well finds the caller gone.
func TestChildEndsPastCallersDeadline(t *testing.T) {
	for _, how := range []string{"commit", "tick", "terminate", "spread"} {
		t.Run(how, func(t *testing.T) {
			w := newWorld(t, 3)
			start := startCmd(w.request(), "e", "f", "")
			start.GetStart().TimeoutMs = 4000
			w.do(start)
			v := w.only("w1", "f")
			if how == "spread" {
				w.commit(v, "child g spread; await 0")
				w.ship()
			} else {
				w.commit(v, "child g timeout=3500; await 0")
			}
			child := w.only("w2", "g")
			w.now += 3000
			w.do(heartbeatCmd("w2", child.token))
			w.now += 2000
			switch how {
			case "tick":
				w.apply(w.at("e"), &commandv1.Entry{Commands: []*commandv1.Command{tickCmd(1)}})
			case "terminate":
				w.do(terminateCmd("e:0", "enough"))
			case "commit":
				w.commitRefused(child, "return x", perdurev1.Reason_REASON_STALE_TASK, "")
			case "spread":
				w.commit(child, "return x")
				w.ship()
			}
			e := w.describe("e")
			if p := w.promise("e"); e.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED || p.State != perdurev1.PromiseState_PROMISE_STATE_REJECTED_TIMEDOUT || p.SettledAtMs != 5000 {
				t.Errorf("it is %v, %v", e, p)
			}
			w.tick()
		})
	}
}
