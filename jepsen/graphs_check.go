package jepsen

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/reduction"

	"google.golang.org/protobuf/proto"
)

// GraphRecord is one run of a graph as it was seen and found.
type GraphRecord struct {
	ID     string
	Script *GraphScript
	// Acked says that the submission was acknowledged. Seen is the last status that the waiting client got,
	// nil if it never saw the end.
	Acked bool
	Seen  *perdurev1.GraphStatus
	// Status is what a later look-up found, nil if there is no such run; Outputs are of its completed nodes.
	Status  *perdurev1.GraphStatus
	Outputs map[string][]byte
	// Subs are the runs of its subgraphs, by the id of the attempt, which is theirs.
	Subs map[string]*GraphRecord
	// Took is from the submission until its end was seen.
	Took time.Duration
}

// GraphVerdict is the checker's result about all runs.
type GraphVerdict struct {
	Runs, Completed, Failed, Nodes int
	// Ends counts nodes by their kinds of end.
	Ends map[string]int
	// Attempts are all attempts of functions and subgraphs, Calls what workers began, of which Repeated were
	// begun again because a worker or an answer was lost: that is allowed.
	Attempts, Calls, Repeated int
	// Lost were acknowledged and are not there; Stuck have not ended; Wrong have ended otherwise than the
	// reduction computes from their results, or than their script says.
	Lost, Stuck, Wrong []string
}

// Violations are the sentences of a report.
func (v *GraphVerdict) Violations() []string {
	var out []string
	for _, part := range []struct {
		what string
		all  []string
	}{{"lost", v.Lost}, {"stuck", v.Stuck}, {"wrong", v.Wrong}} {
		for i, text := range part.all {
			if i == 20 {
				out = append(out, fmt.Sprintf("%s: and %d more", part.what, len(part.all)-i))
				break
			}
			out = append(out, part.what+": "+text)
		}
	}
	return out
}

// CheckGraphs checks runs that had all the time they need. calls are the books of the workers. twins are runs
// of one script, one node by node and one in waves.
func CheckGraphs(records []*GraphRecord, calls []Call, twins [][2]string) GraphVerdict {
	v := GraphVerdict{Ends: map[string]int{}}
	byID := map[string]*GraphRecord{}
	attempts := map[string]attempt{} // by id
	for _, r := range records {
		byID[r.ID] = r
		switch {
		case r.Status == nil && r.Acked:
			v.Lost = append(v.Lost, r.ID+" was acknowledged, and is not there")
		case r.Status == nil:
			v.Stuck = append(v.Stuck, r.ID+" could not be submitted")
		case !ended(r.Status):
			v.Stuck = append(v.Stuck, r.ID+": "+unfinished(r.Status))
		default:
			v.Runs++
			if r.Status.GetStatus() == perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED {
				v.Completed++
			} else {
				v.Failed++
			}
			for _, text := range v.run(r, attempts) {
				v.Wrong = append(v.Wrong, r.ID+": "+text)
			}
		}
	}
	for _, pair := range twins {
		v.Wrong = append(v.Wrong, checkTwins(byID[pair[0]], byID[pair[1]])...)
	}
	v.books(calls, attempts, byID)
	return v
}

// attempt is the execution of one attempt of a function node.
type attempt struct {
	node string
	// hangs: it may have timed out before a worker came to it.
	hangs bool
}

// books compares the calls of workers with the attempts that there were.
func (v *GraphVerdict) books(calls []Call, attempts map[string]attempt, byID map[string]*GraphRecord) {
	begun := map[string]int{}
	for _, c := range calls {
		root, _, _ := strings.Cut(c.Attempt, ":")
		if r := byID[root]; r == nil || r.Status == nil || !ended(r.Status) {
			continue // another workload's, or of a run that is stuck and a violation anyway
		}
		v.Calls++
		if begun[c.Attempt]++; begun[c.Attempt] > 1 {
			v.Repeated++
			continue
		}
		if a, ok := attempts[c.Attempt]; !ok {
			v.Wrong = append(v.Wrong, fmt.Sprintf("%s ran for node %s, and no node has had such an attempt", c.Attempt, c.Node))
		} else if a.node != c.Node {
			v.Wrong = append(v.Wrong, fmt.Sprintf("%s ran as node %s, and is an attempt of %s", c.Attempt, c.Node, a.node))
		}
	}
	for id, a := range attempts {
		if begun[id] == 0 && !a.hangs {
			v.Wrong = append(v.Wrong, fmt.Sprintf("%s of node %s has a result, and no worker ever began it", id, a.node))
		}
	}
	slices.Sort(v.Wrong)
}

