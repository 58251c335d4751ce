package jepsen

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/graph"
	"perdure/reduction"
)

const (
	stPending   = perdurev1.NodeStatus_NODE_STATUS_PENDING
	stRunning   = perdurev1.NodeStatus_NODE_STATUS_RUNNING
	stWaiting   = perdurev1.NodeStatus_NODE_STATUS_WAITING
	stCompleted = perdurev1.NodeStatus_NODE_STATUS_COMPLETED
	stFailed    = perdurev1.NodeStatus_NODE_STATUS_FAILED
	stSkipped   = perdurev1.NodeStatus_NODE_STATUS_SKIPPED
)

// played is the history of an ended script on a correct cluster, with the calls of its workers.
func played(id string, s *GraphScript) (*GraphRecord, []Call) {
	expect, completes := s.Expect()
	rec := &GraphRecord{ID: id, Script: s, Acked: true, Outputs: map[string][]byte{}, Subs: map[string]*GraphRecord{},
		Status: &perdurev1.GraphStatus{Id: id, Version: 100, Phase: "completed", Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED}}
	if !completes {
		rec.Status.Phase, rec.Status.Status = "failed", perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED
	}
	joint := ":"
	if strings.Contains(id, ":") {
		joint = "."
	}
	var calls []Call
	for i, n := range s.Graph.GetNodes() {
		e := expect[n.GetId()]
		state := &perdurev1.GraphNodeState{Id: n.GetId(), Status: e.Status, ByPropagation: e.ByPropagation, Attempt: e.Attempt}
		if e.Failure != "" {
			state.Failure = &perdurev1.Failure{Type: e.Failure, Message: e.Message}
		}
		if e.Output != nil {
			rec.Outputs[n.GetId()] = e.Output
		}
		_, isFunction := s.Plans[n.GetId()]
		sub := s.Subs[n.GetId()]
		if e.Attempt > 0 {
			state.PromiseId = fmt.Sprintf("%s%s%d", id, joint, i)
		}
		if e.Attempt > 0 && (isFunction || sub != nil) {
			state.AttemptId = fmt.Sprintf("%s.%d", state.PromiseId, e.Attempt-1)
			for _, attempt := range attemptIDs(state) {
				if sub == nil {
					calls = append(calls, Call{attempt, n.GetId()})
					continue
				}
				inner, more := played(attempt, sub)
				rec.Subs[attempt] = inner
				calls = append(calls, more...)
			}
		}
		rec.Status.Nodes = append(rec.Status.Nodes, state)
	}
	rec.Seen = proto.CloneOf(rec.Status)
	return rec, calls
}

// function is a node that runs a plan, after others.
func function(s *GraphScript, p NodePlan, attempts uint32, after ...string) {
	n := &perdurev1.GraphNode{Id: p.Node, After: after, Retry: &perdurev1.NodeRetry{Attempts: attempts},
		Kind: &perdurev1.GraphNode_Function{Function: &perdurev1.FunctionNode{Function: graphFunctionName}}}
	for i, before := range after {
		n.Inputs = append(n.Inputs, &perdurev1.NodeInput{Name: fmt.Sprintf("in%d", i), Source: &perdurev1.NodeInput_Node{Node: before}})
	}
	s.Plans[p.Node] = p
	s.Graph.Nodes = append(s.Graph.Nodes, n)
}

func newScript() *GraphScript {
	return &GraphScript{Graph: &perdurev1.Graph{}, Plans: map[string]NodePlan{}, Subs: map[string]*GraphScript{}}
}

// aScript is a diamond a → (b, c) → d in which b fails after a retry, and four more nodes: e is skipped, f
// waits for a signal, g comes after both, h is a graph of its own.
func aScript() *GraphScript {
	s := newScript()
	s.Signals = []string{"go"}
	function(s, NodePlan{Node: "a", End: EndSucceed}, 1)
	function(s, NodePlan{Node: "b", End: EndFail}, 2, "a")
	function(s, NodePlan{Node: "c", Fails: 1, End: EndSucceed}, 3, "a")
	function(s, NodePlan{Node: "d", End: EndSucceed}, 1, "b", "c")
	function(s, NodePlan{Node: "e", End: EndSkip}, 1, "a")
	function(s, NodePlan{Node: "f", End: EndSuspend, Signal: "go"}, 1, "a")
	function(s, NodePlan{Node: "g", End: EndSucceed}, 1, "e", "f")
	sub := newScript()
	function(sub, NodePlan{Node: "x", End: EndSucceed}, 1)
	s.Subs["h"] = sub
	s.Graph.Nodes = append(s.Graph.Nodes, &perdurev1.GraphNode{Id: "h", Kind: &perdurev1.GraphNode_Subgraph{Subgraph: sub.Graph}})
	return s
}

