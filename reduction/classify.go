package reduction

import (
	"strconv"
	"strings"
)

// Phase is the answer of [Classify] without its details.
type Phase uint8

// Every state is in exactly one phase. Completed and Failed are the two ways of being settled.
const (
	PhaseProgressing Phase = 1
	PhaseCompleted   Phase = 2
	PhaseFailed      Phase = 3
	PhaseSuspended   Phase = 4
	PhaseStuck       Phase = 5
)

var phaseNames = [...]string{"", "Progressing", "Completed", "Failed", "Suspended", "Stuck"}

// String returns the phase's name, or "Phase(n)".
func (p Phase) String() string {
	if p == 0 || int(p) >= len(phaseNames) {
		return "Phase(" + strconv.Itoa(int(p)) + ")"
	}
	return phaseNames[p]
}

// Settled reports whether the run is over.
func (p Phase) Settled() bool { return p == PhaseCompleted || p == PhaseFailed }

// phaseOf is the case split of staged reduction, 3.5, on four numbers: how many nodes are ready, are not
// terminal, wait, have failed.
func phaseOf(ready, unsettled, waiting, failed int) Phase {
	switch {
	case ready > 0:
		return PhaseProgressing
	case unsettled == 0 && failed > 0:
		return PhaseFailed
	case unsettled == 0:
		return PhaseCompleted
	case waiting > 0:
		return PhaseSuspended
	}
	return PhaseStuck
}

// Step is what a run does next: [Progressing], [Settled], [Suspended] or [Stuck].
type Step interface {
	Phase() Phase
	step()
}

// Progressing: there is work.
type Progressing struct {
	// Frontier lists the ready nodes in ascending order. Those that already have a worker are among them.
	Frontier []NodeID
}

// Settled: every node is terminal.
type Settled struct {
	// Failed is whether any node has failed; otherwise the run has completed.
	Failed bool
}

// Suspended: nothing is ready, and something waits.
type Suspended struct {
	// Waits lists the waiting nodes with their signals, in ascending order of the nodes.
	Waits []Wait
}

// Wait is one waiting node.
type Wait struct {
	Node   NodeID
	Signal string
}

// Stuck: nothing is ready, nothing waits, and not every node is terminal. No state that is well-formed can
// be stuck: the least unsettled node in the order of dependence would be pending after nodes that are all
// completed or skipped, hence ready. So it means damage, and the diagnosis says where.
type Stuck struct {
	// Diagnosis lists every node that is not terminal, in ascending order.
	Diagnosis Diagnosis
}

// Phase returns PhaseProgressing.
func (Progressing) Phase() Phase { return PhaseProgressing }

// Phase returns PhaseFailed or PhaseCompleted.
func (s Settled) Phase() Phase {
	if s.Failed {
		return PhaseFailed
	}
	return PhaseCompleted
}

// Phase returns PhaseSuspended.
func (Suspended) Phase() Phase { return PhaseSuspended }

// Phase returns PhaseStuck.
func (Stuck) Phase() Phase { return PhaseStuck }

func (Progressing) step() {}
func (Settled) step()     {}
func (Suspended) step()   {}
func (Stuck) step()       {}

// Diagnosis says why no node can proceed.
type Diagnosis []Blocked

// Blocked is a node that is neither terminal nor able to start.
type Blocked struct {
	Node NodeID
	// Status is the node's status; the zero Status if the state does not know the node, which is a reason by
	// itself.
	Status Status
	// By lists its predecessors that are neither completed nor skipped, in ascending order.
	By []Blocker
}

// Blocker is what a node is blocked by.
type Blocker struct {
	Node   NodeID
	Status Status
}

// String names every node with its reasons, in one line.
func (d Diagnosis) String() string {
	var b strings.Builder
	for i, blocked := range d {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(quoted(string(blocked.Node)) + " is " + blocked.Status.String())
		for j, by := range blocked.By {
			if j == 0 {
				b.WriteString(" after ")
			} else {
				b.WriteString(", ")
			}
			b.WriteString(quoted(string(by.Node)) + " which is " + by.Status.String())
		}
	}
	return b.String()
}

// Ready is the frontier (staged reduction, 3.1): the pending nodes whose predecessors are all completed or
// skipped, in ascending order. In a state with a causal history it is an antichain: none of them comes after
// another (Lemma 1).
func Ready(r *Relation, s State) []NodeID {
	var out []NodeID
	for n, id := range r.ids {
		if s.kind(r, int32(n)) != StatusPending {
			continue
		}
		if _, ok := unsatisfied(r, s, int32(n)); !ok {
			out = append(out, id)
		}
	}
	return out
}

// Classify decides what the run does next. It reads the normalised view of s, closed: that of [Normalize],
// then [Close]. Statuses of nodes outside the graph count for nothing.
func Classify(r *Relation, s State) Step {
	s = Close(r, Normalize(s))
	ready := Ready(r, s)
	var unsettled, failed int
	var waits []Wait
	for _, id := range r.ids {
		switch at := s.Statuses[id]; {
		case at.Kind == StatusFailed:
			failed++
		case at.Kind == StatusWaiting:
			waits = append(waits, Wait{id, at.Signal})
			unsettled++
		case !at.Kind.Terminal():
			unsettled++
		}
	}
	switch phase := phaseOf(len(ready), unsettled, len(waits), failed); phase {
	case PhaseProgressing:
		return Progressing{ready}
	case PhaseSuspended:
		return Suspended{waits}
	case PhaseStuck:
		return Stuck{diagnose(r, s)}
	default:
		return Settled{Failed: phase == PhaseFailed}
	}
}

func diagnose(r *Relation, s State) Diagnosis {
	var out Diagnosis
	for n, id := range r.ids {
		at := s.Statuses[id]
		if at.Kind.Terminal() {
			continue
		}
		blocked := Blocked{Node: id, Status: at}
		for _, p := range r.pred.of(int32(n)) {
			if before := s.Statuses[r.ids[p]]; !before.Kind.satisfies() {
				blocked.By = append(blocked.By, Blocker{r.ids[p], before})
			}
		}
		out = append(out, blocked)
	}
	return out
}

// Reduce is the three phases in a row (algebraic foundations, 1.2): the results of one frontier accumulated,
// the state closed, the closed state classified. It does not depend on the order of the results
// (Proposition 2). The error is the *FactError of [Accumulate].
func Reduce(r *Relation, s State, results ...Result) (State, Step, error) {
	s, err := Accumulate(r, s, results...)
	if err != nil {
		return State{}, nil, err
	}
	s = Close(r, s)
	return s, Classify(r, s), nil
}
