package machine

import (
	"fmt"
	"strings"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/wire"
)

// The ending table: what ends an execution, in each status it may have, and how journal and promise end
// together. Every execution has its deadline at 61,000.
func TestEndings(t *testing.T) {
	const started = "ExecutionStarted "
	states := []struct {
		name string
		// reach brings "e" into the state; v is w1's view of it, whatever it holds by then.
		reach func(w *world, v *view)
		// course is the journal up to there.
		course string
		held   bool
	}{
		{"running", func(w *world, v *view) {}, started, true},
		{"running, pending", func(w *world, v *view) {
			w.do(releaseCmd(v.token, "", 0))
		}, started, false},
		{"blocked on a child", func(w *world, v *view) {
			w.commit(v, "child f; await 0")
		}, started + "InvokeScheduled ExecutionAwaiting ", false},
		{"blocked on a timer", func(w *world, v *view) {
			w.commit(v, "sleep 500000; await 0")
		}, started + "TimerScheduled ExecutionAwaiting ", false},
		{"blocked on a signal", func(w *world, v *view) {
			w.commit(v, "wait s")
		}, started + "ExecutionAwaiting ", false},
		{"cancelling", func(w *world, v *view) {
			w.do(cancelCmd("e", "why", 500_000))
		}, started + "CancelRequested ", true},
		{"cancelling, pending", func(w *world, v *view) {
			w.commit(v, "wait s")
			w.do(cancelCmd("e", "why", 500_000))
		}, started + "ExecutionAwaiting CancelRequested ", false},
	}
	const (
		completed = perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED
		failed    = perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED
		cancelled = perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED
	)
	type end struct {
		events  string
		status  perdurev1.ExecutionStatus
		promise perdurev1.PromiseState
		outcome string
		settled int64
	}
	const (
		resolved = perdurev1.PromiseState_PROMISE_STATE_RESOLVED
		rejected = perdurev1.PromiseState_PROMISE_STATE_REJECTED
		canceled = perdurev1.PromiseState_PROMISE_STATE_REJECTED_CANCELED
		timedout = perdurev1.PromiseState_PROMISE_STATE_REJECTED_TIMEDOUT
	)
	endings := []struct {
		name string
		do   func(w *world, v *view)
		// byWorker: only who holds the task can do it.
		byWorker            bool
		running, cancelling end
	}{
		{"returns", func(w *world, v *view) { w.commit(v, "return r") }, true,
			end{"ExecutionCompleted", completed, resolved, `"r"`, 2000},
			end{"ExecutionCancelled", cancelled, canceled, `!cancelled "why"`, 2000}},
		{"fails", func(w *world, v *view) { w.commit(v, "fail app:no") }, true,
			end{"ExecutionFailed", failed, rejected, `!app "no"`, 2000},
			end{"ExecutionCancelled", cancelled, canceled, `!cancelled "why"`, 2000}},
		{"its deadline, by a tick", func(w *world, v *view) { w.now = 70_000; w.tick() }, false,
			end{"CancelRequested ExecutionCancelled", cancelled, timedout, `!timeout "timed out"`, 61_000},
			end{"ExecutionCancelled", cancelled, timedout, `!timeout "timed out"`, 61_000}},
		{"its deadline, on touch", func(w *world, v *view) {
			w.now = 61_000
			w.one(signalCmd(nil, "e", "s", ""))
		}, false,
			end{"CancelRequested ExecutionCancelled", cancelled, timedout, `!timeout "timed out"`, 61_000},
			end{"ExecutionCancelled", cancelled, timedout, `!timeout "timed out"`, 61_000}},
		{"terminate", func(w *world, v *view) { w.do(terminateCmd("e", "enough")) }, false,
			end{"CancelRequested ExecutionCancelled", cancelled, canceled, `!cancelled "enough"`, 2000},
			end{"ExecutionCancelled", cancelled, canceled, `!cancelled "enough"`, 2000}},
	}
	for _, st := range states {
		for _, ending := range endings {
			t.Run(st.name+"/"+ending.name, func(t *testing.T) {
				w := newWorld(t, 1)
				start := startCmd(w.request(), "e", "f", "")
				start.GetStart().TimeoutMs = 60_000
				w.do(start)
				v := w.only("w1", "f")
				st.reach(w, v)
				if got := w.kinds("e") + " "; got != st.course {
					t.Fatalf("the journal is %s, must be %s", got, st.course)
				}
				w.now = 2000
				if ending.byWorker && !st.held {
					w.commitRefused(v, "return r", perdurev1.Reason_REASON_STALE_TASK, "")
					return
				}
				ending.do(w, v)
				want := ending.running
				if strings.HasPrefix(st.name, "cancelling") {
					want = ending.cancelling
				}
				if got := w.kinds("e"); got != st.course+want.events {
					t.Errorf("the journal is %s, must be %s", got, st.course+want.events)
				}
				e, p := w.describe("e"), w.promise("e")
				got := end{want.events, e.Status, p.State, showOutcome(p.Value), p.SettledAtMs}
				if got != want || showOutcome(e.Outcome) != want.outcome || e.Task.State != "fulfilled" {
					t.Errorf("ended as %+v, must be %+v; described as %v", got, want, e)
				}
				// The end is final: no command changes it, and no deadline or task of it remains.
				w.refused(signalCmd(nil, "e", "s", ""), perdurev1.Reason_REASON_ALREADY_FINISHED)
				w.refused(w.commitCmd(v, "step a"), perdurev1.Reason_REASON_STALE_TASK)
				before := content(w.parts[0].state)
				w.do(cancelCmd("e", "again", 0))
				w.do(terminateCmd("e", "again"))
				if after := content(w.parts[0].state); after != before {
					t.Errorf("ending it again has changed the state:\n%s", difference(before, after))
				}
				journal := w.kinds("e")
				w.now = 1_000_000
				w.tick()
				if w.kinds("e") != journal || w.promise("e").State != want.promise {
					t.Errorf("something came after its end: %s", w.kinds("e"))
				}
			})
		}
	}
}

