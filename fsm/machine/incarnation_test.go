package machine

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/audit"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

func reuseCmd(request []byte, objectID, function, input string, reuse perdurev1.Reuse) *commandv1.Command {
	cmd := startCmd(request, objectID, function, input)
	cmd.GetStart().Reuse = reuse
	return cmd
}

func restartCmd(request []byte, objectID string, from perdurev1.RestartFrom, event uint64) *commandv1.Command {
	return &commandv1.Command{Namespace: ns, Id: objectID, Request: &perdurev1.RequestID{Id: request},
		Kind: &commandv1.Command_Restart{Restart: &perdurev1.RestartRequest{Id: objectID, From: from, Event: event}}}
}

const (
	fromStart   = perdurev1.RestartFrom_RESTART_FROM_START
	fromEvent   = perdurev1.RestartFrom_RESTART_FROM_EVENT
	fromFailure = perdurev1.RestartFrom_RESTART_FROM_FAILURE
)

// course is a journal as the last words of its events' names.
func (w *world) course(objectID string) string {
	w.t.Helper()
	return strings.ToLower(strings.NewReplacer("Execution", "", "Invoke", "", "Timer", "", "Signal", "").Replace(w.kinds(objectID)))
}

// left lists the keys of a partition that name an id or its operations, but not in the given incarnation's journal.
func (w *world) left(objectID string, incarnation uint64) (out []string) {
	prefix := keys.JournalPrefix(ns, objectID, incarnation)
	_ = w.at(objectID).state.Scan(nil, nil, func(key, _ []byte) bool {
		if bytes.Contains(key, []byte(objectID)) && !bytes.HasPrefix(key, prefix) && keys.Family(key[0]) != keys.Meta && keys.Family(key[0]) != keys.Reply && keys.Family(key[0]) != keys.ReplyAge {
			out = append(out, fmt.Sprintf("%s %q", keys.NameOf(key), key))
		}
		return true
	})
	return out
}

// An id whose execution has ended is started again as its policy says.
func TestStartAgain(t *testing.T) {
	const (
		reject   = perdurev1.Reuse_REUSE_REJECT
		ifFailed = perdurev1.Reuse_REUSE_IF_FAILED
		always   = perdurev1.Reuse_REUSE_ALWAYS
	)
	for _, c := range []struct {
		end      string
		reuse    perdurev1.Reuse
		replaced bool
	}{
		{"nothing", reject, false}, {"nothing", ifFailed, false}, {"nothing", always, false},
		{"return x", reject, false}, {"return x", ifFailed, false}, {"return x", always, true},
		{"fail e:x", reject, false}, {"fail e:x", ifFailed, true}, {"fail e:x", always, true},
	} {
		w := newWorld(t, 1)
		v := w.begin("a", "f")
		w.commit(v, "child g; child g; sleep 5000; step s -> x")
		w.take("w2", 1, "g")
		w.commit(v, c.end)
		again := w.request()
		// The same start is no conflict, whatever the policy; another is one unless it replaces.
		reply := w.do(reuseCmd(again, "a", "f", "in", c.reuse)).GetStart()
		if reply.Created != c.replaced || (reply.Incarnation != 1) != c.replaced {
			t.Errorf("%s, %s: %v", c.end, c.reuse, reply)
		}
		if !c.replaced {
			w.refused(reuseCmd(w.request(), "a", "f", "other", c.reuse), perdurev1.Reason_REASON_ID_CONFLICT)
			continue
		}
		repeated := w.do(reuseCmd(again, "a", "f", "in", c.reuse)).GetStart()
		if !repeated.Created || repeated.Incarnation != reply.Incarnation {
			t.Errorf("%s, %s: the same request again: %v", c.end, c.reuse, repeated)
		}
		if got := w.course("a"); got != "started" {
			t.Errorf("%s, %s: the new journal has %s", c.end, c.reuse, got)
		}
		// Nothing of the former incarnation is left: header, promise with task, listing and queue.
		if left := w.left("a", reply.Incarnation); len(left) != 5 {
			t.Errorf("%s, %s: %d keys are left:\n%s", c.end, c.reuse, len(left), strings.Join(left, "\n"))
		}
		if e := w.describe("a"); e.FormerIncarnation != 1 || e.FormerIncarnations != 1 || e.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING {
			t.Errorf("%s, %s: %v", c.end, c.reuse, e)
		}
		// The request does not replace what it has begun, when that has ended too.
		w.commit(w.only("w3", "f"), "fail e:x")
		if repeated := w.do(reuseCmd(again, "a", "f", "in", c.reuse)).GetStart(); repeated.Incarnation != reply.Incarnation {
			t.Errorf("%s, %s: the same request again began incarnation %d", c.end, c.reuse, repeated.Incarnation)
		}
	}
}

