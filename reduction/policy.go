package reduction

import "strconv"

// Policy says what the failure of a node means for its descendants. It belongs to the definition of a graph,
// node by node. The caller applies it to an outcome before it accumulates the outcome.
//
// The closure of the papers has no such parameter, and could not take one for free. An edge that does not
// conduct failure would leave a pending node after a failed one, against item 5 of Definition 1, and that
// node could only start if a failed predecessor counted as done, against item 6. So the policy acts where the
// papers allow it: on accumulation, which may gain any "new node-local forward outcome" without loss
// (algebraic foundations, 5.1, first row). A failure that has no consequences is a skip. The record of the
// failure itself stays in the store of results.
//
// A policy says nothing about failures before the node: a node that never ran because one before it failed
// has failed, whatever its own policy.
type Policy uint8

const (
	// OnFailurePropagate fails all that comes after the node. It is the zero value.
	OnFailurePropagate Policy = 0
	// OnFailureSkip treats the failed node as skipped, so what comes after it may start.
	OnFailureSkip Policy = 1
)

var policyNames = [...]string{"propagate", "skip"}

// String returns "propagate", "skip" or "Policy(n)".
func (p Policy) String() string {
	if !p.Valid() {
		return "Policy(" + strconv.Itoa(int(p)) + ")"
	}
	return policyNames[p]
}

// Valid reports whether p is one of the two.
func (p Policy) Valid() bool { return int(p) < len(policyNames) }

// ParsePolicy is the inverse of String.
func ParsePolicy(text string) (Policy, bool) {
	for i, name := range policyNames {
		if name == text {
			return Policy(i), true
		}
	}
	return 0, false
}

// Translate is what o means under p: Skipped for the failure of a node with OnFailureSkip, o otherwise.
func (p Policy) Translate(o Outcome) Outcome {
	if p != OnFailureSkip {
		return o
	}
	switch o.(type) {
	case NodeFailed, NodeTimedOut:
		return Skipped{}
	}
	return o
}
