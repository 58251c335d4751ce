package machine

import (
	"fmt"
	"strings"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/fsm/wire"
)

func (w *world) submit(run string, g *perdurev1.Graph, input string) {
	w.t.Helper()
	w.do(submitCmd(w.request(), run, g, input))
}

// pass moves the clock and runs the expirations.
func (w *world) pass(ms int64) {
	w.t.Helper()
	w.now += ms
	w.tick()
}

// A failure fails what comes after it, and only that.
func TestGraphFailurePropagates(t *testing.T) {
	w := newWorld(t, 1)
	w.submit("run", graphOf("a; b; c after a; d after c; e after b"), "")
	w.end("run", "a", "fail app:broken")
	w.shows("run", "progressing; a failed !app; b running; c failed propagated; d failed propagated; e pending")
	w.end("run", "b", `return 1`)
	w.end("run", "e", `return 2`)
	w.shows("run", "failed; a failed !app; b completed; c failed propagated; d failed propagated; e completed")
	if got := w.result("run"); got != `!graph_failed: node "a" (app: broken) failed` {
		t.Errorf("result %s", got)
	}
	if s := w.graphStatus("run"); s.Problem != `node "a" (app: broken) failed` || s.ClosedMs == 0 || s.Version != w.describe("run").JournalEvents {
		t.Errorf("status %v", s)
	}
}

// A failure that is to be skipped is recorded, and what comes after runs with null.
func TestGraphFailureSkipped(t *testing.T) {
	w := newWorld(t, 1)
	w.submit("run", graphOf("a skip; b after a in a=a; c skip signal s timeout=50; d after c in c=c"), "")
	w.end("run", "a", "fail app:broken")
	w.shows("run", "progressing; a skipped !app; b running; c waiting for s; d pending")
	w.pass(50)
	w.shows("run", "progressing; a skipped !app; b running; c skipped !timeout; d running")
	if got := w.nodeOutcome("run", "a"); got.Output != nil || got.State.Failure.Message != "broken" {
		t.Errorf("a: %v", got)
	}
	if got := w.journal("run:2.0")[0].Event.GetExecutionStarted(); string(got.Input) != `{"a":null}` {
		t.Errorf("b got %s", got.Input)
	}
	w.end("run", "b", "return 1")
	w.end("run", "d", "fail graph.skipped:")
	w.shows("run", "completed; a skipped !app; b completed; c skipped !timeout; d skipped")
	if got := w.result("run"); got != `{"b":1,"d":null}` {
		t.Errorf("result %s", got)
	}
}

// A failed attempt is followed by another after a pause, as often as the node says.
func TestGraphRetry(t *testing.T) {
	w := newWorld(t, 1)
	w.submit("run", graphOf("a attempts=3 timeout=500; b after a"), "")
	w.end("run", "a", "fail app:first")
	w.shows("run", "progressing; a running again at 1100 !app; b pending")
	if got := w.describe("run").WakeSource; got != "retry timer" {
		t.Errorf("woken by %s", got)
	}
	w.pass(99)
	w.shows("run", "progressing; a running again at 1100 !app; b pending")
	w.pass(1)
	w.shows("run", "progressing; a running #2 !app; b pending")
	w.work()
	w.pass(500) // no worker answers in time
	w.shows("run", "progressing; a running #2 again at 1800 !timeout; b pending")
	w.pass(200)
	w.end("run", "a", "return 7")
	w.shows("run", "progressing; a completed #3; b running")
	w.end("run", "b", "return 8")
	var attempts []string
	for _, e := range w.journal("run") {
		if s := showEvent(e.Event); strings.Contains(s, "run:0") {
			attempts = append(attempts, s)
		}
	}
	want := []string{`InvokeScheduled run:0 function f input="null" attempts=3`, `InvokeStarted run:0 #1`,
		`InvokeRetrying run:0 #1 !app "first" again at 1100`, `InvokeStarted run:0 #2`,
		`InvokeRetrying run:0 #2 !timeout "timed out" again at 1800`, `InvokeStarted run:0 #3`, `InvokeCompleted run:0 #3 "7"`}
	if got := strings.Join(attempts, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("the journal has\n%s", got)
	}
	// At the bound, and for a failure that says that trying again is of no use, the node has failed.
	w.submit("bound", graphOf("a attempts=2"), "")
	w.end("bound", "a", "fail app:1")
	w.pass(100)
	w.end("bound", "a", "fail app:2")
	w.shows("bound", "failed; a failed #2 !app")
	w.submit("final", graphOf("a attempts=9"), "")
	w.work()
	v := w.views[viewKey{"w1", "final:0.0"}]
	cmd := w.commitCmd(v, "fail app:no")
	cmd.GetCommit().Events[0].GetExecutionFailed().Error.NonRetryable = true
	w.do(cmd)
	w.shows("final", "failed; a failed !app")
}