func TestStartAgainRefused(t *testing.T) {
	w := newWorld(t, 1)
	w.commit(w.begin("a", "f"), "fail e:x")
	unknown := reuseCmd(w.request(), "a", "never", "", perdurev1.Reuse_REUSE_ALWAYS)
	unknown.GetStart().AllowUnknownFunction = false
	w.refused(unknown, perdurev1.Reason_REASON_FUNCTION_UNKNOWN)
	w.refused(reuseCmd(w.request(), "a", "", "", perdurev1.Reuse_REUSE_ALWAYS), perdurev1.Reason_REASON_BAD_REQUEST)
	// One entry begins at most one incarnation of an id: they are numbered by entries.
	res := w.apply(w.parts[0], &commandv1.Entry{Commands: []*commandv1.Command{
		startCmd(w.request(), "b", "f", ""), terminateCmd("b", ""), reuseCmd(w.request(), "b", "f", "", perdurev1.Reuse_REUSE_ALWAYS),
	}})
	if got := strings.Join(showReply(res.Replies[2]), ""); !strings.Contains(got, "TRY_LATER") {
		t.Errorf("a second incarnation in one entry: %s", got)
	}
}

// A worker of a former incarnation effects nothing: its commit, release and heartbeat are refused.
func TestFormerWorker(t *testing.T) {
	for name, begin := range map[string]func(w *world, v *view){
		"reuse": func(w *world, _ *view) {
			w.do(terminateCmd("a", ""))
			w.do(reuseCmd(w.request(), "a", "f", "in", perdurev1.Reuse_REUSE_ALWAYS))
		},
		"purge": func(w *world, _ *view) {
			w.do(terminateCmd("a", ""))
			w.purge("a")
			w.do(startCmd(w.request(), "a", "f", "in"))
		},
		"restart":  func(w *world, _ *view) { w.do(restartCmd(w.request(), "a", fromStart, 0)) },
		"continue": func(w *world, v *view) { w.commit(v, "continue next") },
	} {
		w := newWorld(t, 1)
		old := w.begin("a", "f")
		begin(w, old)
		for _, holder := range []bool{false, true} {
			if holder { // the task of the new incarnation is at the same version
				if v := w.only("w2", "f"); v.token.Version != old.token.Version {
					t.Fatalf("%s: version %d after %d", name, v.token.Version, old.token.Version)
				}
			}
			for _, text := range []string{"return x", "step s -> x", "continue", "nothing"} {
				if e := w.refused(w.commitCmd(old, text), perdurev1.Reason_REASON_STALE_TASK); !strings.Contains(e.Message, "another incarnation") {
					t.Errorf("%s: %s: %v", name, text, e)
				}
			}
			w.refused(releaseCmd(old.token, "x", 0), perdurev1.Reason_REASON_STALE_TASK)
			if lost := w.do(heartbeatCmd("w1", old.token)).GetHeartbeat().Lost; len(lost) != 1 {
				t.Errorf("%s: the former incarnation's lease was extended", name)
			}
		}
	}
}