func TestGraphChecker(t *testing.T) {
	node := func(r *GraphRecord, id string) *perdurev1.GraphNodeState {
		for _, n := range r.Status.GetNodes() {
			if n.GetId() == id {
				return n
			}
		}
		t.Fatalf("no node %s", id)
		return nil
	}
	for _, c := range []struct {
		name  string
		plant func(r *GraphRecord, calls *[]Call)
		what  string // "" for none
	}{
		{"nothing", func(*GraphRecord, *[]Call) {}, ""},
		{"a call is begun again", func(_ *GraphRecord, c *[]Call) { *c = append(*c, (*c)[0]) }, ""},
		{"the submission is lost", func(r *GraphRecord, _ *[]Call) { r.Status = nil }, "lost: r was acknowledged"},
		{"it could not be submitted", func(r *GraphRecord, _ *[]Call) { r.Status, r.Acked = nil, false }, "stuck: r could not"},
		{"it does not end", func(r *GraphRecord, _ *[]Call) {
			r.Status.Status, r.Status.Phase = perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING, "progressing"
			node(r, "g").Status = stRunning
		}, "stuck: r: progressing, version 100; g ("},
		{"the run completes although a node has failed", func(r *GraphRecord, _ *[]Call) {
			r.Status.Status = perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED
		}, "wrong: r: reduction: the run is EXECUTION_STATUS_COMPLETED"},
		{"a failure does not reach what comes after it", func(r *GraphRecord, _ *[]Call) {
			n := node(r, "d")
			n.Status, n.ByPropagation = stPending, false
		}, "wrong: r: reduction: node d is pending, and failed follows"},
		{"a failure reaches what does not come after it", func(r *GraphRecord, _ *[]Call) {
			n := node(r, "g")
			n.Status, n.ByPropagation = stFailed, true
		}, "wrong: r: reduction: node g is failed, and pending follows"},
		{"a node runs after a failed one", func(r *GraphRecord, _ *[]Call) {
			n := node(r, "d")
			n.Status, n.ByPropagation = stCompleted, false
		}, "wrong: r: reduction: "},
		{"a lost worker shows as a failure", func(r *GraphRecord, _ *[]Call) {
			n := node(r, "g")
			n.Status, n.Failure = stFailed, &perdurev1.Failure{Type: "lost"}
		}, "wrong: r: node g (): it is failed, by its script completed"},
		{"a lost worker costs an attempt", func(r *GraphRecord, _ *[]Call) {
			n := node(r, "c")
			n.Attempt, n.AttemptId = 3, n.PromiseId+".2"
		}, "wrong: r: node c (): it took 3 attempts, by its script 2"},
		{"a node fails before its retries are spent", func(r *GraphRecord, _ *[]Call) {
			n := node(r, "b")
			n.Attempt, n.AttemptId = 1, n.PromiseId+".0"
		}, "wrong: r: node b (): it took 1 attempts, by its script 2"},
		{"the failure is another one", func(r *GraphRecord, _ *[]Call) { node(r, "b").Failure.Message = "b, attempt 1" }, "wrong: r: node b (): its failure says"},
		{"its type too", func(r *GraphRecord, _ *[]Call) { node(r, "b").Failure.Type = "error" }, "wrong: r: node b (): its failure is"},
		{"an output is another one", func(r *GraphRecord, _ *[]Call) { r.Outputs["g"] = []byte(`"x"`) }, "wrong: r: node g (): its output"},
		{"a signal's payload is lost", func(r *GraphRecord, _ *[]Call) { r.Outputs["f"] = nil }, "wrong: r: node f (): its output"},
		{"a result is never observed", func(r *GraphRecord, _ *[]Call) { node(r, "c").Unobserved = true }, "wrong: r: node c (): its run has ended"},
		{"a skipped node counts as completed", func(r *GraphRecord, _ *[]Call) { node(r, "e").Status = stCompleted }, "wrong: r: node e (): it is completed"},
		{"a node is not there", func(r *GraphRecord, _ *[]Call) { r.Status.Nodes = r.Status.Nodes[:7] }, "wrong: r: 7 nodes are shown, not 8"},
		{"it changes after its end", func(r *GraphRecord, _ *[]Call) { r.Seen.Version = 99 }, "wrong: r: it changed between two reads after its end"},
		{"an attempt has a wrong id", func(r *GraphRecord, _ *[]Call) { node(r, "a").AttemptId = "r:0.7" }, "wrong: r: node a: attempt 1 has the id"},
		{"a node of a failed branch is worked on", func(_ *GraphRecord, c *[]Call) { *c = append(*c, Call{"r:3.0", "d"}) }, "wrong: r:3.0 ran for node d"},
		{"an attempt too many is worked on", func(_ *GraphRecord, c *[]Call) { *c = append(*c, Call{"r:1.2", "b"}) }, "wrong: r:1.2 ran for node b"},
		{"an attempt works on another node", func(_ *GraphRecord, c *[]Call) { (*c)[0].Node = "b" }, "wrong: r:0.0 ran as node b"},
		{"a result without work", func(_ *GraphRecord, c *[]Call) { *c = (*c)[1:] }, "wrong: r:0.0 of node a has a result"},
		{"a subgraph is gone", func(r *GraphRecord, _ *[]Call) { r.Subs["r:7.0"] = nil }, "wrong: r: node h: the run of its graph"},
		{"a subgraph's node fails", func(r *GraphRecord, _ *[]Call) { r.Subs["r:7.0"].Status.Nodes[0].Status = stFailed }, "wrong: r: r:7.0: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, calls := played("r", aScript())
			c.plant(r, &calls)
			v := CheckGraphs([]*GraphRecord{r}, calls, nil)
			all := v.Violations()
			found := slices.ContainsFunc(all, func(s string) bool { return strings.HasPrefix(s, c.what) })
			if c.what == "" && len(all) > 0 || c.what != "" && !found {
				t.Errorf("violations %q, expected one that begins %q", all, c.what)
			}
		})
	}
}

