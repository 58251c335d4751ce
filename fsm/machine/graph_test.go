package machine

import (
	"fmt"
	"strings"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/query"
	"perdure/fsm/wire"
)

// graphOf builds a graph from text: nodes separated by "; ", each
//
//	ID [function F | http URL | signal S | sleep MS | graph NAME] [after A,B] [in NAME=NODE|=run]… [attempts=N] [timeout=MS] [skip]
//
// A node is a function "f" if it does not say otherwise; graph NAME is a subgraph of the given ones.
func graphOf(text string, subgraphs ...*perdurev1.Graph) *perdurev1.Graph {
	g := &perdurev1.Graph{Name: "test"}
	for line := range strings.SplitSeq(text, ";") {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		n := &perdurev1.GraphNode{Id: words[0], Kind: &perdurev1.GraphNode_Function{Function: &perdurev1.FunctionNode{Function: "f"}}}
		for i := 1; i < len(words); i++ {
			next := func() string { i++; return words[i] }
			word := words[i]
			key, value, _ := strings.Cut(word, "=")
			number := func(s string) (v int64) { _, _ = fmt.Sscan(s, &v); return v }
			switch {
			case word == "function":
				n.Kind = &perdurev1.GraphNode_Function{Function: &perdurev1.FunctionNode{Function: next()}}
			case word == "http":
				n.Kind = &perdurev1.GraphNode_Http{Http: &perdurev1.HttpNode{Url: next(), Method: "POST", SendInputs: true,
					Headers: map[string]string{"X-B": "2", "X-A": "1"}}}
			case word == "signal":
				n.Kind = &perdurev1.GraphNode_Signal{Signal: &perdurev1.SignalNode{Name: next()}}
			case word == "sleep":
				n.Kind = &perdurev1.GraphNode_Sleep{Sleep: &perdurev1.SleepNode{DurationMs: number(next())}}
			case word == "graph":
				n.Kind = &perdurev1.GraphNode_Subgraph{Subgraph: subgraphs[number(next())]}
			case word == "after":
				n.After = strings.Split(next(), ",")
			case word == "in":
				name, from, _ := strings.Cut(next(), "=")
				in := &perdurev1.NodeInput{Name: name, Source: &perdurev1.NodeInput_Node{Node: from}}
				if from == "run" {
					in.Source = &perdurev1.NodeInput_Run{Run: true}
				}
				n.Inputs = append(n.Inputs, in)
			case word == "skip":
				n.OnFailure = perdurev1.OnFailure_ON_FAILURE_SKIP
			case key == "attempts":
				n.Retry = &perdurev1.NodeRetry{Attempts: uint32(number(value)), InitialMs: 100}
			case key == "timeout":
				n.TimeoutMs = number(value)
			default:
				panic("graphOf: " + word)
			}
		}
		g.Nodes = append(g.Nodes, n)
	}
	return g
}

func submitCmd(request []byte, objectID string, g *perdurev1.Graph, input string) *commandv1.Command {
	return &commandv1.Command{Namespace: ns, Id: objectID, Request: &perdurev1.RequestID{Id: request},
		Kind: &commandv1.Command_SubmitGraph{SubmitGraph: &perdurev1.SubmitGraphRequest{
			Id: objectID, Graph: g, Input: []byte(input), AllowUnknownFunctions: true}}}
}

func retryCmd(request []byte, objectID string) *commandv1.Command {
	return &commandv1.Command{Namespace: ns, Id: objectID, Request: &perdurev1.RequestID{Id: request},
		Kind: &commandv1.Command_RetryGraph{RetryGraph: &perdurev1.RetryGraphRequest{Id: objectID}}}
}

func (w *world) graphStatus(run string) *perdurev1.GraphStatus {
	w.t.Helper()
	reply := w.query(&commandv1.Query{Id: run, Kind: &commandv1.Query_GraphStatus{GraphStatus: &perdurev1.GraphStatusRequest{}}})
	if e := wire.QueryError(reply); e != nil {
		w.t.Fatalf("status of %s: %v", run, e)
	}
	return reply.GetGraphStatus()
}

func (w *world) nodeOutcome(run, node string) *perdurev1.NodeOutcome {
	w.t.Helper()
	reply := w.query(&commandv1.Query{Id: run, Kind: &commandv1.Query_NodeOutcome{NodeOutcome: &perdurev1.NodeOutcomeRequest{Node: node}}})
	if e := wire.QueryError(reply); e != nil {
		w.t.Fatalf("outcome of %s in %s: %v", node, run, e)
	}
	return reply.GetNodeOutcome()
}