// A function that continues as new keeps its id, its awaiters and the signals that it has not received.
func TestContinueAsNew(t *testing.T) {
	w := newWorld(t, 1)
	w.do(startCmd(w.request(), "p", "parent", ""))
	parent := w.only("w1", "parent")
	w.commit(parent, "child f one; await 0")
	v := w.only("w2", "f")
	w.do(signalCmd(w.request(), "p:0", "s", "first"))
	w.do(signalCmd(w.request(), "p:0", "r", "second"))
	w.do(signalCmd(w.request(), "p:0", "s", "third"))
	w.read(v)
	w.commit(v, "wait s")
	w.commit(v, "child g; sleep 90000")
	last := w.commitCmd(v, "continue two")
	reply := w.do(last).GetCommit()
	if reply.State != perdurev1.TaskState_TASK_STATE_PENDING || reply.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING {
		t.Errorf("answered %v", reply)
	}
	if again := w.do(last).GetCommit(); again.State != perdurev1.TaskState_TASK_STATE_PENDING {
		t.Errorf("the same commit again: %v", again)
	}
	next := w.only("w2", "f")
	if got := w.course("p:0"); got != "started delivered delivered" {
		t.Fatalf("the journal is %s", got)
	}
	if in := string(next.journal[0].Event.GetExecutionStarted().Input); in != "two" {
		t.Errorf("the input is %q", in)
	}
	if s := next.journal[1].Event.GetSignalDelivered(); s.Name != "r" || s.DeliveryId != 1 {
		t.Errorf("carried over %v", s)
	}
	if s := next.journal[2].Event.GetSignalDelivered(); s.Name != "s" || s.DeliveryId != 1 || string(s.Payload.GetValue()) != "third" {
		t.Errorf("carried over %v", s)
	}
	if w.promiseExists("p:0.1") || w.promiseExists("p:0.2") {
		t.Error("the former incarnation's child and timer are left")
	}
	// Its operations begin again at 0, and its result is the caller's.
	w.commit(next, "wait s")
	w.commit(next, "child g; return done")
	if got := w.course("p"); !strings.HasSuffix(got, "awaiting started completed resumed") {
		t.Errorf("the caller's journal is %s", got)
	}
	// The start is known by its own input.
	w.do(startCmd(w.request(), "a", "f", "in"))
	w.commit(w.only("w3", "f"), "continue else")
	if w.do(startCmd(w.request(), "a", "f", "in")).GetStart().Created {
		t.Error("the same start began another execution")
	}
	w.refused(startCmd(w.request(), "a", "f", "else"), perdurev1.Reason_REASON_ID_CONFLICT)
}

func (w *world) promiseExists(objectID string) bool {
	_, ok := takeCensus(w.at(objectID).state).promises[objectID]
	return ok
}

func TestContinueAsNewRefused(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("a", "f")
	w.commitRefused(v, "step s -> x; continue", perdurev1.Reason_REASON_RULE_BROKEN, ruleContinue)
	for range state.MaxCarriedSignals {
		w.apply(w.parts[0], &commandv1.Entry{Commands: []*commandv1.Command{signalCmd(nil, "a", "s", "")}})
		w.unaudited, w.effectsUnchecked = true, true
	}
	w.commit(v, "nothing")
	w.do(signalCmd(w.request(), "a", "s", ""))
	w.commitRefused(v, "continue", perdurev1.Reason_REASON_RULE_BROKEN, ruleContinue)
	w.commit(v, "wait s")
	w.commit(v, "continue")
	if n := len(w.journal("a")); n != state.MaxCarriedSignals+1 {
		t.Errorf("%d entries", n)
	}
	// An execution that is to stop does not continue: it learns of the cancel.
	w.do(startCmd(w.request(), "b", "g", ""))
	v = w.only("w2", "g")
	w.do(cancelCmd("b", "enough", 1000))
	if got := w.commit(v, "continue"); got.State != acquired || got.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLING {
		t.Errorf("answered %v", got)
	}
}

// The data of a former incarnation is deleted in parts, and the task is announced after the last part.
func TestSweep(t *testing.T) {
	w := newWorld(t, 1)
	w.unaudited, w.effectsUnchecked = true, true
	v := w.begin("a", "f")
	const children = 700
	for range children / 10 {
		w.commit(v, strings.Repeat("child g; sleep 80000; step s -> x; ", 10)+"time 5")
	}
	for _, c := range w.take("w2", 100, "g") {
		w.commit(c, "child h; child h; sleep 70000; await 0")
	}
	w.unaudited, w.effectsUnchecked = false, false
	w.do(restartCmd(w.request(), "a", fromStart, 0))
	if got := w.describe("a").WakeSource; !strings.HasPrefix(got, "deletion of incarnation") {
		t.Errorf("it waits for %q", got)
	}
	if got := w.take("w1", 1, "f"); len(got) != 0 {
		t.Error("the task was given out before the former incarnation is deleted")
	}
	// A signal and a restart of the replica come between, and it ends and begins once more.
	w.do(signalCmd(w.request(), "a", "s", "x"))
	w.apply(w.parts[0], &commandv1.Entry{Commands: []*commandv1.Command{tickCmd(1)}})
	w.open(w.parts[0])
	w.do(terminateCmd("a", ""))
	w.do(reuseCmd(w.request(), "a", "f", "in", perdurev1.Reuse_REUSE_ALWAYS))
	before, ticks := w.parts[0].index, uint64(0)
	w.settleExpired(w.parts[0])
	if ticks = w.parts[0].index - before; ticks < 5 {
		t.Errorf("deleted in %d entries", ticks)
	}
	if left := w.left("a", w.describe("a").Incarnation); len(left) != 5 {
		t.Errorf("%d keys are left:\n%s", len(left), strings.Join(left[:min(20, len(left))], "\n"))
	}
	next := w.only("w1", "f")
	w.commit(next, "child g; await 0")
	w.commit(w.only("w2", "g"), "return x")
	w.commit(w.only("w1", "f"), "return done")
}

