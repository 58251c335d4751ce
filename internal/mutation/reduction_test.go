package mutation

// reductionBugs break the algebra of graphs, the three phases (accumulate, close, classify), recovery, and
// the engine that does the same fact by fact.
var reductionBugs = []bug{
	{
		file: "reduction/denote.go", rule: "at_most_max_nodes: not one more",
		from: `if len(w.ids) == w.lim.nodes {`, to: `if len(w.ids) > w.lim.nodes {`, tests: "TestRefusedGraphs",
	},
	{
		file: "reduction/cycle.go", rule: "acyclic",
		from: `if len(r.order) == len(r.ids) {`, to: `if len(r.order) > 0 || len(r.ids) == 0 {`, tests: "TestRefusedGraphs",
	},
	{
		file: "reduction/relation.go", rule: "no_self_edge",
		from: `if from == to {`, to: `if from == to && from > 0 {`, tests: "TestRefusedGraphs",
	},
	{
		file: "reduction/accumulate.go", rule: "one_result_per_node",
		from: `if i := firstRepeated(numbers); i >= 0 {`, to: `if i := firstRepeated(numbers); i > 1 {`, tests: "TestRefusedFacts",
	},
	{
		file: "reduction/accumulate.go", rule: "predecessors_satisfied: a failed one does not count",
		from: `if !s.kind(r, p).satisfies() {`, to: `if !s.kind(r, p).Terminal() {`, tests: "TestViolations",
	},
	{
		file: "reduction/accumulate.go", rule: "starts_from_pending",
		from: `case at.Kind != StatusPending:`, to: `case at.Kind.Terminal():`, tests: "TestEngineAgreesWithItsTwins",
	},
	{
		file: "reduction/facterror.go", rule: "node_not_terminal: nor a skipped one",
		from: `case at.Kind.Terminal():`, to: `case at.Kind.Terminal() && at.Kind != StatusSkipped:`, tests: "TestRefusedFacts",
	},
	{
		file: "reduction/facterror.go", rule: "wait_ends_by_signal_reset_or_failure",
		from: `case Succeeded, Skipped:`, to: `case Skipped:`, tests: "TestRefusedFacts",
	},
	{
		file: "reduction/status.go", rule: "close: a waiting node fails too",
		from: `return k == StatusPending || k == StatusWaiting`, to: `return k == StatusPending`, tests: "TestAllStatesOfAllSmallGraphs",
	},
	{
		file: "reduction/close.go", rule: "close: a completed node does not shield what comes after it",
		from: `if ancestor[p] >= 0 {`, to: `if ancestor[p] >= 0 && s.kind(r, p) != StatusCompleted {`, tests: "TestAllStatesOfAllSmallGraphs",
	},
	{
		file: "reduction/close.go", rule: "close: at any distance",
		from: `for _, n := range r.order {`, to: `for n := range int32(len(r.ids)) {`, tests: "TestAllStatesOfAllSmallGraphs",
	},
	{
		file: "reduction/classify.go", rule: "classify: work comes before waiting",
		from: `case ready > 0:`, to: `case ready > 0 && waiting == 0:`, tests: "TestPhaseOf",
	},
	{
		file: "reduction/classify.go", rule: "classify: it reads the normalised view",
		from: `s = Close(r, Normalize(s))`, to: `s = Close(r, s)`, tests: "TestAllStatesOfAllSmallGraphs",
	},
	{
		file: "reduction/recover.go", rule: "recover: running becomes pending",
		from: `s = Close(r, Normalize(ResolveSignals(r, s, delivered)))`, to: `s = Close(r, ResolveSignals(r, s, delivered))`,
		tests: "TestWorkedExampleCrash",
	},
	{
		file: "reduction/recover.go", rule: "recover: a damaged state is refused",
		from: `len(faults) > 0 {`, to: `len(faults) > 9 {`, tests: "TestViolations",
	},
	{
		file: "reduction/outcome.go", rule: "a time-out is a failure",
		from: `func (NodeTimedOut) Target() Status     { return Status{Kind: StatusFailed} }`,
		to:   `func (NodeTimedOut) Target() Status     { return Status{Kind: StatusPending} }`, tests: "TestOutcomeClasses",
	},
	{
		file: "reduction/engine_apply.go", rule: "engine: failure reaches what comes after what failed",
		from: `queue = append(queue, m)`, to: `_ = m`, tests: "TestDeltaOrder",
	},
	{
		file: "reduction/engine_transaction.go", rule: "engine: a transaction is taken back in reverse order",
		from: `for i := len(u.old) - 1; i >= 0; i-- {`, to: `for i := range u.old {`, tests: "TestEngineAgreesWithItsTwins",
	},
	{
		file: "reduction/engine.go", rule: "engine: what is taken back is missing again",
		from: `e.missing[m]++`, to: `e.missing[m] += 0`, tests: "TestTransactions",
	},
	{
		file: "reduction/engine.go", rule: "engine: a waiter that moves is found again",
		from: `e.place[last] = e.place[n]`, to: `_ = last`, tests: "TestEngineAgreesWithItsTwins",
	},
	{
		file: "reduction/codec.go", rule: "codec: nodes ascend, each once",
		from: `if i > 0 && id <= before {`, to: `if i > 0 && id < before {`, tests: "TestCorruption",
	},
}
