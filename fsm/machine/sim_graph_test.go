package machine

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
	"perdure/graph"
	"perdure/journal"
)

// Graph runs in the simulation: graphs that are drawn, whose attempts run programs of the book's pool on the
// same workers as everything else, in the same trouble.

var graphRoots = []string{"graph-0", "graph-1", "graph-2", "graph-3"}

// graphStats counts what has become of graph runs and their nodes.
type graphStats struct {
	submitted, found, conflicts, retried, refusedRetries, cancels         int
	completed, failed, stuck, cancelled                                   int
	nodesCompleted, nodesFailed, nodesPropagated, nodesSkipped, nodesKept int
	signalled, again, timedOut, suspended, latches                        int
}

func (g *graphStats) add(o graphStats) {
	for i, n := range o.all() {
		*g.all()[i].n += *n.n
	}
}

type counter struct {
	name string
	n    *int
}

func (g *graphStats) all() []counter {
	return []counter{{"a submission", &g.submitted}, {"a run found", &g.found}, {"a conflict", &g.conflicts}, {"a retry", &g.retried},
		{"a refused retry", &g.refusedRetries}, {"a cancel", &g.cancels}, {"a completed run", &g.completed}, {"a failed run", &g.failed},
		{"a cancelled run", &g.cancelled}, {"a completed node", &g.nodesCompleted}, {"a failed node", &g.nodesFailed},
		{"a node failed with another", &g.nodesPropagated}, {"a skipped node", &g.nodesSkipped}, {"a kept node", &g.nodesKept},
		{"a node that got a signal", &g.signalled}, {"a node tried again", &g.again}, {"a node that timed out", &g.timedOut},
		{"a node that suspended itself", &g.suspended}, {"a signal kept by a retry", &g.latches}}
}

// lacks names what never happened.
func (g *graphStats) lacks() string {
	var out []string
	for _, c := range g.all() {
		if *c.n == 0 {
			out = append(out, c.name)
		}
	}
	return strings.Join(out, ", ")
}

// writePool draws the programs of attempts. Most are short: it is the runs around them that are to be tried.
func (s *simulation) writePool() {
	for range 8 + s.draw(8) {
		n := s.book.write(s.draw, s.draw(2), slices.Concat(s.roots, graphRoots))
		p := &s.book.programs[n]
		if s.draw(3) > 0 {
			p.ops = p.ops[:min(len(p.ops), s.draw(2))]
		}
		// An await on handles that were cut off would never end.
		p.ops = slices.DeleteFunc(p.ops, func(op simOp) bool { return op.kind == simAll || op.kind == simAny || op.kind == simSet })
		switch s.draw(6) {
		case 0:
			p.says = state.FailureSkipped
		case 1:
			p.says, p.signal = state.FailureSuspended, string("ab"[s.draw(2)])
		case 2:
			p.fails = true
		}
		s.book.pool = append(s.book.pool, n)
	}
}

// drawRun draws a graph for the simulation: with time-outs, and now and then one of more nodes than a command
// starts.
func (s *simulation) drawRun() *perdurev1.Graph {
	if s.draw(25) == 0 {
		var text strings.Builder
		for i := range startsAtOnce + 1 + s.draw(20) {
			fmt.Fprintf(&text, "n%d sleep %d; ", i, 1+i%5)
		}
		return graphOf(text.String() + "last function f0 after n0,n1")
	}
	g := drawGraph(s.draw, map[string][]string{}, "", s.draw(3))
	var change func(g *perdurev1.Graph)
	change = func(g *perdurev1.Graph) {
		for i, n := range g.Nodes {
			if f := n.GetFunction(); f != nil {
				f.Function = simFunctions[i%2]
			}
			if n.GetSleep() != nil {
				n.GetSleep().DurationMs = int64(1 + s.draw(20_000))
			} else if s.draw(6) == 0 {
				n.TimeoutMs = int64(1 + s.draw(20_000))
			}
			if n.GetSubgraph() != nil {
				change(n.GetSubgraph())
			}
		}
	}
	change(g)
	return g
}

// actGraph does something to a graph run.
func (s *simulation) actGraph() {
	s.t.Helper()
	run := graphRoots[s.draw(len(graphRoots))]
	switch s.draw(12) {
	case 0, 1, 2, 3:
		s.submitRun(run)
	case 4, 5:
		s.retryRun(run)
	case 6:
		cmd := cancelCmd(run, "by the draw", int64(s.draw(20_000)))
		s.send(s.placed(cmd), cmd, func(r *commandv1.Reply) {
			if wire.ReplyError(r) == nil {
				s.stats.graphs.cancels++
			}
		})
	case 7:
		cmd := terminateCmd(run, "by the draw")
		s.send(s.placed(cmd), cmd, nil)
	case 8, 9:
		if s.hasGraph(run) {
			s.signal(run, string("ab"[s.draw(2)]), 1+s.draw(2))
		}
	case 10:
		// An attempt is ended from outside: its node fails, or is tried again.
		var attempts []string
		for _, objectID := range s.openExecutions() {
			if strings.HasPrefix(objectID, run+":") {
				attempts = append(attempts, objectID)
			}
		}
		if len(attempts) > 0 {
			cmd := terminateCmd(attempts[s.draw(len(attempts))], "by the draw")
			if s.draw(2) == 0 {
				cmd = cancelCmd(cmd.Id, "by the draw", int64(s.draw(20_000)))
			}
			s.send(s.placed(cmd), cmd, nil)
		}
	default:
		s.lookAtRun(run)
	}
}

