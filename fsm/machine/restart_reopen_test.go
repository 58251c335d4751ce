package machine

import (
	"strings"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/journal"
)

// A restart from before the cancel of a wait for a signal or a promise waits again; one that keeps the cancel does not.
func TestRestartBeforeCancelOfWait(t *testing.T) {
	for _, c := range []struct {
		name, wait string
		ends       func(w *world)
	}{
		{"signal", "future a", func(w *world) { w.do(signalCmd(w.request(), "e", "a", "x")) }},
		{"promise", "value bare", func(w *world) { w.do(settlePromiseCmd("bare", resolve, "x")) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 3)
			w.do(createPromiseCmd("bare", 0))
			v := w.begin("e", "f")
			w.commit(v, c.wait+"; step s")
			before := uint64(len(w.journal("e")))
			w.commit(v, "cancel 0; step t")
			after := uint64(len(w.journal("e")))
			w.ship()
			ended := func() (n int) {
				for _, e := range w.journal("e") {
					if e.Event.GetInvokeCompleted().GetPromiseId() == "e:0" {
						n++
					}
				}
				return n
			}
			for i, cut := range []uint64{after, before} {
				w.do(restartCmd(w.request(), "e", fromEvent, cut))
				w.tick()
				w.ship()
				if n := ended(); n != 1-i {
					t.Fatalf("restarted from event %d its wait has ended %d times: %s", cut, n, w.kinds("e"))
				}
			}
			v = w.only("w1", "f")
			w.commit(v, "await 0")
			if got := w.describe("e").Status; got != perdurev1.ExecutionStatus_EXECUTION_STATUS_BLOCKED {
				t.Fatalf("it is %v: %s", got, w.kinds("e"))
			}
			c.ends(w)
			w.ship()
			if got := w.kinds("e"); !strings.HasSuffix(got, "InvokeCompleted ExecutionResumed") {
				t.Errorf("its journal is %s", got)
			}
		})
	}
}

// A child's deadline may pass while the message that begins it again is under way: it ends as it begins.
func TestChildBeginsAgainAfterItsDeadline(t *testing.T) {
	w := newWorld(t, 2)
	v := w.begin("a", "f")
	own := "own-0"
	for w.at(own) == w.at("a") {
		own += "0"
	}
	w.commit(v, "child g in id="+own+" timeout=1000")
	w.ship()
	w.commit(v, "fail bad:no")
	w.commit(w.only("w2", "g"), "fail bad:no")
	w.ship()
	w.do(restartCmd(w.request(), "a", fromFailure, 0))
	w.now += 2000
	w.ship()
	w.tick()
	if got := w.describe(own); got.Incarnation == 0 || got.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED {
		t.Errorf("the child is %v", got)
	}
	if got := w.take("w2", 9, "g"); len(got) > 0 {
		t.Errorf("a worker gets the task of an ended child: %v", got[0].token)
	}
	w.ship()
	if got := w.kinds("a"); !strings.HasSuffix(got, "InvokeCompleted") {
		t.Errorf("its caller's journal is %s", got)
	}
	for _, p := range w.parts {
		w.audit(p)
	}
}

// A new incarnation waits for the clean-ups of the former one's children; what those children called elsewhere ends
// by its close policy at once.
func TestCleanupDoesNotKeepOthersOpen(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("p", "f")
	w.commit(v, "child g; child h spread close=2; child i")
	child := w.only("w2", "g")
	w.commit(child, "step charge -> paid; cleanup 50000")
	w.commit(w.only("w2", "i"), "child j spread close=2")
	w.do(cancelCmd("p:0", "lost the race", 100))
	w.commit(child, "cancelled lost")
	undo := w.only("w2", state.FunctionCleanup+"g")
	w.do(restartCmd(w.request(), "p", fromStart, 0))
	w.tick()
	for objectID, h := range takeCensus(w.parts[0].state).headers {
		if (h.Function == "h" || h.Function == "j") && h.Status != journal.StatusCancelled {
			t.Errorf("%s of %s is %s", objectID, h.Function, h.Status)
		}
	}
	w.commit(undo, "step refund -> done; return")
	w.tick()
	w.commit(w.only("w1", "f"), "return")
}

// A child that a restart begins again begins at once, whatever its delay was: a cancel leaves its end to its worker.
func TestChildBegunAgainHasNoDelay(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("a", "f")
	w.commit(v, "child g in delay=50000")
	restart := restartCmd(w.request(), "a", fromEvent, 2)
	restart.GetRestart().NewChildren = true
	w.do(restart)
	w.tick()
	v, child := w.only("w1", "f"), w.only("w2", "g")
	w.commit(v, "cancel 0")
	if got := w.kinds("a:0"); got != "ExecutionStarted CancelRequested" {
		t.Errorf("the child's journal is %s", got)
	}
	w.commit(child, "cancelled by request")
}

// A sweep that waits for a clean-up goes on when that is terminated: the end reaches what the clean-up called elsewhere
// before the clean-up is deleted.
func TestSweptCleanupEndsItsChildren(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("p", "f")
	w.commit(v, "child g")
	child := w.only("w2", "g")
	w.commit(child, "step charge -> paid; cleanup 50000")
	w.do(cancelCmd("p:0", "lost the race", 100))
	w.commit(child, "cancelled lost")
	undo := w.only("w2", state.FunctionCleanup+"g")
	w.commit(undo, "child h spread")
	w.do(restartCmd(w.request(), "p", fromStart, 0))
	w.tick()
	w.do(terminateCmd(undo.token.Id, "enough"))
	w.tick()
	for objectID, h := range takeCensus(w.parts[0].state).headers {
		if h.Function == "h" && h.Status != journal.StatusCancelled {
			t.Errorf("%s of %s is %s", objectID, h.Function, h.Status)
		}
	}
	w.commit(w.only("w1", "f"), "return")
}