// A promise of a client that is named like no operation stays.
func TestSweepLeavesOthers(t *testing.T) {
	w := newWorld(t, 1)
	w.do(createPromiseCmd("a:mine", 90_000))
	w.do(createPromiseCmd("ab", 90_000))
	w.commit(w.begin("a", "f"), "child g")
	w.do(terminateCmd("a", ""))
	w.do(reuseCmd(w.request(), "a", "f", "in", perdurev1.Reuse_REUSE_ALWAYS))
	if !w.promiseExists("a:mine") || !w.promiseExists("ab") || w.promiseExists("a:0") {
		t.Error("the sweep has deleted what is not the former incarnation's, or left what is")
	}
}

// A restart keeps the entries before an event, the signals after it, and the operations open there.
func TestRestartFromEvent(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("a", "f")
	w.commit(v, "step s -> x; child g one; child g two; sleep 4000; child g three")
	w.do(signalCmd(w.request(), "a", "go", "1"))
	w.commit(v, "nothing")
	g := w.take("w2", 3, "g")
	w.commit(g[0], "return r1")
	w.commit(v, "wait go")
	w.commit(v, "step t -> y; child g four")
	w.now += 4000
	w.tick()
	w.do(heartbeatCmd("w1", v.token))
	w.commit(v, "child g five; await 7")
	kinds := strings.Fields(w.course("a"))
	cut := slices.Index(kinds, "delivered")
	reply := w.do(restartCmd(w.request(), "a", fromEvent, uint64(cut))).GetRestart()
	if reply.KeptEvents != uint64(cut) || reply.FormerIncarnation != v.token.Incarnation {
		t.Errorf("%v", reply)
	}
	// The timer has fired and the first child has ended since: their results are recorded again.
	next := w.only("w1", "f")
	got := w.course("a")
	if want := strings.Join(kinds[:cut], " ") + " delivered started completed started fired started"; got != want {
		t.Errorf("the journal is\n%s\nmust be\n%s", got, want)
	}
	if w.promiseExists("a:6") || w.promiseExists("a:7") {
		t.Error("operations after the cut are left")
	}
	// The other two run on, in the incarnation that began them, and their results are the new one's.
	w.commit(g[1], "return r2")
	w.read(next)
	w.commit(next, "wait go")
	w.commit(next, "all 2,4")
	w.commit(g[2], "return r3")
	last := w.only("w1", "f")
	if got := w.course("a"); !strings.HasSuffix(got, "completed received awaiting completed resumed") {
		t.Errorf("the journal is %s", got)
	}
	w.commit(last, "return done")
}

