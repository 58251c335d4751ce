package reduction

import (
	"maps"
	"slices"
	"strconv"
)

// The rules that a [Violation] may name. The first six are the items of Definition 1 (staged reduction, 3.4),
// the seventh is what Proposition 1 assumes besides.
const (
	RuleStatusDomain = "every_node_has_a_status"         // item 1
	RuleOutputDomain = "outputs_belong_to_nodes"         // item 2
	RuleOutputOwner  = "output_iff_completed"            // item 3
	RuleNormalised   = "no_node_is_running"              // item 4
	RuleClosed       = "nothing_open_after_a_failure"    // item 5
	RuleFrontier     = "frontier_is_what_is_ready"       // item 6
	RuleCausal       = "nothing_happens_before_its_time" // causal history
)

// Violation is one thing that is wrong with a state.
type Violation struct {
	// Item is that of Definition 1, from 1 to 6, or 0 for RuleCausal.
	Item int
	// Rule is its name.
	Rule string
	// Node is the one concerned.
	Node NodeID
	// Status is where it stands.
	Status Status
	// Detail says in words what is wrong.
	Detail string
}

// Error names the rule, the item, the node and what is wrong with it.
func (v Violation) Error() string {
	item := ""
	if v.Item > 0 {
		item = " (Definition 1, item " + strconv.Itoa(v.Item) + ")"
	}
	return "reduction: " + v.Rule + item + ": node " + quoted(string(v.Node)) + ", " + v.Status.String() + ": " + v.Detail
}

// WellFormed is Definition 1: it lists what keeps s from being a valid recovered state of r, and frontier
// from being its frontier, in the order of the items and then of the nodes; nil if nothing does. The
// frontier is a claim to be judged, by whichever way it was found, in any order.
func WellFormed(r *Relation, s State, frontier []NodeID) []Violation {
	j := judge{r: r, s: s}
	j.domains()
	for _, id := range r.ids {
		if s.Statuses[id].Kind == StatusRunning {
			j.add(4, RuleNormalised, id, "the state is not normalised")
		}
	}
	for n, ancestor := range failedAncestors(r, s) {
		if ancestor >= 0 && s.kind(r, int32(n)).yields() {
			j.add(5, RuleClosed, r.ids[n], "it comes after "+quoted(string(r.ids[ancestor]))+", which has failed")
		}
	}
	j.frontier(frontier)
	return j.found
}

// Persisted lists what keeps s from being the state of a run at any point of accumulation: its domains and
// outputs are those of Definition 1 (items 1 to 3), and nothing has happened before its time. A node may
// have left pending only after all before it were completed or skipped; a failed one may instead have failed
// with one before it. This is the causal history that Proposition 1 assumes, and that Accumulate, Close and
// the rest preserve. Such a state may hold running nodes, and failures that are not closed yet.
func Persisted(r *Relation, s State) []Violation {
	j := judge{r: r, s: s}
	j.domains()
	var ancestors []int32
	for i, id := range r.ids {
		n, kind := int32(i), s.Statuses[id].Kind
		if kind == StatusPending || !kind.Valid() {
			continue
		}
		p, ok := unsatisfied(r, s, n)
		if !ok {
			continue
		}
		if kind == StatusFailed {
			if ancestors == nil {
				ancestors = failedAncestors(r, s)
			}
			if ancestors[n] >= 0 {
				continue
			}
		}
		j.add(0, RuleCausal, id, "before it, "+quoted(string(r.ids[p]))+" is "+s.Statuses[r.ids[p]].String())
	}
	return j.found
}

type judge struct {
	r     *Relation
	s     State
	found []Violation
}

func (j *judge) add(item int, rule string, id NodeID, detail string) {
	j.found = append(j.found, Violation{item, rule, id, j.s.Statuses[id], detail})
}

// domains judges items 1 to 3.
func (j *judge) domains() {
	for _, id := range j.r.ids {
		if !j.s.Statuses[id].Valid() {
			j.add(1, RuleStatusDomain, id, "a node without a valid status")
		}
	}
	for _, id := range slices.Sorted(maps.Keys(j.s.Statuses)) {
		if !j.r.Has(id) {
			j.add(1, RuleStatusDomain, id, "a status without a node")
		}
	}
	withOutput := slices.Sorted(maps.Keys(j.s.Outputs))
	for _, id := range withOutput {
		if !j.r.Has(id) {
			j.add(2, RuleOutputDomain, id, "an output without a node")
		}
	}
	for _, id := range withOutput {
		if j.s.Statuses[id].Kind != StatusCompleted {
			j.add(3, RuleOutputOwner, id, "an output, but not completed")
		}
	}
	for _, id := range slices.Sorted(maps.Keys(j.s.Statuses)) {
		if _, ok := j.s.Outputs[id]; !ok && j.s.Statuses[id].Kind == StatusCompleted {
			j.add(3, RuleOutputOwner, id, "completed without an output")
		}
	}
}

// frontier judges item 6: the claim is, as a set, what is ready.
func (j *judge) frontier(claim []NodeID) {
	sorted := slices.Sorted(slices.Values(claim))
	ready := Ready(j.r, j.s)
	for i, id := range sorted {
		switch {
		case i > 0 && id == sorted[i-1]:
			j.add(6, RuleFrontier, id, "listed twice in the frontier")
		case !j.r.Has(id):
			j.add(6, RuleFrontier, id, "in the frontier without being a node")
		default:
			if _, ok := slices.BinarySearch(ready, id); !ok {
				j.add(6, RuleFrontier, id, "in the frontier without being ready")
			}
		}
	}
	for _, id := range ready {
		if _, ok := slices.BinarySearch(sorted, id); !ok {
			j.add(6, RuleFrontier, id, "ready, but not in the frontier")
		}
	}
}
