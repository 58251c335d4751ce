package machine

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
)

// invocation shows the entries of one invocation.
func (w *world) invocation(objectID, promise string) string {
	var out []string
	for _, e := range w.journal(objectID) {
		if s := showEvent(e.Event); strings.HasPrefix(s, "Invoke") && strings.Contains(s, " "+promise+" ") {
			out = append(out, s)
		}
	}
	return strings.Join(out, "\n")
}

// The retry table: a child's attempts in its caller's journal, here and in another partition. A lost lease is
// no attempt, a repeated commit ends one, and an attempt gets the signals of the one before.
func TestChildRetry(t *testing.T) {
	for _, spread := range []string{"", " spread"} {
		w := newWorld(t, 3)
		w.commit(w.begin("e", "f"), "child g in attempts=3 pause=500"+spread+"; await 0")
		w.ship()
		child := w.only("w2", "g")
		w.do(signalCmd(w.request(), child.token.Id, "s", "kept"))
		w.read(child)
		w.commit(child, "wait s")
		w.do(releaseCmd(child.token, "lost", 0))
		child = w.only("w3", "g")
		fail := w.commitCmd(child, "fail app:first")
		for range 2 {
			if got := w.do(fail).GetCommit(); got.State != perdurev1.TaskState_TASK_STATE_PENDING {
				t.Errorf("answered %v", got)
			}
		}
		w.ship()
		if got := w.take("w2", 1, "g"); len(got) != 0 {
			t.Fatalf("given out %v before the pause is over", got)
		}
		w.now += 500
		w.tick()
		next := w.only("w2", "g")
		if next.token.Incarnation <= child.token.Incarnation || len(next.journal) != 2 || next.journal[1].Event.GetSignalDelivered().GetName() != "s" {
			t.Errorf("the next attempt is %v with %v", next.token, next.journal)
		}
		w.refused(w.commitCmd(child, "return late"), perdurev1.Reason_REASON_STALE_TASK)
		w.commit(next, "fail app:second")
		w.ship()
		w.now += 999
		w.tick()
		if got := w.take("w2", 1, "g"); len(got) != 0 {
			t.Fatalf("given out %v before the second pause is over", got)
		}
		w.now++
		w.tick()
		w.commit(w.only("w2", "g"), "return done")
		w.ship()
		want := `InvokeScheduled e:0 function g input="in" attempts=3
InvokeStarted e:0 #1
InvokeRetrying e:0 #1 !app "first" again at 1500
InvokeStarted e:0 #2
InvokeRetrying e:0 #2 !app "second" again at 2500
InvokeStarted e:0 #3
InvokeCompleted e:0 #3 "done"`
		if got := w.invocation("e", "e:0"); got != want {
			t.Errorf("the journal has%s\n%s", spread, got)
		}
		w.commit(w.only("w1", "f"), "return x")
	}
}

// A failure is final at the last attempt, when it says so, when the deadline comes before the next attempt,
// and while the caller is cancelling.
func TestChildRetryEnds(t *testing.T) {
	for _, c := range []struct {
		name, child, fail string
		before            func(w *world)
	}{
		{"last attempt", "child g attempts=1", "app:no", nil},
		{"deadline", "child g attempts=5 pause=5000 timeout=3000", "app:no", nil},
		{"non-retryable", "child g attempts=5 pause=10", "app:no", nil},
		{"cancelling", "child g attempts=5 pause=10", "app:no", func(w *world) { w.do(cancelCmd("e", "why", 0)) }},
	} {
		w := newWorld(t, 1)
		w.commit(w.begin("e", "f"), c.child+"; await 0")
		child := w.only("w2", "g")
		if c.before != nil {
			c.before(w)
		}
		cmd := w.commitCmd(child, "fail "+c.fail)
		cmd.GetCommit().Events[0].GetExecutionFailed().Error.NonRetryable = c.name == "non-retryable"
		if got := w.do(cmd).GetCommit(); got.State != fulfilled {
			t.Errorf("%s: answered %v", c.name, got)
		}
		if got := w.invocation("e", "e:0"); strings.Contains(got, "Retrying") || !strings.Contains(got, `InvokeCompleted e:0 #1 !app "no"`) {
			t.Errorf("%s: %s", c.name, got)
		}
	}
}

// The last attempt's failure is the child's.
func TestChildRetryBound(t *testing.T) {
	w := newWorld(t, 1)
	w.commit(w.begin("e", "f"), "child g attempts=2 pause=10; await 0")
	w.commit(w.only("w2", "g"), "fail app:first")
	w.now += 10
	w.tick()
	if got := w.commit(w.only("w2", "g"), "fail app:last"); got.State != fulfilled {
		t.Errorf("answered %v", got)
	}
	if got := w.invocation("e", "e:0"); !strings.HasSuffix(got, "InvokeStarted e:0 #2\nInvokeCompleted e:0 #2 !app \"last\"") {
		t.Errorf("the journal has\n%s", got)
	}
}

