package reduction

// Close propagates failure (staged reduction, 3.4): every pending or waiting node that comes after a failed
// one, at any distance, becomes failed. It is a closure operator on states ordered by their failures: it
// takes no failure back (extensive), more failures before mean no fewer after (monotone), and a second time
// it changes nothing (idempotent).
func Close(r *Relation, s State) State {
	out := s.Clone()
	for n, ancestor := range failedAncestors(r, s) {
		if ancestor >= 0 && s.kind(r, int32(n)).yields() {
			out.Statuses[r.ids[n]] = Status{Kind: StatusFailed}
		}
	}
	return out
}

// failedAncestors finds, for every node, a failed node that it comes after, or -1. Failure reaches through
// nodes of every status: a completed node after a failed one does not shield what comes after itself.
func failedAncestors(r *Relation, s State) []int32 {
	ancestor := make([]int32, len(r.ids))
	for i := range ancestor {
		ancestor[i] = -1
	}
	for _, n := range r.order { // predecessors first, so that each is final when it is read
		for _, p := range r.pred.of(n) {
			if s.kind(r, p) == StatusFailed {
				ancestor[n] = p
				break
			}
			if ancestor[p] >= 0 {
				ancestor[n] = ancestor[p]
			}
		}
	}
	return ancestor
}
