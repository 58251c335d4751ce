package rules

import "perdure/internal/mutation"

// reductionBugs break the algebra of graphs, the three phases (accumulate, close, classify), recovery, and
// the engine that does the same fact by fact.
var reductionBugs = []mutation.Bug{
	{
		File: "reduction/denote.go", Rule: "at_most_max_nodes: not one more",
		From: `if len(w.ids) == w.lim.nodes {`, To: `if len(w.ids) > w.lim.nodes {`, Tests: "TestRefusedGraphs",
	},
	{
		File: "reduction/cycle.go", Rule: "acyclic",
		From: `if len(r.order) == len(r.ids) {`, To: `if len(r.order) > 0 || len(r.ids) == 0 {`, Tests: "TestRefusedGraphs",
	},
	{
		File: "reduction/relation.go", Rule: "no_self_edge",
		From: `if from == to {`, To: `if from == to && from > 0 {`, Tests: "TestRefusedGraphs",
	},
	{
		File: "reduction/relation.go", Rule: "declared edges: each has its own end",
		From: `if len(d.arcs) == 0 || e.To != former {`, To: `if len(d.arcs) == 0 || e.To == "" && former != "" {`, Tests: "TestLowerAllSmallGraphs",
	},
	{
		File: "reduction/engine.go", Rule: "initial engine: all nodes are pending",
		From: `e.count[StatusPending] = r.Len()`, To: `e.count[StatusPending] = 0`, Tests: "TestEngineAgreesWithItsTwins",
	},
	{
		File: "reduction/accumulate.go", Rule: "one_result_per_node",
		From: `if i := firstRepeated(numbers); i >= 0 {`, To: `if i := firstRepeated(numbers); i > 1 {`, Tests: "TestRefusedFacts",
	},
	{
		File: "reduction/accumulate.go", Rule: "predecessors_satisfied: a failed one does not count",
		From: `if !s.kind(r, p).satisfies() {`, To: `if !s.kind(r, p).Terminal() {`, Tests: "TestViolations",
	},
	{
		File: "reduction/accumulate.go", Rule: "starts_from_pending",
		From: `case at.Kind != StatusPending:`, To: `case at.Kind.Terminal():`, Tests: "TestEngineAgreesWithItsTwins",
	},
	{
		File: "reduction/facterror.go", Rule: "node_not_terminal: nor a skipped one",
		From: `case at.Kind.Terminal():`, To: `case at.Kind.Terminal() && at.Kind != StatusSkipped:`, Tests: "TestRefusedFacts",
	},
	{
		File: "reduction/facterror.go", Rule: "wait_ends_by_signal_reset_or_failure",
		From: `case Succeeded, Skipped:`, To: `case Skipped:`, Tests: "TestRefusedFacts",
	},
	{
		File: "reduction/status.go", Rule: "close: a waiting node fails too",
		From: `return k == StatusPending || k == StatusWaiting`, To: `return k == StatusPending`, Tests: "TestAllStatesOfAllSmallGraphs",
	},
	{
		File: "reduction/close.go", Rule: "close: a completed node does not shield what comes after it",
		From: `if ancestor[p] >= 0 {`, To: `if ancestor[p] >= 0 && s.kind(r, p) != StatusCompleted {`, Tests: "TestAllStatesOfAllSmallGraphs",
	},
	{
		File: "reduction/close.go", Rule: "close: at any distance",
		From: `for _, n := range r.order {`, To: `for n := range int32(len(r.ids)) {`, Tests: "TestAllStatesOfAllSmallGraphs",
	},
	{
		File: "reduction/classify.go", Rule: "classify: work comes before waiting",
		From: `case ready > 0:`, To: `case ready > 0 && waiting == 0:`, Tests: "TestPhaseOf",
	},
	{
		File: "reduction/classify.go", Rule: "classify: it reads the normalised view",
		From: `s = Close(r, Normalize(s))`, To: `s = Close(r, s)`, Tests: "TestAllStatesOfAllSmallGraphs",
	},
	{
		File: "reduction/recover.go", Rule: "recover: running becomes pending",
		From: `s = Close(r, Normalize(ResolveSignals(r, s, delivered)))`, To: `s = Close(r, ResolveSignals(r, s, delivered))`,
		Tests: "TestWorkedExampleCrash",
	},
	{
		File: "reduction/recover.go", Rule: "recover: a damaged state is refused",
		From: `len(faults) > 0 {`, To: `len(faults) > 9 {`, Tests: "TestViolations",
	},
	{
		File: "reduction/outcome.go", Rule: "a time-out is a failure",
		From: `func (NodeTimedOut) Target() Status     { return Status{Kind: StatusFailed} }`,
		To:   `func (NodeTimedOut) Target() Status     { return Status{Kind: StatusPending} }`, Tests: "TestOutcomeClasses",
	},
	{
		File: "reduction/engine_apply.go", Rule: "engine: failure reaches what comes after what failed",
		From: `queue = append(queue, m)`, To: `_ = m`, Tests: "TestDeltaOrder",
	},
	{
		File: "reduction/engine_transaction.go", Rule: "engine: a transaction is taken back in reverse order",
		From: `for i := len(u.old) - 1; i >= 0; i-- {`, To: `for i := range u.old {`, Tests: "TestEngineAgreesWithItsTwins",
	},
	{
		File: "reduction/engine_transaction.go", Rule: "engine: a transaction takes back only its own changes",
		From: `e.undo, e.spare.old = nil, e.spare.old[:0]`, To: `e.undo = nil`, Tests: "TestTransactions",
	},
	{
		File: "reduction/engine.go", Rule: "engine: what is taken back is missing again",
		From: `e.missing[m]++`, To: `e.missing[m] += 0`, Tests: "TestTransactions",
	},
	{
		File: "reduction/engine.go", Rule: "engine: a waiter that moves is found again",
		From: `e.place[last] = e.place[n]`, To: `_ = last`, Tests: "TestEngineAgreesWithItsTwins",
	},
	{
		File: "reduction/codec.go", Rule: "codec: nodes ascend, each once",
		From: `if i > 0 && id <= before {`, To: `if i > 0 && id < before {`, Tests: "TestCorruption",
	},
}