func TestGraphPauses(t *testing.T) {
	for _, c := range []struct {
		retry *perdurev1.NodeRetry
		want  string
	}{
		{&perdurev1.NodeRetry{}, "1000 2000 4000 8000 16000 32000 60000 60000"},
		{&perdurev1.NodeRetry{InitialMs: 5, FactorPercent: 150}, "5 7 10 15 22 33 49 73"},
		{&perdurev1.NodeRetry{InitialMs: 1, FactorPercent: 150}, "1 1 1 1 1 1 1 1"},
		{&perdurev1.NodeRetry{InitialMs: 9, MaxMs: 5}, "5 5 5 5 5 5 5 5"},
		{&perdurev1.NodeRetry{InitialMs: 1 << 62, MaxMs: 1 << 62, FactorPercent: 1 << 31}, strings.TrimSpace(strings.Repeat(fmt.Sprint(1<<40, " "), 8))},
	} {
		var got []string
		for attempt := range uint32(8) {
			got = append(got, fmt.Sprint(pauseOf(&perdurev1.GraphNode{Retry: c.retry}, attempt+1)))
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%v: %s, must be %s", c.retry, s, c.want)
		}
	}
}

// A signal that comes before its node waits is kept; one that comes later ends the wait of all who wait.
func TestGraphSignals(t *testing.T) {
	w := newWorld(t, 1)
	w.submit("run", graphOf("a; early signal s after a; one signal t; two signal t; late after early,one,two in e=early in o=one; patient"), "")
	w.do(signalCmd(nil, "run", "s", `"first"`))
	w.do(signalCmd(nil, "run", "s", `"second"`))
	w.shows("run", "progressing; a running; early pending; one waiting for t; two waiting for t; late pending; patient running")
	w.end("run", "a", "return 1")
	w.shows("run", "progressing; a completed; early completed; one waiting for t; two waiting for t; late pending; patient running")
	w.end("run", "patient", "fail graph.suspended:u")
	w.shows("run", "suspended; a completed; early completed; one waiting for t; two waiting for t; late pending; patient waiting for u")
	if got := w.describe("run").WakeSource; got != "signal t" {
		t.Errorf("woken by %s", got)
	}
	if got := w.do(signalCmd(nil, "run", "t", `{"by":"me"}`)).GetSignal().DeliveryId; got != 1 {
		t.Errorf("delivery %d", got)
	}
	w.do(signalCmd(nil, "run", "u", ``))
	w.shows("run", "progressing; a completed; early completed; one completed; two completed; late running; patient completed")
	if got := string(w.nodeOutcome("run", "patient").Output); got != "null" {
		t.Errorf("patient: %s", got)
	}
	w.end("run", "late", "return 3")
	if got := w.result("run"); got != `{"late":3,"patient":null}` {
		t.Errorf("result %s", got)
	}
	started := w.journal(w.nodeOutcome("run", "late").State.AttemptId)[0].Event.GetExecutionStarted()
	if string(started.Input) != `{"e":"second","o":{"by":"me"}}` {
		t.Errorf("late got %s", started.Input)
	}
	w.refused(signalCmd(nil, "run", "t", ""), perdurev1.Reason_REASON_ALREADY_FINISHED)
}