// A cut within a wait is one before the wait; from the start nothing is kept.
func TestRestartCut(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("a", "f")
	w.commit(v, "child g; child g; all 0,1")
	w.commit(w.take("w2", 1, "g")[0], "return x")
	if got := w.course("a"); got != "started scheduled scheduled awaiting started completed" {
		t.Fatalf("the journal is %s", got)
	}
	reply := w.do(restartCmd(w.request(), "a", fromEvent, 6)).GetRestart()
	if got := w.course("a"); reply.KeptEvents != 3 || got != "started scheduled scheduled started completed" {
		t.Errorf("kept %d: %s", reply.KeptEvents, got)
	}
	w.commit(w.only("w3", "f"), "all 0,1")
	w.do(cancelCmd("a", "enough", 1000))
	w.refused(restartCmd(w.request(), "a", fromEvent, 99), perdurev1.Reason_REASON_BAD_REQUEST)
	w.refused(restartCmd(w.request(), "a", fromEvent, 0), perdurev1.Reason_REASON_BAD_REQUEST)
	if e := w.refused(restartCmd(w.request(), "a", fromEvent, 7), perdurev1.Reason_REASON_RULE_BROKEN); !strings.Contains(e.Message, "entry 6 is") {
		t.Error(e)
	}
	w.refused(restartCmd(w.request(), "a", fromFailure, 0), perdurev1.Reason_REASON_RULE_BROKEN)
	w.refused(restartCmd(w.request(), "a:0", fromStart, 0), perdurev1.Reason_REASON_RULE_BROKEN)
	w.refused(restartCmd(w.request(), "nobody", fromStart, 0), perdurev1.Reason_REASON_EXECUTION_NOT_FOUND)
	rid := w.request()
	first := w.do(restartCmd(rid, "a", fromStart, 0)).GetRestart()
	if got := w.course("a"); got != "started" || first.KeptEvents != 0 {
		t.Errorf("kept %d: %s", first.KeptEvents, got)
	}
	if again := w.do(restartCmd(rid, "a", fromStart, 0)).GetRestart(); again.Incarnation != first.Incarnation {
		t.Errorf("the same request again began incarnation %d after %d", again.Incarnation, first.Incarnation)
	}
	if left := w.left("a", first.Incarnation); len(left) != 5 {
		t.Errorf("%d keys are left:\n%s", len(left), strings.Join(left, "\n"))
	}
}

// A retry of a failed function begins at the operation that failed last, and a failed child starts again.
func TestRetryFailed(t *testing.T) {
	for _, c := range []struct{ ops, kept string }{
		{"step a -> x; step b !bad:no; step c -> y; fail bad:no", "started scheduled started completed"},
		{"step a -> x; fail bad:no", "started scheduled started completed"},
		{"step a !bad:no; step b !bad:no; fail bad:no", "started scheduled started completed"},
	} {
		w := newWorld(t, 1)
		w.commit(w.begin("a", "f"), c.ops)
		w.do(restartCmd(w.request(), "a", fromFailure, 0))
		if got := w.course("a"); got != c.kept {
			t.Errorf("%s: kept %s", c.ops, got)
		}
		w.commit(w.only("w1", "f"), "step b -> z; return done")
		if p := w.promise("a"); p.State != perdurev1.PromiseState_PROMISE_STATE_RESOLVED {
			t.Errorf("%s: %v", c.ops, p)
		}
	}
	// Two children fail, the first one after the second. The second is open at the cut and starts again, too.
	for _, spread := range []string{"", " spread"} {
		w := newWorld(t, 3)
		v := w.begin("a", "f")
		w.commit(v, "child g one"+spread+"; child g two"+spread+"; all 0,1")
		w.ship()
		for _, g := range w.take("w2", 2, "g") {
			w.commit(g, "fail bad:no")
			w.ship()
		}
		w.commit(w.only("w1", "f"), "fail bad:no")
		w.do(restartCmd(w.request(), "a", fromFailure, 0))
		w.ship()
		w.tick()
		next := w.only("w1", "f")
		want := "started scheduled"
		if got := w.course("a"); got != want && got != "started" {
			t.Fatalf("kept %s", got)
		}
		if next.nextChild == 0 {
			w.commit(next, "child g one"+spread)
		}
		w.commit(next, "child g two"+spread+"; all 0,1")
		w.ship()
		again := w.take("w2", 5, "g")
		if len(again) != 2 {
			t.Fatalf("%d children start again", len(again))
		}
		for _, g := range again {
			w.commit(g, "return fine")
			w.ship()
		}
		w.commit(w.only("w1", "f"), "return done")
	}
}

// Children that are open at the cut start again on demand; a child that did not ends without effect.
func TestRestartNewChildren(t *testing.T) {
	for _, spread := range []string{"", " spread"} {
		w := newWorld(t, 3)
		v := w.begin("a", "f")
		w.commit(v, "step s -> x; child g in"+spread+" timeout=60000; sleep 1000")
		w.ship()
		former := w.only("w2", "g")
		n := uint64(len(w.journal("a")))
		cmd := restartCmd(w.request(), "a", fromEvent, n)
		cmd.GetRestart().NewChildren = true
		w.do(cmd)
		w.ship()
		child := w.only("w2", "g")
		if child.token.Id == former.token.Id != (spread == "") || string(child.journal[0].Event.GetExecutionStarted().Input) != "in" {
			t.Errorf("started again as %v, was %v", child.token, former.token)
		}
		if spread == "" {
			w.refused(w.commitCmd(former, "return late"), perdurev1.Reason_REASON_STALE_TASK)
		} else {
			w.commit(former, "return late")
		}
		w.ship()
		next := w.only("w1", "f")
		w.commit(next, "await 1")
		w.commit(child, "return fine")
		w.ship()
		if got := w.course("a"); !strings.HasSuffix(got, "awaiting completed resumed") {
			t.Errorf("the journal is %s", got)
		}
		last := w.journal("a")
		if r := last[len(last)-2].Event.GetInvokeCompleted().Result; string(r.GetValue()) != "fine" {
			t.Errorf("the child's result is %v", r)
		}
	}
}