func ended(s *perdurev1.GraphStatus) bool {
	switch s.GetStatus() {
	case perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED, perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED,
		perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED:
		return true
	}
	return false
}

// unfinished describes the state of a run that has not ended.
func unfinished(s *perdurev1.GraphStatus) string {
	var open []string
	for _, n := range s.GetNodes() {
		switch n.GetStatus() {
		case perdurev1.NodeStatus_NODE_STATUS_RUNNING, perdurev1.NodeStatus_NODE_STATUS_WAITING:
			open = append(open, fmt.Sprintf("%s (%s) is %s, attempt %d %s", n.GetId(), n.GetKind(), nodeWord(n.GetStatus()), n.GetAttempt(), n.GetAttemptId()))
		}
	}
	return fmt.Sprintf("%s, version %d; %s", s.GetPhase(), s.GetVersion(), strings.Join(open[:min(len(open), 5)], "; "))
}

// nodeWord is a node's status in a word.
func nodeWord(s perdurev1.NodeStatus) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "NODE_STATUS_"))
}

// run checks one run, or subgraph, that has ended.
func (v *GraphVerdict) run(r *GraphRecord, attempts map[string]attempt) []string {
	var wrong []string
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	expect, completes := r.Script.Expect()
	want := perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED
	if !completes {
		want = perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED
	}
	if got := r.Status.GetStatus(); got != want {
		add("the run is %s, by its script it is %s: %s", got, want, r.Status.GetProblem())
	}
	if r.Seen != nil {
		if diff := differ(r.Seen, r.Status); diff != "" {
			add("it changed between two reads after its end: %s", diff)
		}
	}
	wrong = append(wrong, checkReduction(r)...)
	if len(r.Status.GetNodes()) != len(expect) {
		add("%d nodes are shown, not %d", len(r.Status.GetNodes()), len(expect))
	}
	v.Nodes += len(expect)
	for _, n := range r.Status.GetNodes() {
		e, known := expect[n.GetId()]
		if !known {
			add("there is a node %q, and the graph has none", n.GetId())
			continue
		}
		if text := againstScript(n, e, r.Outputs[n.GetId()]); text != "" {
			add("node %s (%s): %s", n.GetId(), n.GetKind(), text)
		}
		v.Ends[endOf(n, e)]++
		if n.GetAttemptId() == "" {
			continue
		}
		if AttemptNumber(n.GetAttemptId()) != n.GetAttempt() {
			add("node %s: attempt %d has the id %s", n.GetId(), n.GetAttempt(), n.GetAttemptId())
		}
		v.Attempts += int(n.GetAttempt())
		for _, id := range attemptIDs(n) {
			if r.Script.Subs[n.GetId()] == nil {
				attempts[id] = attempt{n.GetId(), r.Script.Plans[n.GetId()].End == EndHang}
			} else if sub := r.Subs[id]; sub == nil || sub.Status == nil || !ended(sub.Status) {
				add("node %s: the run of its graph, %s, is not there or has not ended", n.GetId(), id)
			} else {
				for _, text := range v.run(sub, attempts) {
					add("%s: %s", id, text)
				}
			}
		}
	}
	return wrong
}

// attemptIDs are the ids of all attempts of a node, of a run that was not retried.
func attemptIDs(n *perdurev1.GraphNodeState) []string {
	var out []string
	for a := range n.GetAttempt() {
		out = append(out, fmt.Sprintf("%s.%d", n.GetPromiseId(), a))
	}
	return out
}

