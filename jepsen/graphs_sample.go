package jepsen

import (
	"fmt"
	"sync"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/reduction"
)

// GraphSamples checks the statuses of one run that are read while it runs, one after the other: each by
// itself, against Definition 1 in the normalised view, and each against those before it. Make it with
// NewGraphSamples.
type GraphSamples struct {
	id     string
	script *GraphScript
	rel    *reduction.Relation
	expect map[string]NodeExpect
	places map[string]bool // nodes that count for max_parallel

	mu   sync.Mutex
	last *perdurev1.GraphStatus
	// Seen is how many were checked.
	Seen int
}

// NewGraphSamples is for the samples of a run of a script.
func NewGraphSamples(id string, s *GraphScript) (*GraphSamples, error) {
	rel, err := relationOf(s.Graph)
	if err != nil {
		return nil, err
	}
	g := &GraphSamples{id: id, script: s, rel: rel, places: map[string]bool{}}
	g.expect, _ = s.Expect()
	for _, n := range s.Graph.GetNodes() {
		switch n.GetKind().(type) {
		case *perdurev1.GraphNode_Signal, *perdurev1.GraphNode_Sleep:
		default:
			g.places[n.GetId()] = true
		}
	}
	return g, nil
}

// Sample reads a status and checks it. It reads one status at a time: if reads of one run overlapped, a later
// answer could show an earlier state. Its error is read's.
func (g *GraphSamples) Sample(read func() (*perdurev1.GraphStatus, error)) (wrong []string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s, err := read()
	if err != nil {
		return nil, err
	}
	g.Seen++
	for _, text := range append(g.alone(s), g.after(s)...) {
		wrong = append(wrong, fmt.Sprintf("%s at version %d: %s", g.id, s.GetVersion(), text))
	}
	g.last = s
	return wrong, nil
}

// states are the run's state as it is shown, and the same in the normalised view. A result that is not
// observed has not happened yet: its node counts as running.
func states(s *perdurev1.GraphStatus) (shown, normal reduction.State) {
	shown = reduction.State{Statuses: map[reduction.NodeID]reduction.Status{}, Outputs: map[reduction.NodeID][]byte{}}
	for _, n := range s.GetNodes() {
		at, id := reduction.Status{}, reduction.NodeID(n.GetId())
		switch n.GetStatus() {
		case perdurev1.NodeStatus_NODE_STATUS_PENDING:
			at.Kind = reduction.StatusPending
		case perdurev1.NodeStatus_NODE_STATUS_RUNNING:
			at.Kind = reduction.StatusRunning
		case perdurev1.NodeStatus_NODE_STATUS_WAITING:
			at = reduction.Waiting(n.GetSignal())
		case perdurev1.NodeStatus_NODE_STATUS_COMPLETED:
			at.Kind = reduction.StatusCompleted
		case perdurev1.NodeStatus_NODE_STATUS_FAILED:
			at.Kind = reduction.StatusFailed
		case perdurev1.NodeStatus_NODE_STATUS_SKIPPED:
			at.Kind = reduction.StatusSkipped
		}
		if n.GetUnobserved() {
			at = reduction.Status{Kind: reduction.StatusRunning}
		}
		if at.Kind == reduction.StatusCompleted {
			shown.Outputs[id] = nil // a status does not show outputs
		}
		shown.Statuses[id] = at
	}
	return shown, reduction.Normalize(shown)
}