// A wait with an expired deadline has failed, whichever command finds it first.
func TestGraphSignalDeadline(t *testing.T) {
	for _, how := range []string{"tick", "signal"} {
		w := newWorld(t, 1)
		w.submit("run", graphOf("a signal s timeout=50; b signal s"), "")
		w.now += 50
		if how == "signal" {
			w.do(signalCmd(nil, "run", "s", "1"))
			w.shows("run", "failed; a failed !timeout; b completed")
			continue
		}
		w.tick()
		w.shows("run", "suspended; a failed !timeout; b waiting for s")
	}
}

func TestGraphSleep(t *testing.T) {
	w := newWorld(t, 1)
	w.submit("run", graphOf("a sleep 100; b after a in a=a"), "")
	if got := w.describe("run").WakeSource; got != "timer run:0" {
		t.Errorf("woken by %s", got)
	}
	w.pass(99)
	w.shows("run", "progressing; a running; b pending")
	w.pass(1)
	w.shows("run", "progressing; a completed; b running")
	w.end("run", "b", "return 1")
	if got := w.kinds("run"); got != "ExecutionStarted TimerScheduled TimerFired InvokeScheduled InvokeStarted InvokeCompleted ExecutionCompleted" {
		t.Errorf("journal %s", got)
	}
}

// A subgraph is a run of its own, whose outputs are the output of its node.
func TestGraphSubgraph(t *testing.T) {
	inner := graphOf("x in in=run; y after x sleep 10; z after x in x=x")
	w := newWorld(t, 1)
	w.submit("run", graphOf("a; s graph 0 after a in a=a attempts=2; b after s in s=s", inner), "")
	w.end("run", "a", `return "A"`)
	w.shows("run", "progressing; a completed; s running; b pending")
	w.shows("run:1.0", "progressing; x running; y pending; z pending")
	if d := w.describe("run:1.0"); d.ParentId != "run" || d.WakeSource != "child run:1.0.0" {
		t.Errorf("described: %v", d)
	}
	w.end("run:1.0", "x", "fail app:no")
	w.shows("run", "progressing; a completed; s running again at 1100 !graph_failed; b pending")
	w.pass(100)
	w.end("run:1.1", "x", "return 1")
	w.end("run:1.1", "z", "return 2")
	w.pass(10)
	w.shows("run:1.1", "completed; x completed; y completed; z completed")
	w.shows("run", "progressing; a completed; s completed #2; b running")
	if got := string(w.journal("run:2.0")[0].Event.GetExecutionStarted().Input); got != `{"s":{"y":null,"z":2}}` {
		t.Errorf("b got %s", got)
	}
	if got := string(w.journal("run:1.1.0.0")[0].Event.GetExecutionStarted().Input); got != `{"in":{"a":"A"}}` {
		t.Errorf("x got %s", got)
	}
	w.end("run", "b", "return 3")
	w.shows("run", "completed; a completed; s completed #2; b completed")
	w.refused(retryCmd(w.request(), "run:1.0"), perdurev1.Reason_REASON_RULE_BROKEN)
}

// At most max_parallel nodes run; who waits or sleeps does not count.
func TestGraphMaxParallel(t *testing.T) {
	g := graphOf("a; b; c; d; s signal s; n sleep 1000")
	g.MaxParallel = 2
	w := newWorld(t, 1)
	w.submit("run", g, "")
	w.shows("run", "progressing; a running; b running; c pending; d pending; s waiting for s; n running")
	w.end("run", "b", "return 1")
	w.shows("run", "progressing; a running; b completed; c running; d pending; s waiting for s; n running")
	w.end("run", "a", "fail graph.suspended:s")
	w.shows("run", "progressing; a waiting for s; b completed; c running; d running; s waiting for s; n running")
}