func TestTwins(t *testing.T) {
	a, calls := played("a", aScript())
	s := aScript()
	s.Graph.Wave = true
	b, more := played("b", s)
	calls = append(calls, more...)
	pair := [][2]string{{"a", "b"}}
	if v := CheckGraphs([]*GraphRecord{a, b}, calls, pair); len(v.Violations()) > 0 || v.Runs != 2 || v.Nodes != 18 {
		t.Fatalf("good twins: %+v", v)
	}
	b.Status.Nodes[4].Status = stCompleted
	b.Outputs["e"] = []byte("1")
	v := CheckGraphs([]*GraphRecord{a, b}, calls, pair)
	if !slices.ContainsFunc(v.Wrong, func(s string) bool { return strings.HasPrefix(s, "node e of a is skipped with ") }) {
		t.Errorf("twins that differ: %q", v.Wrong)
	}
}

// status is a cluster's answer about aScript under way: the statuses of a to h, with a running run.
func status(version uint64, kinds ...perdurev1.NodeStatus) *perdurev1.GraphStatus {
	s := &perdurev1.GraphStatus{Version: version, Phase: "progressing", Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING}
	for i, k := range kinds {
		n := &perdurev1.GraphNodeState{Id: string(rune('a' + i)), Status: k}
		switch k {
		case stWaiting:
			n.Signal, n.Attempt = "go", 1
		case stPending:
		default:
			n.Attempt = 1
		}
		s.Nodes = append(s.Nodes, n)
	}
	return s
}