// A cancel between two attempts ends the child at once. A child that ends before a worker has begun it has begun in its
// caller's journal with its end, and not while that is cancelling.
func TestChildNeverBegun(t *testing.T) {
	w := newWorld(t, 1)
	w.commit(w.begin("e", "f"), "child g attempts=2 pause=60000; child g; child h; await 0")
	w.commit(w.only("w2", "h"), "return x")
	w.commit(w.take("w2", 1, "g")[0], "fail app:no")
	w.do(cancelCmd("e:0", "why", 0))
	if got := w.invocation("e", "e:0"); !strings.HasSuffix(got, "InvokeStarted e:0 #2\nInvokeCompleted e:0 #2 !cancelled \"why\"") {
		t.Errorf("cancelled between attempts:\n%s", got)
	}
	w.do(cancelCmd("e", "why", 0))
	w.do(terminateCmd("e:1", "enough"))
	if got := w.invocation("e", "e:1"); strings.Contains(got, "Started") {
		t.Errorf("terminated while its caller is cancelling:\n%s", got)
	}
}

// What an attempt has started in the commit that fails it goes with it.
func TestChildRetrySweeps(t *testing.T) {
	w := newWorld(t, 1)
	w.commit(w.begin("e", "f"), "child g attempts=2 pause=10; await 0")
	w.commit(w.only("w2", "g"), "child h; sleep 5000; fail app:no")
	if w.promiseExists("e:0.0") || w.promiseExists("e:0.1") || len(w.take("w3", 1, "h")) != 0 {
		t.Error("operations of the failed attempt are left")
	}
}

// What a spread child's partition says of its attempts is for one incarnation of the caller, and comes in any number.
func TestChildAttemptMessages(t *testing.T) {
	w := newWorld(t, 3)
	w.commit(w.begin("e", "f"), "child g spread attempts=2 pause=10; await 0")
	w.ship()
	child := w.only("w2", "g")
	home, away := int(w.at("e").cfg.Partition), int(w.at(child.token.Id).cfg.Partition)
	if w.at(child.token.Id) == w.at("e") {
		t.Skip("the child is at home")
	}
	w.commit(child, "fail app:no")
	cmd := w.deliverCmd(away, home, 10)
	if got := len(cmd.GetDeliver().Messages); got != 2 {
		t.Fatalf("%d messages", got)
	}
	other := proto.CloneOf(cmd)
	other.GetDeliver().Source = uint32(3 - home - away)
	for _, m := range other.GetDeliver().Messages {
		m.ToIncarnation = 99
	}
	w.apply(w.parts[home], &commandv1.Entry{Commands: []*commandv1.Command{other}})
	if got := w.invocation("e", "e:0"); strings.Contains(got, "Started") {
		t.Errorf("for another incarnation: %s", got)
	}
	w.ship()
	if got := w.invocation("e", "e:0"); !strings.HasSuffix(got, "#1\nInvokeRetrying e:0 #1 !app \"no\" again at 1010") {
		t.Errorf("the journal has\n%s", got)
	}
}

// Below the feature level a child begins with its schedule, and has no retries.
func TestChildBelowLevel(t *testing.T) {
	w := newWorldAt(t, state.LevelFunctions-1, 1)
	v := w.begin("e", "f")
	w.commitRefused(v, "child g attempts=2 pause=10", perdurev1.Reason_REASON_FEATURE_LEVEL, "")
	w.commit(v, "child g; await 0")
	if got := w.invocation("e", "e:0"); !strings.HasSuffix(got, "InvokeStarted e:0 #1") {
		t.Errorf("the journal has\n%s", got)
	}
	w.raise(w.parts[0], state.LevelFunctions)
	w.commit(w.only("w2", "g"), "return x")
	if got := w.invocation("e", "e:0"); !strings.HasSuffix(got, "InvokeStarted e:0 #1\nInvokeCompleted e:0 #1 \"x\"") {
		t.Errorf("the journal has\n%s", got)
	}
}

// The jitter shortens a pause by at most its part, and by the same at every replica.
func TestChildPause(t *testing.T) {
	drawn := map[int64]bool{}
	for n := range uint64(50) {
		ex := &execution{h: state.Header{ID: "e:0", Incarnation: n, HeaderMore: state.HeaderMore{Retry: state.Retry{InitialMS: 1000, JitterPercent: 40}}}}
		pause := (&txn{}).pauseOf(ex, 2)
		if pause < 1200 || pause > 2000 || pause != (&txn{}).pauseOf(ex, 2) {
			t.Errorf("a pause of %d", pause)
		}
		drawn[pause] = true
	}
	if len(drawn) < 10 {
		t.Errorf("%d different pauses", len(drawn))
	}
}