// showGraph is the status of a run in one line.
func (w *world) showGraph(run string) string {
	w.t.Helper()
	s := w.graphStatus(run)
	out := []string{s.Phase}
	for _, n := range s.Nodes {
		text := n.Id + " " + strings.ToLower(strings.TrimPrefix(n.Status.String(), "NODE_STATUS_"))
		if n.Attempt > 1 {
			text += fmt.Sprintf(" #%d", n.Attempt)
		}
		if n.Signal != "" {
			text += " for " + n.Signal
		}
		if n.RetryAtMs != 0 {
			text += fmt.Sprintf(" again at %d", n.RetryAtMs)
		}
		if n.Failure != nil {
			text += " !" + n.Failure.Type
		}
		for _, flag := range []struct {
			name string
			on   bool
		}{{"unobserved", n.Unobserved}, {"propagated", n.ByPropagation}, {"kept", n.Kept}} {
			if flag.on {
				text += " " + flag.name
			}
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

// shows checks the status of a run.
func (w *world) shows(run, want string) {
	w.t.Helper()
	if got := w.showGraph(run); got != want {
		w.t.Fatalf("%s is\n%s, must be\n%s", run, got, want)
	}
}

// work takes all tasks there are of the usual functions.
func (w *world) work() {
	w.t.Helper()
	w.take("w1", 1000, "f", "g", "$http")
}

// end has a worker end the present attempt of a node: "return X", "fail TYPE:MESSAGE".
func (w *world) end(run, node, how string) {
	w.t.Helper()
	w.work()
	shown := w.nodeOutcome(run, node).State
	v := w.views[viewKey{"w1", shown.AttemptId}]
	if v == nil {
		w.t.Fatalf("no worker has %s of %s: %v", node, run, shown)
	}
	w.commit(v, how)
}

func (w *world) result(objectID string) string {
	w.t.Helper()
	got := w.query(&commandv1.Query{Id: objectID, Kind: &commandv1.Query_Result{Result: &perdurev1.ResultRequest{}}}).GetResult()
	switch {
	case !got.Done:
		return "open"
	case got.Outcome.GetFailure() != nil:
		return "!" + got.Outcome.GetFailure().Type + ": " + got.Outcome.GetFailure().Message
	}
	return string(got.Outcome.GetValue())
}

const diamondText = "a in x=run; b after a in a=a; c after a in a=a; d after b,c in b=b in c=c"

func TestGraphDiamond(t *testing.T) {
	w := newWorld(t, 1)
	g := graphOf(diamondText)
	submit := submitCmd(w.request(), "run", g, `{"n":1}`)
	if got := w.do(submit).GetSubmitGraph(); !got.Created || got.Id != "run" || got.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING {
		t.Fatalf("submitted: %v", got)
	}
	w.shows("run", "progressing; a running; b pending; c pending; d pending")
	w.end("run", "a", `return "A"`)
	w.shows("run", "progressing; a completed; b running; c running; d pending")
	w.end("run", "c", `return "C"`)
	w.shows("run", "progressing; a completed; b running; c completed; d pending")
	w.end("run", "b", `return "B"`)
	if got := w.journal("run:3.0")[0].Event.GetExecutionStarted(); string(got.Input) != `{"b":"B","c":"C"}` || got.ParentId != "run" {
		t.Errorf("d got %v", got)
	}
	w.end("run", "d", `return "D"`)
	w.shows("run", "completed; a completed; b completed; c completed; d completed")
	if got := w.result("run"); got != `{"d":"D"}` {
		t.Errorf("result %s", got)
	}
	if got := w.kinds("run"); got != "ExecutionStarted InvokeScheduled InvokeStarted InvokeCompleted"+
		strings.Repeat(" InvokeScheduled InvokeStarted", 2)+strings.Repeat(" InvokeCompleted", 2)+
		" InvokeScheduled InvokeStarted InvokeCompleted ExecutionCompleted" {
		t.Errorf("journal %s", got)
	}
	if got := w.do(submit).GetSubmitGraph(); !got.Created || got.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED {
		t.Errorf("submitted again: %v", got)
	}
	if got := w.do(submitCmd(w.request(), "run", g, `{"n":1}`)).GetSubmitGraph(); got.Created {
		t.Errorf("found: %v", got)
	}
	w.refused(submitCmd(nil, "run", g, `{"n":2}`), perdurev1.Reason_REASON_ID_CONFLICT)
	w.refused(submitCmd(nil, "run", graphOf("a"), `{"n":1}`), perdurev1.Reason_REASON_ID_CONFLICT)
	w.refused(startCmd(nil, "run", "f", ""), perdurev1.Reason_REASON_ID_CONFLICT)
	listed := w.list(w.parts[0], &perdurev1.ListRequest{Function: "$graph"}, query.ListBudget).Executions
	if len(listed) != 1 || listed[0].Id != "run" {
		t.Errorf("listed: %v", listed)
	}
	if d := w.describe("run"); d.Function != "$graph" || d.Task != nil || d.WakeSource != "finished" {
		t.Errorf("described: %v", d)
	}
}
