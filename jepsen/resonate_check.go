package jepsen

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// ResonateVerdict is the checker's result about the histories of a run, one for each origin.
type ResonateVerdict struct {
	Histories, Ops, Open int
	// Violations are the histories that no order explains.
	Violations []string
	// Undecided are those that the checker did not decide in time.
	Undecided []string
}

// resonateSlack is how much sooner than its length a lease may end: clocks are read in milliseconds.
const resonateSlack = 20 * time.Millisecond

// CheckResonate asks for each origin whether some order of its requests, in keeping with their times, explains every
// answer by the rules of package recovery. The checker gives up on a history after timeout; 0 means 10 s. Leases may end
// sooner by slack, for nodes with wrong clocks.
func CheckResonate(origins [][]ResonateOp, timeout, slack time.Duration) ResonateVerdict {
	timeout = fallback(timeout, 10*time.Second)
	model := resonateModel(resonateSlack + slack)
	v := ResonateVerdict{Histories: len(origins)}
	for _, history := range origins {
		ops := make([]porcupine.Operation, len(history))
		for i := range history {
			o := &history[i]
			ops[i] = porcupine.Operation{ClientId: o.Client, Input: o, Call: int64(o.Called), Return: int64(o.Answered)}
			if o.Open {
				ops[i].Return = math.MaxInt64
				v.Open++
			}
		}
		v.Ops += len(ops)
		switch porcupine.CheckOperationsTimeout(model, ops, timeout) {
		case porcupine.Illegal:
			v.Violations = append(v.Violations, describeResonate("no order explains the answers", history))
		case porcupine.Unknown:
			v.Undecided = append(v.Undecided, describeResonate(fmt.Sprintf("not decided within %v", timeout), history))
		}
	}
	return v
}

// describeResonate lists the requests about one origin.
func describeResonate(what string, history []ResonateOp) string {
	history = slices.Clone(history)
	slices.SortStableFunc(history, func(a, b ResonateOp) int { return int(a.Called - b.Called) })
	var b strings.Builder
	b.WriteString(what)
	for _, o := range history {
		b.WriteString("\n    ")
		b.WriteString(o.String())
	}
	return b.String()
}