// Cancel writes its request at once, in every state, and the effects notify the worker.
func TestCancel(t *testing.T) {
	for _, c := range []struct {
		name, ops string
		// notified: the effects name the worker; pending: another worker may acquire the task.
		notified, pending bool
	}{
		{"acquired", "", true, false},
		{"on a child", "child f; await 0", false, true},
		{"on a timer", "sleep 500000; await 0", false, true},
		{"on a signal", "wait s", false, true},
		{"on a signal with a deadline", "wait s timeout=7000", false, true},
		{"on any of two", "child f; sleep 500000; any 0,1", false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 1)
			v := w.begin("e", "f")
			if c.ops != "" {
				w.commit(v, c.ops)
			}
			w.do(cancelCmd("e", "why", 9_000))
			fx := w.parts[0].results[len(w.parts[0].results)-1].Effects
			if notified := len(fx.Cancelling) == 1 && fx.Cancelling[0].Worker == "w1"; notified != c.notified {
				t.Errorf("effects %v", fx)
			}
			if got := w.do(heartbeatCmd("w1", v.token)).GetHeartbeat(); c.notified && (len(got.Cancelling) != 1 || len(got.Lost) != 0) || !c.notified && len(got.Lost) != 1 {
				t.Errorf("heartbeat answers %v", got)
			}
			e := w.describe("e")
			if e.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLING || (e.Task.State == "pending") != c.pending {
				t.Errorf("it is %v", e)
			}
			// Asking again changes nothing.
			before := content(w.parts[0].state)
			w.do(cancelCmd("e", "why else", 1))
			if after := content(w.parts[0].state); after != before {
				t.Errorf("a second cancel has changed the state:\n%s", difference(before, after))
			}
			// A worker acquires it and acknowledges.
			if c.pending {
				for _, got := range w.take("w2", 5, "f") {
					if got.token.Id == "e" {
						v = got
					}
				}
			}
			if w.now = 5000; !strings.Contains(w.kinds("e"), "CancelRequested") {
				t.Error(w.kinds("e"))
			}
			w.commit(v, "cancelled cleaned-up")
			if p := w.promise("e"); showOutcome(p.Value) != `!cancelled "cleaned-up"` {
				t.Errorf("ended as %v", p)
			}
			w.now = 1_000_000
			w.tick()
		})
	}
}