// In waves, results count when the whole wave has one.
func TestGraphWave(t *testing.T) {
	g := graphOf("a; b; c after a; d after b; e signal s; f after e")
	g.Wave = true
	w := newWorld(t, 1)
	w.submit("run", g, "")
	w.end("run", "a", "return 1")
	w.do(signalCmd(nil, "run", "s", "5"))
	w.shows("run", "progressing; a completed unobserved; b running; c pending; d pending; e completed unobserved; f pending")
	w.end("run", "b", "fail app:no")
	w.shows("run", "progressing; a completed; b failed !app; c running; d failed propagated; e completed; f running")
	w.end("run", "c", "return 1")
	w.shows("run", "progressing; a completed; b failed !app; c completed unobserved; d failed propagated; e completed; f running")
	w.end("run", "f", "return 1")
	w.shows("run", "failed; a completed; b failed !app; c completed; d failed propagated; e completed; f completed")
}

// A cancel is passed on to what runs; the run ends when nothing does.
func TestGraphCancel(t *testing.T) {
	w := newWorld(t, 1)
	w.submit("run", graphOf("a; b; c after a; p attempts=2; s signal s; n sleep 100; g graph 0", graphOf("x; y signal t")), "")
	w.end("run", "p", "fail app:no")
	w.work()
	w.do(cancelCmd("run", "enough", 5000))
	w.shows("run", "progressing; a running; b running; c pending; p pending !app; s waiting for s; n running; g running")
	if got := w.describe("run:0.0").Status; got != perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLING {
		t.Errorf("a is %v", got)
	}
	w.end("run", "a", "return 1") // it was ending; the answer tells the worker of the cancel
	w.end("run", "b", "cancelled ok")
	w.shows("run", "progressing; a pending; b pending; c pending; p pending !app; s waiting for s; n running; g running")
	w.end("run:5.0", "x", "cancelled ok")
	w.shows("run:5.0", "cancelled; x pending; y pending")
	w.shows("run", "cancelled; a pending; b pending; c pending; p pending !app; s pending; n pending; g pending")
	if got := w.result("run"); got != "!cancelled: enough" {
		t.Errorf("result %s", got)
	}
	w.pass(1_000_000)
	w.shows("run", "cancelled; a pending; b pending; c pending; p pending !app; s pending; n pending; g pending")

	// The grace ends it without its workers, whose results come too late.
	w.submit("slow", graphOf("a; b after a; g graph 0", graphOf("x")), "")
	w.work()
	w.do(cancelCmd("slow", "enough", 1000))
	w.pass(1000)
	w.shows("slow", "cancelled; a pending; b pending; g pending")
	w.refused(w.commitCmd(w.views[viewKey{"w1", "slow:0.0"}], "return 1"), perdurev1.Reason_REASON_STALE_TASK)

	// The result of an attempt that ended before the cancel reached its worker counts.
	w.submit("idle", graphOf("s signal s; t after s"), "")
	w.do(cancelCmd("idle", "enough", 1000))
	w.shows("idle", "cancelled; s pending; t pending")
}

func TestGraphTerminateAndDeadline(t *testing.T) {
	for _, how := range []string{"terminate", "deadline", "deadline of a part"} {
		for _, wave := range []bool{false, true} {
			w := newWorld(t, 1)
			g := graphOf("a; b; c after a; s signal s; p attempts=2; g graph 0 after a timeout=500; h after b", graphOf("x; y after x"))
			g.Wave = wave
			cmd := submitCmd(w.request(), "run", g, "")
			cmd.GetSubmitGraph().TimeoutMs = 1000
			w.do(cmd)
			w.end("run", "p", "fail app:no")
			w.end("run", "a", "return 1")
			switch how {
			case "terminate":
				w.do(terminateCmd("run", "stop"))
			case "deadline":
				w.now += 999
				w.tick()
				w.now++
				w.refused(w.commitCmd(w.views[viewKey{"w1", "run:1.0"}], "return late"), perdurev1.Reason_REASON_STALE_TASK)
				w.tick()
			default:
				w.pass(500)
				if s := w.nodeOutcome("run", "g").State; !wave && s.Failure.GetType() != state.FailureTimeout {
					t.Errorf("g is %v", s)
				}
				w.pass(500)
			}
			g2 := w.graphStatus("run")
			for _, n := range g2.Nodes {
				if n.Status == perdurev1.NodeStatus_NODE_STATUS_RUNNING || n.Status == perdurev1.NodeStatus_NODE_STATUS_WAITING || n.Unobserved {
					t.Errorf("%s, wave %v: %v", how, wave, n)
				}
			}
			if g2.Phase != "cancelled" || g2.Nodes[0].Status != perdurev1.NodeStatus_NODE_STATUS_COMPLETED {
				t.Errorf("%s, wave %v: %s", how, wave, w.showGraph("run"))
			}
			w.pass(1_000_000)
		}
	}
}

