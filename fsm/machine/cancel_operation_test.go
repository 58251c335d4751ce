package machine

import (
	"strings"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
)

// A function's wait for a signal ends when there is one that it has not consumed, and consumes none.
func TestSignalFuture(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	w.commitRefused(v, "future", perdurev1.Reason_REASON_BAD_REQUEST, "")
	w.commit(v, "future a; sleep 90000; any 0,1")
	if got := w.describe("e").WakeSource; got != "signal a" {
		t.Errorf("woken by %s", got)
	}
	w.do(signalCmd(w.request(), "e", "b", "other"))
	w.do(signalCmd(w.request(), "e", "a", "first"))
	w.do(signalCmd(w.request(), "e", "a", "second"))
	want := "ExecutionStarted InvokeScheduled InvokeStarted TimerScheduled ExecutionAwaiting SignalDelivered SignalDelivered InvokeCompleted ExecutionResumed SignalDelivered"
	if got := w.kinds("e"); got != want {
		t.Errorf("the journal is %s", got)
	}
	// It consumes the first one; a further wait finds the second at once.
	v = w.only("w1", "f")
	if got := w.commit(v, "wait a").Entries; len(got) != 1 || string(got[0].Event.GetSignalReceived().GetPayload().GetValue()) != "first" {
		t.Errorf("received %v", got)
	}
	if got := w.commit(v, "future a").Entries; len(got) != 2 || got[1].Event.GetInvokeCompleted() == nil {
		t.Errorf("answered %v", got)
	}
	w.commit(v, "wait a")
	if got := w.commit(v, "future a; any 5").State; got != suspended {
		t.Errorf("a wait after all signals are consumed leaves the task %v", got)
	}
}

// A cancel completes each kind of operation once, and swallows no signal.
func TestCancelOperation(t *testing.T) {
	const cancelled = `!cancelled "cancelled by its caller"`
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	w.commit(v, "future a; sleep 5000; promise; value nobody-yet; child g; ecall x@y add 1")
	child := w.only("w2", "g")
	w.commitRefused(v, "cancel 7", perdurev1.Reason_REASON_BAD_REQUEST, "")
	w.read(v)
	w.commit(v, "cancel 0; cancel 1; cancel 2; cancel 4; cancel 0; cancel 1")
	results := map[string]string{}
	for _, e := range w.journal("e") {
		if done := e.Event.GetInvokeCompleted(); done != nil {
			results[done.PromiseId] = showOutcome(done.Result)
		}
	}
	for promise, want := range map[string]string{
		"e:0": cancelled, "e:2": cancelled, "e:4": "", "e:6": `"\x01"`, "e:7": `"\x01"`, "e:8": `"\x01"`, "e:9": `"\x01"`,
		"e:10": `"\x00"`, "e:11": `"\x00"`,
	} {
		if results[promise] != want {
			t.Errorf("%s completed with %s, want %s", promise, results[promise], want)
		}
	}
	// The timer does not fire, and nobody may wait for it; the signal is for the next wait; the child ends in
	// its own time.
	w.commitRefused(v, "await 1", perdurev1.Reason_REASON_RULE_BROKEN, "cancelled_timer")
	w.now += 6000
	w.do(heartbeatCmd("w1", v.token))
	w.do(heartbeatCmd("w2", child.token))
	w.tick()
	if strings.Contains(w.kinds("e"), "TimerFired") {
		t.Errorf("a cancelled timer has fired: %s", w.kinds("e"))
	}
	w.do(signalCmd(w.request(), "e", "a", "kept"))
	if got := w.kinds(child.token.Id); got != "ExecutionStarted CancelRequested" {
		t.Errorf("the child's journal is %s", got)
	}
	w.read(v)
	w.commit(v, "await 4")
	w.commit(child, "cancelled by request")
	v = w.only("w1", "f")
	if got := w.commit(v, "wait a").Entries; len(got) == 0 || string(got[len(got)-1].Event.GetSignalReceived().GetPayload().GetValue()) != "kept" {
		t.Errorf("received %v", got)
	}
	w.commit(v, "return x")
}

// A restart before the cancel of a timer starts the timer again; one after it leaves it cancelled.
func TestRestartCancelledTimer(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	w.commit(v, "sleep 5000; step s")
	before := len(w.journal("e"))
	w.commit(v, "cancel 0; step t")
	after := len(w.journal("e"))
	w.do(restartCmd(w.request(), "e", fromEvent, uint64(after)))
	if got := w.promise("e:0").State; got != perdurev1.PromiseState_PROMISE_STATE_REJECTED_CANCELED {
		t.Errorf("after a restart that keeps the cancel the timer is %v", got)
	}
	w.now += 2000
	w.do(restartCmd(w.request(), "e", fromEvent, uint64(before)))
	w.only("w1", "f")
	w.now += 2900
	w.tick()
	if strings.Contains(w.kinds("e"), "TimerFired") {
		t.Errorf("the timer has fired too early: %s", w.kinds("e"))
	}
	w.now += 200
	w.tick()
	if got := w.kinds("e"); !strings.HasSuffix(got, "TimerFired") {
		t.Errorf("the timer has not fired: %s", got)
	}
}

// Signals that a restart delivers again end the waits for them.
func TestRestartSignalFuture(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	w.commit(v, "future a; step s")
	cut := len(w.journal("e"))
	w.commit(v, "wait a") // consumes it, so that the other wait stays open
	w.do(signalCmd(w.request(), "e", "a", "x"))
	w.do(restartCmd(w.request(), "e", fromEvent, uint64(cut)))
	if got := w.kinds("e"); !strings.HasSuffix(got, "SignalDelivered InvokeCompleted") {
		t.Errorf("the journal is %s", got)
	}
}

// Below the feature level neither is known.
func TestWaitingBelowLevel(t *testing.T) {
	w := newWorldAt(t, state.LevelFunctions-1, 1)
	v := w.begin("e", "f")
	w.commit(v, "sleep 5000")
	w.commitRefused(v, "future a", perdurev1.Reason_REASON_FEATURE_LEVEL, "")
	w.commitRefused(v, "cancel 0", perdurev1.Reason_REASON_FEATURE_LEVEL, "")
}