// A worker that does not acknowledge has its execution ended by the grace.
func TestGrace(t *testing.T) {
	for _, grace := range []int64{0, 700, 1<<63 - 1} {
		t.Run(fmt.Sprint(grace), func(t *testing.T) {
			w := newWorld(t, 1)
			v := w.begin("e", "f")
			w.do(cancelCmd("e", "why", grace))
			ends := w.now + grace
			if grace == 0 {
				ends = w.now + 30_000
			}
			if grace > state.Never {
				// For as long as there is time at all; its worker may still acknowledge.
				w.now = 1 << 50
				w.tick()
				if e := w.describe("e"); e.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLING {
					t.Errorf("it is %v", e)
				}
				return
			}
			w.now = ends - 1
			w.do(heartbeatCmd("w1", v.token))
			w.tick()
			if e := w.describe("e"); e.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLING {
				t.Fatalf("it is %v before its grace has ended", e)
			}
			w.now = ends
			w.tick()
			if got := w.kinds("e"); got != "ExecutionStarted CancelRequested ExecutionCancelled" {
				t.Errorf("the journal is %s", got)
			}
			if p := w.promise("e"); p.State != perdurev1.PromiseState_PROMISE_STATE_REJECTED_CANCELED {
				t.Errorf("ended as %v", p)
			}
			w.commitRefused(v, "cancelled late", perdurev1.Reason_REASON_STALE_TASK, "")
		})
	}
}

// Any command on an execution after the end of its grace finds it ended, before any tick.
func TestGraceOnTouch(t *testing.T) {
	for _, late := range []int64{-1, 0, 5000} {
		w := newWorld(t, 1)
		v := w.begin("e", "f")
		w.do(cancelCmd("e", "why", 3000))
		w.now += 3000 + late
		reply := w.one(w.commitCmd(v, "cancelled in-time"))
		want := `!cancelled "in-time"`
		if late >= 0 {
			want = `!cancelled "why: the grace period ended"`
		}
		if got := showOutcome(w.promise("e").Value); got != want || (wire.ReplyError(reply) == nil) != (late < 0) {
			t.Errorf("%d ms late: ended as %s, answered %v", late, got, reply)
		}
	}
}

// In Cancelling only facts are recorded: the result of a running attempt, and no new work.
func TestCommitWhileCancelling(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	w.commit(v, "intent pay; intent mail; child f")
	child := w.only("w2", "f")
	w.do(cancelCmd("e", "why", 0))
	reply := w.commit(v, "done 0#1 -> paid; done 1#2 -> wrong attempt; retrying 1#1 !io; done 2#1 -> not yours; step more; sleep 5; child f; wait s")
	if reply.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLING || reply.State != perdurev1.TaskState_TASK_STATE_ACQUIRED || reply.NextChild != 3 {
		t.Errorf("answered %v", reply)
	}
	want := "ExecutionStarted InvokeScheduled InvokeStarted InvokeScheduled InvokeStarted InvokeScheduled InvokeStarted CancelRequested InvokeCompleted"
	if got := w.kinds("e"); got != want {
		t.Errorf("the journal is %s, must be %s", got, want)
	}
	// Its child continues; the child's end is a fact, too.
	w.commit(child, "return late")
	w.commit(v, "done 1#1 -> sent; return whatever")
	if got := w.kinds("e"); got != want+" InvokeCompleted InvokeCompleted ExecutionCancelled" {
		t.Errorf("the journal is %s", got)
	}
}

// A child that outlives its caller continues and notifies no caller.
func TestChildAfterParent(t *testing.T) {
	for _, spread := range []string{"", " spread"} {
		w := newWorld(t, 2)
		v := w.begin("e", "f")
		w.commit(v, "child g"+spread+"; sleep 3000; return done")
		journal := w.kinds("e")
		w.ship()
		w.only("w2", "g")
		w.now = 20_000
		w.tick()
		child := w.only("w2", "g")
		w.commit(child, "step a; return late")
		w.ship()
		if got := w.kinds("e"); got != journal {
			t.Errorf("%s: its journal has become %s", spread, got)
		}
		if e := w.describe(child.token.Id); e.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED || e.ParentId != "e" {
			t.Errorf("%s: the child is %v", spread, e)
		}
	}
}

// An execution that ends at clock 0, as under a leader without a clock, has ended.
func TestEndingAtTimeZero(t *testing.T) {
	w := newWorld(t, 1)
	w.now = 0
	w.do(startCmd(nil, "e", "f", ""))
	w.do(terminateCmd("e", "no"))
	w.submit("run", graphOf("a; b graph 0", graphOf("x sleep 1")), "")
	w.do(terminateCmd("run", "no"))
	for _, ended := range []string{"e", "run", "run:1.0"} {
		if d := w.describe(ended); d.ClosedMs != 1 || d.WakeSource != "finished" {
			t.Errorf("described: %v", d)
		}
	}
}