// A finished run continues from its failures, as a new incarnation that keeps completed nodes.
func TestGraphRetryRun(t *testing.T) {
	w := newWorld(t, 1)
	g := graphOf("a; k skip after a; b after a in a=a; s signal s after b; c after s in s=s")
	w.submit("run", g, `"in"`)
	w.do(signalCmd(nil, "run", "s", `"S"`))
	w.end("run", "a", `return "A"`)
	w.end("run", "k", "fail app:skipped")
	w.end("run", "b", "fail app:broken")
	w.shows("run", "failed; a completed; k skipped !app; b failed !app; s failed propagated; c failed propagated")
	former := w.graphStatus("run").Incarnation
	retry := retryCmd(w.request(), "run")
	got := w.do(retry).GetRetryGraph()
	if got.FormerIncarnation != former || got.Reset_ != 3 || got.Incarnation <= former {
		t.Errorf("retried: %v", got)
	}
	if again := w.do(retry).GetRetryGraph(); again.Incarnation != got.Incarnation {
		t.Errorf("retried again: %v", again)
	}
	w.shows("run", "progressing; a completed kept; k skipped !app kept; b running; s pending; c pending")
	if s := w.graphStatus("run"); s.FormerIncarnation != former || s.Nodes[0].PromiseId != "" || s.Nodes[0].AttemptId != "run:0.0" ||
		s.Nodes[2].PromiseId != "run:0" || s.Nodes[2].AttemptId != "run:0.1024" {
		t.Errorf("status %v", s)
	}
	if got := string(w.journal("run:0.1024")[0].Event.GetExecutionStarted().Input); got != `{"a":"A"}` {
		t.Errorf("b got %s of what was kept", got)
	}
	w.refused(retryCmd(w.request(), "run"), perdurev1.Reason_REASON_RULE_BROKEN)
	w.end("run", "b", "fail app:again")
	w.do(retryCmd(w.request(), "run"))
	w.end("run", "b", `return "B"`)
	w.shows("run", "progressing; a completed kept; k skipped !app kept; b completed; s completed; c running")
	if got := string(w.nodeOutcome("run", "a").Output); got != `"A"` {
		t.Errorf("a: %s", got)
	}
	w.end("run", "c", `return "C"`)
	if got := w.result("run"); got != `{"c":"C","k":null}` {
		t.Errorf("result %s", got)
	}
	w.refused(retryCmd(w.request(), "run"), perdurev1.Reason_REASON_ALREADY_FINISHED)
	w.refused(retryCmd(w.request(), "none"), perdurev1.Reason_REASON_EXECUTION_NOT_FOUND)
	w.do(startCmd(nil, "e", "f", ""))
	w.refused(retryCmd(w.request(), "e"), perdurev1.Reason_REASON_RULE_BROKEN)
	listed := w.list(w.parts[0], &perdurev1.ListRequest{IdPrefix: "run", Function: "$graph"}, query.ListBudget).Executions
	if len(listed) != 1 || listed[0].Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED {
		t.Errorf("listed %v", listed)
	}
	// A retry continues a terminated run, too.
	w.submit("stopped", graphOf("a; b after a"), "")
	w.end("stopped", "a", "return 1")
	w.do(terminateCmd("stopped", "oops"))
	w.do(retryCmd(w.request(), "stopped"))
	w.end("stopped", "b", "return 2")
	w.shows("stopped", "completed; a completed kept; b completed")
}

