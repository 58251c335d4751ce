package reduction

// Accumulate applies the results of one frontier, in any order, and no consequences of them (staged
// reduction, 3.3). Each result writes at its own node's key only: the status that its outcome leads to and,
// for Succeeded, the output. Accumulate checks all results against s itself, and one refusal refuses all. So
// neither the new state nor the presence of an error depends on their order. The error is a *FactError, about
// the first result in the list that is refused by itself, or else about the first repeated node.
func Accumulate(r *Relation, s State, results ...Result) (State, error) {
	numbers := make([]int32, len(results))
	for i, result := range results {
		n, err := admitTo(r, s, result)
		if err != nil {
			return State{}, err
		}
		numbers[i] = n
	}
	if i := firstRepeated(numbers); i >= 0 {
		return State{}, &FactError{Rule: RuleOnce, Node: results[i].Node, Status: s.Statuses[results[i].Node]}
	}
	out := s.Clone()
	for _, result := range results {
		out.apply(result)
	}
	return out, nil
}

// apply is applyNodeFact of the paper: a point update without any check.
func (s State) apply(r Result) {
	s.Statuses[r.Node] = r.Outcome.Target()
	if done, ok := r.Outcome.(Succeeded); ok {
		s.Outputs[r.Node] = done.Output
	}
}

// admitTo checks one result against a state.
func admitTo(r *Relation, s State, result Result) (int32, error) {
	n, ok := r.number[result.Node]
	if !ok {
		return 0, &FactError{Rule: RuleKnownNode, Node: result.Node, Status: s.Statuses[result.Node]}
	}
	at := s.Statuses[result.Node]
	if err := admit(result, at); err != nil {
		return 0, err
	}
	if p, ok := unsatisfied(r, s, n); ok {
		return 0, &FactError{Rule: RuleReady, Node: result.Node, Status: at, Predecessor: r.ids[p]}
	}
	return n, nil
}

// firstRepeated returns the first index whose number also occurs at an earlier index, or -1.
func firstRepeated(numbers []int32) int {
	if len(numbers) < 2 {
		return -1
	}
	seen := make(map[int32]bool, len(numbers))
	for i, n := range numbers {
		if seen[n] {
			return i
		}
		seen[n] = true
	}
	return -1
}

// unsatisfied finds the least predecessor of n that is neither completed nor skipped.
func unsatisfied(r *Relation, s State, n int32) (int32, bool) {
	for _, p := range r.pred.of(n) {
		if !s.kind(r, p).satisfies() {
			return p, true
		}
	}
	return 0, false
}

// Start records that a ready node was handed to a worker: pending becomes running. To the phases nothing
// has changed, for they read running as pending. The error is a *FactError.
func Start(r *Relation, s State, node NodeID) (State, error) {
	n, ok := r.number[node]
	at := s.Statuses[node]
	switch {
	case !ok || at.Kind == 0:
		return State{}, &FactError{Rule: RuleKnownNode, Node: node, Status: at}
	case at.Kind != StatusPending:
		return State{}, &FactError{Rule: RuleStart, Node: node, Status: at}
	}
	if p, ok := unsatisfied(r, s, n); ok {
		return State{}, &FactError{Rule: RuleReady, Node: node, Status: at, Predecessor: r.ids[p]}
	}
	out := s.Clone()
	out.Statuses[node] = Status{Kind: StatusRunning}
	return out, nil
}