// A critical section ends with the incarnation that is in it, and no incarnation begins inside one.
func TestIncarnationLeavesSection(t *testing.T) {
	const account = "account@a"
	w := newWorld(t, 1)
	w.unaudited, w.effectsUnchecked = true, true // these checks know no entities
	v := w.begin("a", "f")
	w.commit(v, "step s -> x; lock "+account+"; await 1")
	v = w.only("w1", "f")
	w.commitRefused(v, "continue", perdurev1.Reason_REASON_RULE_BROKEN, ruleContinue)
	n := uint64(len(w.journal("a")))
	if e := w.refused(restartCmd(w.request(), "a", fromEvent, n), perdurev1.Reason_REASON_RULE_BROKEN); !strings.Contains(e.Message, "critical section") {
		t.Error(e)
	}
	other := w.begin("b", "f")
	w.commit(other, "child g; lock "+account+"; await 1")
	if w.describe("b").Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_BLOCKED {
		t.Fatal("two executions are in the section")
	}
	w.do(restartCmd(w.request(), "a", fromEvent, 4))
	tasks := w.take("w3", 5, "f")
	if len(tasks) != 2 || !slices.ContainsFunc(tasks, func(v *view) bool { return v.token.Id == "b" }) {
		t.Fatalf("the locks of the former incarnation are not given back: %d tasks", len(tasks))
	}
	for _, v := range tasks {
		if v.token.Id == "b" {
			w.commit(v, "unlock; return x")
		}
	}
	report, err := audit.Run(w.parts[0].state, 0, w.parts[0].cfg.part())
	if err != nil || report.Found != 0 {
		t.Errorf("%v, %v", report.Violations, err)
	}
}

// The audit finds what disagrees about former incarnations and their deletion.
func TestAuditFindsIncarnations(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	w.commit(v, "child g in; step s -> x")
	for range sweepBudget {
		w.do(signalCmd(w.request(), "e", "s", "x"))
	}
	w.do(restartCmd(w.request(), "e", fromEvent, 3)) // keeps the child, and more is to be deleted than one command does
	if h, ok, err := state.ReadHeader(w.parts[0].state, ns, "e"); err != nil || !ok || h.SweepAt == 0 || h.Attached == 0 {
		t.Fatalf("it is not being swept: %v, %v", h, err)
	}
	for _, c := range []struct {
		what, rule string
		plant      func(h *state.Header)
	}{
		{"a former incarnation that is later", audit.RuleIncarnation, func(h *state.Header) { h.Former = h.Incarnation }},
		{"a former incarnation of none", audit.RuleIncarnation, func(h *state.Header) { h.Former = 0 }},
		{"operations attached to no incarnation", audit.RuleIncarnation, func(h *state.Header) { h.Attached = 0 }},
		{"operations attached to a later incarnation", audit.RuleIncarnation, func(h *state.Header) { h.Attached = h.Former + 1 }},
		{"a sweep without a position", audit.RuleIncarnation, func(h *state.Header) { h.Sweep = nil }},
		{"a position without a sweep", audit.RuleIncarnation, func(h *state.Header) { h.SweepAt = 0 }},
		{"a sweep at another time", audit.RuleDeadline, func(h *state.Header) { h.SweepAt++ }},
		{"half a digest of the first input", audit.RuleIncarnation, func(h *state.Header) { h.StartInput = []byte("half") }},
	} {
		s := &plot{t: t, state: w.parts[0].state.Clone(), cfg: w.parts[0].cfg}
		s.header("e", c.plant)
		if found := audited(t, s.state, s.cfg); !slices.ContainsFunc(found, func(v audit.Violation) bool { return v.Rule == c.rule }) {
			t.Errorf("%s is not found: %s", c.what, lines(found))
		}
	}
}