// A request is made by the server's own function; its key is the same for every attempt.
func TestGraphHTTP(t *testing.T) {
	w := newWorld(t, 1)
	w.submit("run", graphOf("a http http://127.0.0.1/x in r=run timeout=900 attempts=2"), `{"n":1}`)
	const want = `{"url":"http://127.0.0.1/x","method":"POST","headers":{"X-A":"1","X-B":"2"},"body":{"r":{"n":1}},"idempotency_key":"run:0","timeout_ms":900}`
	for _, attempt := range []string{"run:0.0", "run:0.1"} {
		w.work()
		entry := w.journal(attempt)[0].Event.GetExecutionStarted()
		if string(entry.Input) != want || w.describe(attempt).Function != "$http" {
			t.Errorf("%s is to do %s", attempt, entry.Input)
		}
		w.end("run", "a", "fail http:500")
		w.pass(100)
	}
	w.shows("run", "failed; a failed #2 !http")
}

func TestGraphRefused(t *testing.T) {
	w := newWorld(t, 1)
	bad := func(g *perdurev1.Graph) {
		t.Helper()
		w.refused(submitCmd(nil, "run", g, ""), perdurev1.Reason_REASON_BAD_REQUEST)
	}
	bad(nil)
	bad(graphOf(""))
	bad(graphOf("a after b; b after a"))
	bad(graphOf("a; a"))
	bad(graphOf("a after b"))
	bad(graphOf("a function $http"))
	w.refused(submitCmd(nil, "run:1", graphOf("a"), ""), perdurev1.Reason_REASON_BAD_ID)
	w.do(registerCmd("g"))
	cmd := submitCmd(nil, "run", graphOf("a; b function g; c function h; s graph 0", graphOf("x function i; y function h")), "")
	cmd.GetSubmitGraph().AllowUnknownFunctions = false
	if e := w.refused(cmd, perdurev1.Reason_REASON_FUNCTION_UNKNOWN); e.Meta["function"] != "f,h,i" {
		t.Errorf("refused with %v", e)
	}
	w.do(registerCmd("f", "h", "i"))
	w.do(cmd)
	w.do(createPromiseCmd("p", 1000))
	w.refused(submitCmd(nil, "p", graphOf("a"), ""), perdurev1.Reason_REASON_ID_CONFLICT)
	// Names that begin with $ are the server's.
	w.refused(registerCmd("ok", "$http"), perdurev1.Reason_REASON_BAD_REQUEST)
	w.refused(startCmd(nil, "e", "$graph", ""), perdurev1.Reason_REASON_BAD_REQUEST)
	v := w.begin("e2", "other")
	w.commitRefused(v, "child $http", perdurev1.Reason_REASON_BAD_REQUEST, "")
	w.commitRefused(v, "spawn e3 $graph", perdurev1.Reason_REASON_BAD_REQUEST, "")
	// A client cannot settle a run or its nodes.
	for _, owned := range []string{"run", "run:0", "run:0.0", "run:3.0"} {
		w.refused(settlePromiseCmd(owned, resolve, ""), perdurev1.Reason_REASON_NOT_SETTLEABLE)
	}
	for _, q := range []*commandv1.Query{
		{Id: "none", Kind: &commandv1.Query_GraphStatus{GraphStatus: &perdurev1.GraphStatusRequest{}}},
		{Id: "e2", Kind: &commandv1.Query_Graph{Graph: &perdurev1.GetGraphRequest{}}},
		{Id: "run", Kind: &commandv1.Query_NodeOutcome{NodeOutcome: &perdurev1.NodeOutcomeRequest{Node: "none"}}},
	} {
		if e := wire.QueryError(w.query(q)); e == nil {
			t.Errorf("%v was answered", q)
		}
	}
	got := w.query(&commandv1.Query{Id: "run", Kind: &commandv1.Query_Graph{Graph: &perdurev1.GetGraphRequest{}}}).GetGraph()
	if len(got.Graph.GetNodes()) != 4 {
		t.Errorf("the graph is %v", got)
	}
}