// endOf is the kind of a node's end, for counting.
func endOf(n *perdurev1.GraphNodeState, e NodeExpect) string {
	word := nodeWord(n.GetStatus())
	switch {
	case n.GetByPropagation():
		return word + " with a node before it"
	case n.GetFailure().GetType() == "timeout":
		return word + " by time-out"
	case n.GetStatus() == perdurev1.NodeStatus_NODE_STATUS_SKIPPED && n.GetFailure() != nil:
		return "skipped after a failure"
	case e.Waited:
		return word + " by a signal"
	case n.GetAttempt() > 1 && n.GetStatus() == perdurev1.NodeStatus_NODE_STATUS_COMPLETED:
		return "completed at a further attempt"
	}
	return word
}

// againstScript describes how a node's end differs from its script, or returns "".
func againstScript(n *perdurev1.GraphNodeState, e NodeExpect, output []byte) string {
	f := n.GetFailure()
	switch {
	case n.GetStatus() != e.Status:
		return fmt.Sprintf("it is %s, by its script %s (attempt %d, failure %q: %q)", nodeWord(n.GetStatus()), nodeWord(e.Status),
			n.GetAttempt(), f.GetType(), f.GetMessage())
	case n.GetByPropagation() != e.ByPropagation:
		return fmt.Sprintf("failed with a node before it: %v, by its script %v", n.GetByPropagation(), e.ByPropagation)
	case n.GetAttempt() != e.Attempt:
		return fmt.Sprintf("it took %d attempts, by its script %d (failure %q: %q)", n.GetAttempt(), e.Attempt, f.GetType(), f.GetMessage())
	case n.GetUnobserved():
		return "its run has ended and its result is not observed"
	case !bytes.Equal(output, e.Output):
		return fmt.Sprintf("its output is %q, by its script %q", output, e.Output)
	case e.Failure != "" && f.GetType() != e.Failure:
		return fmt.Sprintf("its failure is %q: %q, by its script %q", f.GetType(), f.GetMessage(), e.Failure)
	case e.Message != "" && f.GetMessage() != e.Message:
		return fmt.Sprintf("its failure says %q, by its script %q", f.GetMessage(), e.Message)
	case e.Status == perdurev1.NodeStatus_NODE_STATUS_FAILED && !e.ByPropagation && f == nil:
		return "it failed without a reason"
	}
	return ""
}

// differ describes how two statuses of an ended run differ, or returns "".
func differ(a, b *perdurev1.GraphStatus) string {
	if a.GetStatus() != b.GetStatus() || a.GetVersion() != b.GetVersion() || len(a.GetNodes()) != len(b.GetNodes()) {
		return fmt.Sprintf("%s, version %d, %d nodes; %s, version %d, %d nodes", a.GetStatus(), a.GetVersion(), len(a.GetNodes()),
			b.GetStatus(), b.GetVersion(), len(b.GetNodes()))
	}
	for i, n := range a.GetNodes() {
		if !proto.Equal(n, b.GetNodes()[i]) {
			return fmt.Sprintf("%v; %v", n, b.GetNodes()[i])
		}
	}
	return ""
}

// checkTwins describes how the ends of two runs of one script differ.
func checkTwins(a, b *GraphRecord) []string {
	if a == nil || b == nil || a.Status == nil || b.Status == nil || !ended(a.Status) || !ended(b.Status) {
		return nil // lost or stuck, which is reported already
	}
	var out []string
	if a.Status.GetStatus() != b.Status.GetStatus() {
		out = append(out, fmt.Sprintf("%s is %s, and its twin %s is %s", a.ID, a.Status.GetStatus(), b.ID, b.Status.GetStatus()))
	}
	of := map[string]*perdurev1.GraphNodeState{}
	for _, n := range b.Status.GetNodes() {
		of[n.GetId()] = n
	}
	for _, n := range a.Status.GetNodes() {
		m := of[n.GetId()]
		if n.GetStatus() != m.GetStatus() || n.GetByPropagation() != m.GetByPropagation() ||
			!bytes.Equal(a.Outputs[n.GetId()], b.Outputs[n.GetId()]) {
			out = append(out, fmt.Sprintf("node %s of %s is %s with %q, of its twin %s %s with %q", n.GetId(), a.ID,
				nodeWord(n.GetStatus()), a.Outputs[n.GetId()], b.ID, nodeWord(m.GetStatus()), b.Outputs[n.GetId()]))
		}
	}
	return out
}

