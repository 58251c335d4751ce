package reduction

import (
	"maps"
	"slices"
	"strconv"
)

// The rules that a [Violation] may name. The first six are the items of Definition 1 (staged reduction, 3.4),
// the seventh is a further assumption of Proposition 1.
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
	// Status is the node's status.
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

// WellFormed checks Definition 1: s is a valid recovered state of r, and frontier is its frontier. It returns
// the violations, in the order of the items and then of the nodes. The frontier may come in any order and
// from any computation.
func WellFormed(r *Relation, s State, frontier []NodeID) []Violation {
	c := checker{r: r, s: s}
	c.domains()
	for _, id := range r.ids {
		if s.Statuses[id].Kind == StatusRunning {
			c.add(4, RuleNormalised, id, "the state is not normalised")
		}
	}
	for n, ancestor := range failedAncestors(r, s) {
		if ancestor >= 0 && s.kind(r, int32(n)).yields() {
			c.add(5, RuleClosed, r.ids[n], "it comes after "+quoted(string(r.ids[ancestor]))+", which has failed")
		}
	}
	c.frontier(frontier)
	return c.found
}

// Persisted lists what keeps s from being the state of a run at any point of accumulation: its domains and
// outputs are those of Definition 1 (items 1 to 3), and every node has a causal history. A node may have left
// pending only after all before it were completed or skipped; a failed one may instead have failed with one
// before it. This is the causal history that Proposition 1 assumes, and that Accumulate, Close and the rest
// preserve. Such a state may hold running nodes, and failures that are not closed yet.
func Persisted(r *Relation, s State) []Violation {
	c := checker{r: r, s: s}
	c.domains()
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
		c.add(0, RuleCausal, id, "before it, "+quoted(string(r.ids[p]))+" is "+s.Statuses[r.ids[p]].String())
	}
	return c.found
}

type checker struct {
	r     *Relation
	s     State
	found []Violation
}

func (c *checker) add(item int, rule string, id NodeID, detail string) {
	c.found = append(c.found, Violation{item, rule, id, c.s.Statuses[id], detail})
}

// domains checks items 1 to 3.
func (c *checker) domains() {
	for _, id := range c.r.ids {
		if !c.s.Statuses[id].Valid() {
			c.add(1, RuleStatusDomain, id, "a node without a valid status")
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.s.Statuses)) {
		if !c.r.Has(id) {
			c.add(1, RuleStatusDomain, id, "a status without a node")
		}
	}
	withOutput := slices.Sorted(maps.Keys(c.s.Outputs))
	for _, id := range withOutput {
		if !c.r.Has(id) {
			c.add(2, RuleOutputDomain, id, "an output without a node")
		}
	}
	for _, id := range withOutput {
		if c.s.Statuses[id].Kind != StatusCompleted {
			c.add(3, RuleOutputOwner, id, "an output, but not completed")
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.s.Statuses)) {
		if _, ok := c.s.Outputs[id]; !ok && c.s.Statuses[id].Kind == StatusCompleted {
			c.add(3, RuleOutputOwner, id, "completed without an output")
		}
	}
}

// frontier checks item 6: as a set, the claim equals Ready.
func (c *checker) frontier(claim []NodeID) {
	sorted := slices.Sorted(slices.Values(claim))
	ready := Ready(c.r, c.s)
	for i, id := range sorted {
		switch {
		case i > 0 && id == sorted[i-1]:
			c.add(6, RuleFrontier, id, "listed twice in the frontier")
		case !c.r.Has(id):
			c.add(6, RuleFrontier, id, "in the frontier without being a node")
		default:
			if _, ok := slices.BinarySearch(ready, id); !ok {
				c.add(6, RuleFrontier, id, "in the frontier without being ready")
			}
		}
	}
	for _, id := range ready {
		if _, ok := slices.BinarySearch(sorted, id); !ok {
			c.add(6, RuleFrontier, id, "ready, but not in the frontier")
		}
	}
}