// Many roots do not make one giant entry: the rest starts at the next tick.
func TestGraphStartsABit(t *testing.T) {
	var text strings.Builder
	for i := range 300 {
		fmt.Fprintf(&text, "n%d; ", i)
	}
	w := newWorld(t, 1)
	w.submit("run", graphOf(text.String()), "")
	running := func() (n int) {
		for _, shown := range w.graphStatus("run").Nodes {
			if shown.Status == perdurev1.NodeStatus_NODE_STATUS_RUNNING {
				n++
			}
		}
		return n
	}
	if n := running(); n != startsAtOnce || w.describe("run").WakeSource != "next nodes" {
		t.Errorf("%d run, woken by %s", n, w.describe("run").WakeSource)
	}
	w.do(tickCmd(0))
	if n := running(); n != 2*startsAtOnce {
		t.Errorf("%d run", n)
	}
	w.tick()
	if n := running(); n != 300 {
		t.Errorf("%d run", n)
	}
}

// The worked example of the paper: the machine is lost after one fact of a frontier was stored, and at every
// other point. It continues from the rows alone, to the same bytes.
func TestGraphCrash(t *testing.T) {
	for _, last := range []string{`return "B"`, "fail app:no"} {
		for lost := range 8 {
			w := newWorld(t, 1)
			at := 0
			crash := func() {
				if at++; at-1 == lost {
					w.open(w.parts[0])
				}
			}
			w.submit("run", graphOf(diamondText), `{"n":1}`)
			crash()
			w.end("run", "a", `return "A"`)
			crash()
			w.end("run", "c", `return "C"`)
			crash() // c is stored as completed, b runs
			w.shows("run", "progressing; a completed; b running; c completed; d pending")
			w.end("run", "b", last)
			crash()
			want := "failed; a completed; b failed !app; c completed; d failed propagated"
			if last == `return "B"` {
				w.end("run", "d", `return "D"`)
				want = "completed; a completed; b completed; c completed; d completed"
			}
			w.shows("run", want)
			if got := (replica{name: "never lost", reopen: 1 << 30, batch: 1}).follow(t, w.parts[0]); got != "" {
				t.Errorf("lost after %d: %s", lost, got)
			}
		}
	}
}

// A watcher of a run is notified of every change of that run and of no other.
func TestGraphTellsItsWatchers(t *testing.T) {
	w := newWorld(t, 1)
	p := w.parts[0]
	last := func() string { return fmt.Sprint(p.results[len(p.results)-1].Effects.Graphs) }
	w.submit("run", graphOf("a; s signal s; g graph 0", graphOf("x")), "")
	if got := last(); got != "[{default run} {default run:2.0}]" {
		t.Errorf("submitted: %s", got)
	}
	w.do(signalCmd(nil, "run", "s", "1"))
	if got := last(); got != "[{default run}]" {
		t.Errorf("signalled: %s", got)
	}
	w.work()
	if got := last(); got != "[]" {
		t.Errorf("given out: %s", got)
	}
	w.end("run:2.0", "x", "return 1")
	if got := last(); got != "[{default run:2.0} {default run}]" {
		t.Errorf("ended: %s", got)
	}
}

// A refused commit takes back what it had done to a run, in memory too.
func TestGraphRollback(t *testing.T) {
	for _, wave := range []bool{false, true} {
		g := graphOf("a; b; c after a; d after a attempts=2")
		g.Wave = wave
		w := newWorld(t, 1)
		w.submit("run", g, "")
		w.work()
		for range 3 {
			for _, how := range []string{"return 1", "fail app:no", "fail graph.suspended:s", "fail graph.skipped:"} {
				w.commitRefused(w.views[viewKey{"w1", "run:0.0"}], how+"; step x", perdurev1.Reason_REASON_RULE_BROKEN, "")
			}
			run := w.parts[0].m.cache.get(ns, "run").run
			if run == nil || len(run.engine.Check()) > 0 || run.counts.active != 2 || len(run.byChild) != 2 || len(run.unobserved) > 0 {
				t.Fatalf("in memory: %+v", run)
			}
		}
		w.end("run", "a", "return 1")
		w.end("run", "b", "return 1")
		w.shows("run", "progressing; a completed; b completed; c running; d running")
	}
}