// checkReduction has the pure reduction compute the end of a run from the results of the nodes that ran, and
// describes each difference from the run's end: the failures that follow from others, and the outcome.
func checkReduction(r *GraphRecord) []string {
	rel, err := relationOf(r.Script.Graph)
	if err != nil {
		return []string{err.Error()}
	}
	engine, err := reduction.NewEngine(rel, reduction.Initial(rel))
	if err != nil {
		return []string{err.Error()}
	}
	shown := map[string]*perdurev1.GraphNodeState{}
	for _, n := range r.Status.GetNodes() {
		shown[n.GetId()] = n
	}
	var out []string
	for _, n := range r.Script.Graph.GetNodes() { // a node's predecessors precede it in the list
		s, node := shown[n.GetId()], reduction.NodeID(n.GetId())
		var o reduction.Outcome
		switch {
		case s.GetStatus() == perdurev1.NodeStatus_NODE_STATUS_COMPLETED:
			o = reduction.Succeeded{Output: r.Outputs[n.GetId()]}
		case s.GetStatus() == perdurev1.NodeStatus_NODE_STATUS_SKIPPED:
			o = reduction.Skipped{}
		case s.GetStatus() == perdurev1.NodeStatus_NODE_STATUS_FAILED && !s.GetByPropagation():
			o = reduction.NodeFailed{}
		default:
			continue // it has no result of its own
		}
		if _, err := engine.Apply(reduction.Result{Node: node, Outcome: o}); err != nil {
			out = append(out, "reduction: "+err.Error())
		}
	}
	for _, n := range r.Status.GetNodes() {
		if got, want := n.GetStatus(), wireStatus(engine.Status(reduction.NodeID(n.GetId())).Kind); got != want {
			out = append(out, fmt.Sprintf("reduction: node %s is %s, and %s follows from the results", n.GetId(), nodeWord(got), nodeWord(want)))
		}
	}
	want := perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING
	switch engine.Phase() {
	case reduction.PhaseCompleted:
		want = perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED
	case reduction.PhaseFailed, reduction.PhaseStuck:
		want = perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED
	}
	if got := r.Status.GetStatus(); got != want {
		out = append(out, fmt.Sprintf("reduction: the run is %s, and its results make it %s", got, engine.Phase()))
	}
	return out
}

// relationOf is the topology of a graph.
func relationOf(g *perdurev1.Graph) (*reduction.Relation, error) {
	var nodes []reduction.NodeID
	var edges []reduction.Edge
	for _, n := range g.GetNodes() {
		nodes = append(nodes, reduction.NodeID(n.GetId()))
		for _, before := range n.GetAfter() {
			edges = append(edges, reduction.Edge{From: reduction.NodeID(before), To: reduction.NodeID(n.GetId())})
		}
	}
	return reduction.Declare(nodes, edges)
}

// wireStatus is a status of the reduction as the API shows it.
func wireStatus(k reduction.StatusKind) perdurev1.NodeStatus {
	switch k {
	case reduction.StatusPending:
		return perdurev1.NodeStatus_NODE_STATUS_PENDING
	case reduction.StatusRunning:
		return perdurev1.NodeStatus_NODE_STATUS_RUNNING
	case reduction.StatusWaiting:
		return perdurev1.NodeStatus_NODE_STATUS_WAITING
	case reduction.StatusCompleted:
		return perdurev1.NodeStatus_NODE_STATUS_COMPLETED
	case reduction.StatusFailed:
		return perdurev1.NodeStatus_NODE_STATUS_FAILED
	case reduction.StatusSkipped:
		return perdurev1.NodeStatus_NODE_STATUS_SKIPPED
	}
	return perdurev1.NodeStatus_NODE_STATUS_UNSPECIFIED
}