func TestGraphSamples(t *testing.T) {
	good := func() *perdurev1.GraphStatus {
		return status(10, stCompleted, stRunning, stRunning, stPending, stSkipped, stWaiting, stPending, stRunning)
	}
	for _, c := range []struct {
		name  string
		plant func(s *perdurev1.GraphStatus, script *GraphScript)
		what  string // "" for none
	}{
		{"nothing", func(*perdurev1.GraphStatus, *GraphScript) {}, ""},
		{"a further attempt", func(s *perdurev1.GraphStatus, _ *GraphScript) { s.Version, s.Nodes[1].Attempt = 11, 2 }, ""},
		{"progress", func(s *perdurev1.GraphStatus, _ *GraphScript) { s.Version, s.Nodes[2].Status = 11, stCompleted }, ""},
		{"an unobserved failure in a wave", func(s *perdurev1.GraphStatus, g *GraphScript) {
			g.Graph.Wave, s.Nodes[1].Status, s.Nodes[1].Unobserved = true, stFailed, true
		}, ""},
		{"an unobserved failure without waves", func(s *perdurev1.GraphStatus, _ *GraphScript) {
			s.Nodes[1].Status, s.Nodes[1].Unobserved = stFailed, true
		}, "node b has a result that is not observed"},
		{"an open node after a failed one", func(s *perdurev1.GraphStatus, _ *GraphScript) { s.Nodes[1].Status = stFailed },
			"reduction: " + reduction.RuleClosed},
		{"a node runs too early", func(s *perdurev1.GraphStatus, _ *GraphScript) { s.Nodes[3].Status = stRunning }, "reduction: " + reduction.RuleCausal},
		{"a node runs outside of the frontier", func(s *perdurev1.GraphStatus, _ *GraphScript) { s.Nodes[6].Status = stRunning },
			"node g runs, and is not in the frontier"},
		{"a result in a wave is acted upon", func(s *perdurev1.GraphStatus, g *GraphScript) {
			g.Graph.Wave, s.Nodes[0].Unobserved = true, true
		}, "reduction: " + reduction.RuleCausal},
		{"a status that is none", func(s *perdurev1.GraphStatus, _ *GraphScript) { s.Nodes[3].Status = 0 }, "reduction: " + reduction.RuleStatusDomain},
		{"a wait without a signal", func(s *perdurev1.GraphStatus, _ *GraphScript) { s.Nodes[5].Signal = "" }, "reduction: " + reduction.RuleStatusDomain},
		{"a spent attempt", func(s *perdurev1.GraphStatus, _ *GraphScript) { s.Nodes[7].Attempt = 2 }, "node h is at attempt 2"},
		{"too many at once", func(_ *perdurev1.GraphStatus, g *GraphScript) { g.Graph.MaxParallel = 2 }, "3 nodes run, at most 2 may"},
		{"an end too early", func(s *perdurev1.GraphStatus, _ *GraphScript) {
			s.Status = perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED
		}, "the run has completed, and its nodes are"},
		{"a failure too early", func(s *perdurev1.GraphStatus, _ *GraphScript) {
			s.Status = perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED
		}, "the run has failed, and its nodes are"},
		{"no end", func(s *perdurev1.GraphStatus, _ *GraphScript) {
			for _, n := range s.Nodes {
				n.Status, n.Signal = stCompleted, ""
			}
		}, "the run is running, and its nodes are"},
		{"a cancellation", func(s *perdurev1.GraphStatus, _ *GraphScript) {
			s.Status = perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED
		}, "the run is cancelled"},
		{"suspended while something runs", func(s *perdurev1.GraphStatus, _ *GraphScript) { s.Phase = "suspended" }, "the run calls itself suspended"},
		{"an older version", func(s *perdurev1.GraphStatus, _ *GraphScript) { s.Version = 9 }, "it was at version 10 before"},
		{"another incarnation", func(s *perdurev1.GraphStatus, _ *GraphScript) { s.Incarnation = 2 }, "it is incarnation 2, and was 0"},
		{"a result is lost", func(s *perdurev1.GraphStatus, _ *GraphScript) { s.Nodes[4].Status = stRunning }, "node e is running, and was skipped"},
		{"a result becomes another one", func(s *perdurev1.GraphStatus, _ *GraphScript) { s.Nodes[4].Status = stCompleted }, "node e is completed, and was skipped"},
		{"a start is lost", func(s *perdurev1.GraphStatus, _ *GraphScript) { s.Nodes[1].Status = stPending }, "node b is pending, and was running"},
		{"an attempt is taken back", func(s *perdurev1.GraphStatus, _ *GraphScript) { s.Nodes[1].Attempt = 0 }, "node b is at attempt 0, and was at 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			script, next := aScript(), good()
			c.plant(next, script)
			g, err := NewGraphSamples("r", script)
			if err != nil {
				t.Fatal(err)
			}
			first := good()
			if script.Graph.MaxParallel > 0 || script.Graph.Wave {
				first = next
			}
			var wrong []string
			for _, s := range []*perdurev1.GraphStatus{first, next} {
				if wrong, err = g.Sample(func() (*perdurev1.GraphStatus, error) { return s, nil }); err != nil {
					t.Fatal(err)
				}
			}
			found := slices.ContainsFunc(wrong, func(s string) bool {
				_, text, _ := strings.Cut(s, ": ")
				return strings.HasPrefix(text, c.what)
			})
			if c.what == "" && len(wrong) > 0 || c.what != "" && !found {
				t.Errorf("violations %q, expected one that begins %q", wrong, c.what)
			}
		})
	}
}