// Tasks that a refused commit has made ready are no longer ready.
func TestGraphRollbackOfReadiness(t *testing.T) {
	g := graphOf("a; b; c after a; d after a; e after b")
	g.MaxParallel = 2
	w := newWorld(t, 1)
	w.submit("run", g, "")
	w.work()
	w.commitRefused(w.views[viewKey{"w1", "run:0.0"}], "return 1; step x", perdurev1.Reason_REASON_RULE_BROKEN, "")
	w.shows("run", "progressing; a running; b running; c pending; d pending; e pending")
	w.end("run", "b", "return 1")
	w.shows("run", "progressing; a running; b completed; c pending; d pending; e running")
	w.end("run", "e", "return 1")
	w.shows("run", "progressing; a running; b completed; c pending; d pending; e completed")
}

// A run that begins cannot be replaced in the entry that made it: its incarnation is the entry's number.
func TestGraphRetryInOneEntry(t *testing.T) {
	w := newWorld(t, 1)
	res := w.apply(w.parts[0], &commandv1.Entry{Commands: []*commandv1.Command{
		submitCmd(w.request(), "run", graphOf("a"), ""), terminateCmd("run", ""), retryCmd(w.request(), "run")}})
	if e := wire.ReplyError(res.Replies[2]); e == nil || e.Reason != perdurev1.Reason_REASON_TRY_LATER {
		t.Errorf("answered %v", res.Replies[2])
	}
	w.do(retryCmd(w.request(), "run"))
}

// A later incarnation of a run has the same timeout as the first, from its own start.
func TestGraphRetryHasItsTime(t *testing.T) {
	w := newWorld(t, 1)
	cmd := submitCmd(w.request(), "run", graphOf("a"), "")
	cmd.GetSubmitGraph().TimeoutMs = 1000
	w.do(cmd)
	w.pass(1000)
	w.shows("run", "cancelled; a pending")
	w.pass(5000)
	w.do(retryCmd(w.request(), "run"))
	w.pass(999)
	w.shows("run", "progressing; a running")
	w.pass(1)
	w.shows("run", "cancelled; a pending")
}

// An attempt that sends a message to its own expired run ends by that. The send and the rest of its commit
// are void, and the commit is not refused.
func TestGraphAttemptThatEndsItself(t *testing.T) {
	w := newWorld(t, 1)
	cmd := submitCmd(w.request(), "run", graphOf("a; b signal s"), "")
	cmd.GetSubmitGraph().TimeoutMs = 1000
	w.do(cmd)
	v := w.only("w", "f")
	w.now += 1000 // and no tick
	reply := w.do(w.commitCmd(v, "step x; signal run s 1; step y; return late")).GetCommit()
	if reply.State != perdurev1.TaskState_TASK_STATE_FULFILLED || reply.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED {
		t.Errorf("answered %v", reply)
	}
	w.shows("run", "cancelled; a pending; b pending")
	if got := w.kinds("run:0.0"); got != "ExecutionStarted InvokeScheduled InvokeStarted InvokeCompleted CancelRequested ExecutionCancelled" {
		t.Errorf("the attempt's journal is %s", got)
	}
}

// A task is not given out that the next one, whose time was up, has ended with the whole run.
func TestGraphEndsWhileItIsAssigned(t *testing.T) {
	w := newWorld(t, 1)
	cmd := submitCmd(w.request(), "run", graphOf("a; b timeout=500"), "")
	cmd.GetSubmitGraph().TimeoutMs = 1000
	w.do(cmd)
	w.now += 1000 // and no tick
	if got := w.take("w", 10, "f"); len(got) != 0 {
		t.Errorf("given out: %v", got)
	}
	w.shows("run", "cancelled; a pending; b pending")
}