func (s *simulation) hasGraph(run string) bool {
	_, ok, _ := s.at(run).state.Get(keys.Of(keys.Header, ns, run))
	return ok
}

// submitRun submits a run, perhaps not for the first time, and perhaps with another graph than before.
func (s *simulation) submitRun(run string) {
	g := s.graphs[run]
	if g == nil {
		g = s.drawRun()
		s.graphs[run] = g
	}
	other := s.draw(8) == 0 && s.hasGraph(run)
	cmd := submitCmd(s.request(), run, g, `{"in":1}`)
	if other {
		cmd = submitCmd(s.request(), run, graphOf("other"), `{"in":1}`)
	} else if s.draw(8) == 0 {
		cmd.GetSubmitGraph().TimeoutMs = int64(1 + s.draw(60_000))
	}
	for n := range 1 + s.draw(2) {
		cmd := proto.Clone(cmd).(*commandv1.Command)
		cmd.Request.AgeMs = uint64(n)
		s.send(s.placed(cmd), cmd, func(r *commandv1.Reply) {
			switch e := wire.ReplyError(r); {
			case other != (e != nil) || e != nil && e.Reason != perdurev1.Reason_REASON_ID_CONFLICT:
				s.t.Fatalf("submit %s: %v (another graph: %t)", run, e, other)
			case other:
				s.stats.graphs.conflicts++
			case r.GetSubmitGraph().Created:
				s.stats.graphs.submitted++
			default:
				s.stats.graphs.found++
			}
		})
	}
}

// retryRun retries a run, perhaps twice with one request id: then it is retried once.
func (s *simulation) retryRun(run string) {
	cmd := retryCmd(s.request(), run)
	var first *perdurev1.RetryGraphResponse
	for n := range 1 + s.draw(2) {
		cmd := proto.Clone(cmd).(*commandv1.Command)
		cmd.Request.AgeMs = uint64(n)
		s.send(s.placed(cmd), cmd, func(r *commandv1.Reply) {
			if e := wire.ReplyError(r); e != nil {
				switch e.Reason {
				case perdurev1.Reason_REASON_RULE_BROKEN, perdurev1.Reason_REASON_ALREADY_FINISHED,
					perdurev1.Reason_REASON_EXECUTION_NOT_FOUND, perdurev1.Reason_REASON_TRY_LATER:
					s.stats.graphs.refusedRetries++
				default:
					s.t.Fatalf("retry %s: %v", run, e)
				}
				return
			}
			if first != nil && !proto.Equal(first, r.GetRetryGraph()) {
				s.t.Fatalf("one retry of %s is answered %v, and then %v", run, first, r.GetRetryGraph())
			}
			if first == nil {
				s.stats.graphs.retried++
			}
			first = r.GetRetryGraph()
		})
	}
}

// retryGraphs retries every run that has ended without being completed.
func (s *simulation) retryGraphs() {
	for _, run := range graphRoots {
		if s.hasGraph(run) && s.graphStatus(run).Phase != "completed" {
			s.retryRun(run)
		}
	}
}

// lookAtRun asks all that can be asked of a run, at any moment.
func (s *simulation) lookAtRun(run string) {
	s.t.Helper()
	if !s.hasGraph(run) {
		return
	}
	got := s.query(&commandv1.Query{Id: run, Kind: &commandv1.Query_Graph{Graph: &perdurev1.GetGraphRequest{}}}).GetGraph()
	if !proto.Equal(got.GetGraph(), s.graphs[run]) {
		s.t.Fatalf("%s is\n%v, must be\n%v", run, got.GetGraph(), s.graphs[run])
	}
	status := s.graphStatus(run)
	for _, n := range status.Nodes {
		if o := s.nodeOutcome(run, n.Id); !proto.Equal(o.State, n) || (n.Status == perdurev1.NodeStatus_NODE_STATUS_COMPLETED) != (o.Output != nil) {
			s.t.Fatalf("%s of %s is %v, and by itself %v", n.Id, run, n, o)
		}
	}
	if d := s.describe(run); d.JournalEvents != status.Version || d.Incarnation != status.Incarnation || d.Status != status.Status {
		s.t.Fatalf("%s is %v, its status %v", run, d, status)
	}
}

// signalNodes sends the signals that nodes of a run wait for.
func (s *simulation) signalNodes(run string) {
	var names []string
	for _, n := range s.graphStatus(run).Nodes {
		if n.Signal != "" && !slices.Contains(names, n.Signal) {
			names = append(names, n.Signal)
			s.signal(run, n.Signal, 1)
		}
	}
}