// The drawn scripts are accepted graphs, are drawn again alike, hold every kind of end, and what their script
// says is the reduction's result.
func TestDrawnGraphs(t *testing.T) {
	ends := map[string]int{}
	for k := range uint64(400) {
		s := DrawGraph(7, k, 200, k%2 == 0)
		if err := graph.Validate(s.Graph); err != nil {
			t.Fatalf("script %d: %v", k, err)
		}
		if again := DrawGraph(7, k, 200, k%2 == 0); !proto.Equal(s.Graph, again.Graph) {
			t.Fatalf("script %d is drawn otherwise the second time", k)
		}
		r, calls := played("r", s)
		v := CheckGraphs([]*GraphRecord{r}, calls, nil)
		if all := v.Violations(); len(all) > 0 {
			t.Fatalf("script %d: %q", k, all)
		}
		for what, n := range v.Ends {
			ends[what] += n
		}
	}
	for _, what := range []string{"completed", "failed", "skipped", "failed with a node before it", "failed by time-out", "skipped by time-out",
		"skipped after a failure", "completed by a signal", "completed at a further attempt"} {
		if ends[what] < 20 {
			t.Errorf("of 400 scripts, only %d nodes are %s: %v", ends[what], what, ends)
		}
	}
}

func TestAnswer(t *testing.T) {
	in := func(text string) map[string]json.RawMessage {
		return map[string]json.RawMessage{planInput: json.RawMessage("1"), "in0": json.RawMessage(text)}
	}
	one, err := Answer("a", in(`{"x": 1, "y": null}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		node, in string
		same     bool
	}{{"a", `{"y":null,"x":1}`, true}, {"b", `{"x":1,"y":null}`, false}, {"a", `{"x":1}`, false}, {"a", `null`, false}} {
		if got, err := Answer(c.node, in(c.in)); err != nil || (got == one) != c.same {
			t.Errorf("%s of %s: %q, %v; the same as %q should be %v", c.node, c.in, got, err, one, c.same)
		}
	}
	for id, want := range map[string]uint32{"r:0.0": 1, "r:12.3": 4, "r:1.0.2.1": 2, "r:0.1026": 3, "r:x": 0, "5": 0} {
		if got := AttemptNumber(id); got != want {
			t.Errorf("%s is attempt %d, not %d", id, got, want)
		}
	}
}

func TestPaces(t *testing.T) {
	var ends []int64
	for i := range int64(100) {
		ends = append(ends, 1000+10*(100-i)) // the last first: order must not matter
	}
	all, tenths := paces(1000, ends)
	if all != 100 || len(tenths) != 10 || slices.Max(tenths) != 100 || slices.Min(tenths) != 100 {
		t.Errorf("100 ends in a second, evenly: %v, %v", all, tenths)
	}
	if all, tenths := paces(0, []int64{500, 500}); all != 4 || len(tenths) != 2 {
		t.Errorf("two ends at once: %v, %v", all, tenths)
	}
}