// alone checks a status by itself.
func (g *GraphSamples) alone(s *perdurev1.GraphStatus) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	shown, normal := states(s)
	for _, v := range reduction.Persisted(g.rel, shown) {
		add("%v", v)
	}
	ready := reduction.Ready(g.rel, normal)
	isReady := map[reduction.NodeID]bool{}
	for _, n := range ready {
		isReady[n] = true
	}
	for _, v := range reduction.WellFormed(g.rel, normal, ready) {
		add("%v", v)
	}
	places := 0
	for _, n := range s.GetNodes() {
		id := reduction.NodeID(n.GetId())
		if shown.Statuses[id].Kind == reduction.StatusRunning && !isReady[id] {
			add("node %s runs, and is not in the frontier", id)
		}
		if n.GetStatus() == perdurev1.NodeStatus_NODE_STATUS_RUNNING && g.places[n.GetId()] {
			places++
		}
		if most := g.expect[n.GetId()].Attempt; n.GetAttempt() > most {
			add("node %s is at attempt %d, by its script it needs %d (failure %q: %q)", id, n.GetAttempt(), most,
				n.GetFailure().GetType(), n.GetFailure().GetMessage())
		}
		if n.GetUnobserved() && !g.script.Graph.GetWave() {
			add("node %s has a result that is not observed, in a run that is not in waves", id)
		}
	}
	if most := int(g.script.Graph.GetMaxParallel()); most > 0 && places > most {
		add("%d nodes run, at most %d may", places, most)
	}
	phase := reduction.Classify(g.rel, normal).Phase()
	switch s.GetStatus() {
	case perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED:
		if phase != reduction.PhaseCompleted {
			add("the run has completed, and its nodes are %s", phase)
		}
	case perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED:
		if phase != reduction.PhaseFailed {
			add("the run has failed, and its nodes are %s", phase)
		}
	case perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED:
		add("the run is cancelled without a request")
	default:
		if phase != reduction.PhaseProgressing && phase != reduction.PhaseSuspended {
			add("the run is running, and its nodes are %s", phase)
		}
		if s.GetPhase() == "suspended" && phase != reduction.PhaseSuspended {
			add("the run calls itself suspended, and its nodes are %s", phase)
		}
	}
	return out
}

// after checks what has changed since the sample before: no recorded result is taken back, for any process
// that was killed meanwhile.
func (g *GraphSamples) after(s *perdurev1.GraphStatus) []string {
	if g.last == nil {
		return nil
	}
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if s.GetVersion() < g.last.GetVersion() {
		add("it was at version %d before", g.last.GetVersion())
	}
	if s.GetIncarnation() != g.last.GetIncarnation() {
		add("it is incarnation %d, and was %d", s.GetIncarnation(), g.last.GetIncarnation())
	}
	if ended(g.last) && s.GetStatus() != g.last.GetStatus() {
		add("it is %s, and was %s", s.GetStatus(), g.last.GetStatus())
	}
	before := map[string]*perdurev1.GraphNodeState{}
	for _, n := range g.last.GetNodes() {
		before[n.GetId()] = n
	}
	for _, n := range s.GetNodes() {
		b := before[n.GetId()]
		switch {
		case rankOf(n.GetStatus()) < rankOf(b.GetStatus()), rankOf(b.GetStatus()) == rankEnd && n.GetStatus() != b.GetStatus():
			add("node %s is %s, and was %s", n.GetId(), nodeWord(n.GetStatus()), nodeWord(b.GetStatus()))
		case n.GetAttempt() < b.GetAttempt():
			add("node %s is at attempt %d, and was at %d", n.GetId(), n.GetAttempt(), b.GetAttempt())
		case n.GetUnobserved() && !b.GetUnobserved() && rankOf(b.GetStatus()) == rankEnd:
			add("the result of node %s was observed, and is not any more", n.GetId())
		}
	}
	return out
}

// rankEnd is the rank of what is final.
const rankEnd = 4

// rankOf orders the statuses that a node may go through in a run without retries and cancels.
func rankOf(s perdurev1.NodeStatus) int {
	switch s {
	case perdurev1.NodeStatus_NODE_STATUS_PENDING:
		return 1
	case perdurev1.NodeStatus_NODE_STATUS_RUNNING:
		return 2
	case perdurev1.NodeStatus_NODE_STATUS_WAITING:
		return 3
	case perdurev1.NodeStatus_NODE_STATUS_UNSPECIFIED:
		return 0
	}
	return rankEnd
}
