package machine

import (
	"strings"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/journal"
	"perdure/recovery"
)

// The timeout of a wait is no signal: a restart from before the wait does not deliver it again.
func TestRestartForgetsTimeouts(t *testing.T) {
	for _, from := range []uint64{1, 4} {
		w := newWorld(t, 1)
		v := w.begin("a", "f")
		w.do(signalCmd(w.request(), "a", "t", "real"))
		w.commit(v, "step s -> 1; wait s timeout=100")
		w.now += 200
		w.tick()
		w.commit(w.only("w1", "f"), "fail bad:no")
		w.do(restartCmd(w.request(), "a", fromEvent, from))
		w.tick()
		if got := w.course("a"); strings.Count(got, "delivered") != 1 {
			t.Errorf("from event %d the journal is %s", from, got)
		}
		w.commit(w.only("w1", "f"), "wait s")
		if got := w.describe("a").Waiting.GetSignalName(); got != "s" {
			t.Errorf("from event %d it waits for %q", from, got)
		}
	}
}

// A child in another place that a restart begins again keeps its retries and its tags, one with an id of its own too.
func TestRestartKeepsChildOptions(t *testing.T) {
	for _, where := range []string{"spread", "id=own"} {
		w := newWorld(t, 2)
		v := w.begin("a", "f")
		cmd := w.commitCmd(v, "child g in "+where+" attempts=3 pause=50 close=2")
		cmd.GetCommit().Children[0].Tags = map[string]string{"team": "red", "b": "2"}
		w.do(cmd)
		w.ship()
		restart := restartCmd(w.request(), "a", fromEvent, 2)
		restart.GetRestart().NewChildren = true
		w.do(restart)
		w.tick()
		w.ship()
		tags := []recovery.Tag{{Key: "b", Value: "2"}, {Key: "team", Value: "red"}}
		open := 0
		for _, p := range w.parts {
			for objectID, h := range takeCensus(p.state).headers {
				if h.Function != "g" || h.Status.Terminal() {
					continue
				}
				open++
				if h.Retry.Attempts != 3 || h.Retry.InitialMS != 50 || len(h.Tags) != 2 || h.Tags[0] != tags[0] || h.Tags[1] != tags[1] {
					t.Errorf("%s: %s has the retries %+v and the tags %v", where, objectID, h.Retry, h.Tags)
				}
			}
		}
		if open != 1 {
			t.Errorf("%s: %d children are open", where, open)
		}
		w.commit(w.only("w2", "g"), "fail bad:no")
		if got := w.course("a"); strings.Contains(got, "completed") {
			t.Errorf("%s: the first failure is final: %s", where, got)
		}
	}
}

// The former child that a restart cancels does not answer for the one that it begins.
func TestRestartCancelsFormerChild(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("a", "f")
	w.commit(v, "child g in spread close=1 delay=5000; step s -> 1")
	restart := restartCmd(w.request(), "a", fromEvent, 5)
	restart.GetRestart().NewChildren = true
	w.do(restart)
	w.tick()
	if got := w.course("a"); got != "started scheduled scheduled started completed" {
		t.Errorf("the journal is %s", got)
	}
	w.commit(w.only("w1", "f"), "await 0")
	w.commit(w.only("w2", "g"), "return fresh")
	if got := showEntries(w.journal("a")); !strings.Contains(strings.Join(got, "\n"), `InvokeCompleted a:0 #1 "fresh"`) {
		t.Errorf("the child's result is missing:\n%s", strings.Join(got, "\n"))
	}
}

// The end of an execution reaches its children even if its id begins again before the next tick.
func TestNewIncarnationAfterEndReachesChildren(t *testing.T) {
	w := newWorld(t, 2)
	v := w.begin("a", "f")
	w.commit(v, "child g in spread; time 1")
	w.ship()
	w.do(terminateCmd("a", "enough"))
	w.do(reuseCmd(w.request(), "a", "f", "in", perdurev1.Reuse_REUSE_ALWAYS))
	w.tick()
	w.ship()
	for _, p := range w.parts {
		for objectID, h := range takeCensus(p.state).headers {
			if h.Function == "g" && !h.Status.Terminal() {
				t.Errorf("%s is %s, its caller was terminated", objectID, h.Status)
			}
		}
	}
}

// A caller whose deadline passes while its child is terminated is cleaned up after.
func TestTerminateLeavesCleanupOfCaller(t *testing.T) {
	w := newWorld(t, 1)
	start := startCmd(w.request(), "a", "f", "in")
	start.GetStart().TimeoutMs = 5000
	w.do(start)
	w.commit(w.only("w1", "f"), "cleanup 9000; child g in; await 0")
	w.now += 6000
	w.do(terminateCmd("a:0", "enough"))
	c := takeCensus(w.parts[0].state)
	if h := c.headers["a"]; !h.Status.Terminal() || h.CleanupID() == "" || c.headers[h.CleanupID()].Function != state.FunctionCleanup+"f" {
		t.Errorf("a is %s, its clean-up is %q", h.Status, h.CleanupID())
	}
}

// A child that the kept entries have cancelled is cancelled again when a restart begins it again.
func TestRestartKeepsCancel(t *testing.T) {
	for _, where := range []string{"", " in spread"} {
		w := newWorld(t, 2)
		v := w.begin("a", "f")
		w.commit(v, "child g"+where+"; cancel 0; step s -> 1")
		w.ship()
		restart := restartCmd(w.request(), "a", fromEvent, 4)
		restart.GetRestart().NewChildren = true
		w.do(restart)
		w.tick()
		w.ship()
		for _, p := range w.parts {
			for objectID, h := range takeCensus(p.state).headers {
				if h.Function == "g" && h.ParentIncarnation == w.describe("a").Incarnation && h.Status == journal.StatusRunning {
					t.Errorf("%q: child %s of the new incarnation runs on", where, objectID)
				}
			}
		}
	}
}