// incarnationName names an execution and, for a graph run, its incarnation: deliveries are numbered from 1 in each.
func (s *simulation) incarnationName(objectID string) string {
	b, ok, _ := s.at(objectID).m.State().Get(keys.Of(keys.Header, ns, objectID))
	h, err := state.DecodeHeader(b)
	switch {
	case !ok || err != nil:
	case h.Kind == state.KindGraph:
		return fmt.Sprint(objectID, " in ", h.Incarnation)
	case h.Parent != "": // its next attempt gets the signals, a child that the parent's next attempt starts gets none
		return fmt.Sprint(objectID, " of ", h.ParentIncarnation)
	}
	return objectID
}

// verifyGraphs checks all runs; they have ended.
func (s *simulation) verifyGraphs() {
	s.t.Helper()
	for _, p := range s.parts {
		for h := range sorted(takeCensus(p.state).headers) {
			if h.Kind == state.KindGraph {
				s.verifyGraph(h)
			}
		}
	}
}

// verifyGraph checks an ended run by the papers' definitions and by the results of its attempts.
func (s *simulation) verifyGraph(h state.Header) {
	s.t.Helper()
	st := &s.stats.graphs
	s.pure(h.ID)
	s.verifyLatches(h)
	status := s.graphStatus(h.ID)
	switch status.Phase {
	case "completed":
		st.completed++
		want := graph.SinkOutputs(s.query(&commandv1.Query{Id: h.ID, Kind: &commandv1.Query_Graph{Graph: &perdurev1.GetGraphRequest{}}}).GetGraph().Graph,
			func(node string) ([]byte, bool) {
				o := s.nodeOutcome(h.ID, node)
				return o.Output, o.State.Status == perdurev1.NodeStatus_NODE_STATUS_COMPLETED
			})
		if got := s.result(h.ID); got != string(want) {
			s.t.Fatalf("%s has answered %s, must answer %s", h.ID, got, want)
		}
	case "failed":
		st.failed++
	case "stuck":
		st.stuck++
	case "cancelled":
		st.cancelled++
	default:
		s.t.Fatalf("%s has ended %s", h.ID, status.Phase)
	}
	for _, n := range status.Nodes {
		if n.Attempt > 1 {
			st.again++
		}
		if n.Kept {
			st.nodesKept++
		}
		if n.Failure.GetType() == state.FailureTimeout {
			st.timedOut++
		}
		o := s.nodeOutcome(h.ID, n.Id)
		switch n.Status {
		case perdurev1.NodeStatus_NODE_STATUS_SKIPPED:
			st.nodesSkipped++
		case perdurev1.NodeStatus_NODE_STATUS_FAILED:
			if st.nodesFailed++; n.ByPropagation {
				st.nodesPropagated++
			}
		case perdurev1.NodeStatus_NODE_STATUS_COMPLETED:
			st.nodesCompleted++
			s.verifyOutput(h, n, o.Output)
		}
	}
}

// verifyLatches checks that a later incarnation began with the last signals of the previous one.
func (s *simulation) verifyLatches(h state.Header) {
	s.t.Helper()
	if h.Former == 0 {
		return
	}
	signals := func(incarnation uint64) (first, last map[string]string) {
		first, last = map[string]string{}, map[string]string{}
		prefix := keys.JournalPrefix(ns, h.ID, incarnation)
		_ = s.at(h.ID).state.Scan(prefix, keys.After(prefix), func(_, value []byte) bool {
			e, err := journal.DecodeEntry(value)
			if err != nil {
				s.t.Fatalf("%s: %v", h.ID, err)
			}
			if d, ok := e.Event.(journal.SignalDelivered); ok {
				if last[d.Name] = textOf(d.Payload); d.DeliveryID == 1 {
					first[d.Name] = last[d.Name]
				}
			}
			return true
		})
		return first, last
	}
	_, had := signals(h.Former)
	has, _ := signals(h.Incarnation)
	for name, payload := range had {
		if has[name] != payload {
			s.t.Fatalf("%s had received signal %q with %q, and continued with %q", h.ID, name, payload, has[name])
		}
		s.stats.graphs.latches++
	}
}

// verifyOutput compares what a node has answered with what its attempt has come to.
func (s *simulation) verifyOutput(h state.Header, n *perdurev1.GraphNodeState, output []byte) {
	s.t.Helper()
	switch {
	case strings.HasPrefix(n.Kind, "signal"):
		s.stats.graphs.signalled++
		return
	case n.AttemptId == "" || n.Kept:
		return
	}
	attempt := s.query(&commandv1.Query{Id: n.AttemptId, Kind: &commandv1.Query_Result{Result: &perdurev1.ResultRequest{}}}).GetResult().Outcome
	if attempt.GetFailure().GetType() == state.FailureSuspended {
		s.stats.graphs.suspended++
		return
	}
	if attempt.GetFailure() != nil || !bytes.Equal(attempt.GetValue(), output) {
		s.t.Fatalf("%s of %s has answered %q, its attempt %v", n.Id, h.ID, output, attempt)
	}
}
