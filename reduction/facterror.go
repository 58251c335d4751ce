package reduction

// The rules that a [FactError] may name.
const (
	RuleKnownNode = "node_in_graph"          // a fact is about a node of the graph, with a status
	RuleOutcome   = "outcome_known"          // a result holds one of the eight outcomes, by value
	RuleSignal    = "signal_named"           // a signal without a name cannot be delivered
	RuleOnce      = "one_result_per_node"    // the results of one frontier have distinct nodes (algebraic foundations, 2.1)
	RuleReady     = "predecessors_satisfied" // a result comes from a node whose predecessors are all completed or skipped
	RuleOpen      = "node_not_terminal"      // a completed, failed or skipped node has no further result
	RuleWaiting   = "wait_ends_by_signal_reset_or_failure"
	RuleStart     = "starts_from_pending" // only a pending node is started
	RuleWaitsFor  = "node_waits_for_signal"
)

// FactError is the refusal of a fact about one node: a result, a start or a signal. Nothing of the call that
// returned it has been applied.
type FactError struct {
	// Rule is one of the Rule constants above.
	Rule string
	// Node is the node that the fact was about.
	Node NodeID
	// Status is the node's status; the zero Status if it has none.
	Status Status
	// Predecessor is, for RuleReady, the least one that is neither completed nor skipped.
	Predecessor NodeID
}

// Error names the rule, the node and its status.
func (e *FactError) Error() string {
	text := "reduction: " + e.Rule + ": node " + quoted(string(e.Node)) + " is " + e.Status.String()
	if e.Rule == RuleReady {
		text += ", and " + quoted(string(e.Predecessor)) + " before it is not done"
	}
	return text
}

// admit checks a result by itself and against its node's status. The caller checks that the node's
// predecessors are satisfied, since it may know so without a search.
func admit(r Result, at Status) error {
	rule := ""
	switch o := r.Outcome.(type) {
	case Succeeded, Skipped:
		if at.Kind == StatusWaiting {
			rule = RuleWaiting
		}
	case SuspendedOn:
		switch {
		case o.Signal == "":
			rule = RuleSignal
		case at.Kind == StatusWaiting:
			rule = RuleWaiting
		}
	case NodeFailed, NodeTimedOut, NodeCancelled, NodeShutdown, NodeRunCancelled:
	default:
		rule = RuleOutcome
	}
	switch {
	case rule == RuleOutcome || rule == RuleSignal:
	case !at.Kind.Valid():
		rule = RuleKnownNode
	case at.Kind.Terminal():
		rule = RuleOpen
	}
	if rule == "" {
		return nil
	}
	return &FactError{Rule: rule, Node: r.Node, Status: at}
}
