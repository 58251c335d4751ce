package mutation

// graphBugs break what a graph must be to be run, what its nodes get and what a run answers, and what the
// machine does with a run: whom it starts, what the end of an attempt means, signals, waves, how a run is
// ended from outside, and a further life.
var graphBugs = []bug{
	{
		file: "graph/validate.go", rule: "an edge is named once",
		from: `case l.seen[p] == int32(i)+1:`, to: `case l.seen[p] > int32(i)+1:`, tests: "TestBadGraphsAreRefusedAtTheirPlace",
	},
	{
		file: "graph/validate.go", rule: "problems beyond the bound are counted",
		from: "e.More++\n\t\t\treturn", to: "return", tests: "TestProblemsAreBoundedAndCounted",
	},
	{
		file: "graph/order.go", rule: "a cycle is found",
		from: `if len(order) < count {`, to: `if len(order) == 0 && count > 0 {`, tests: "TestBadGraphsAreRefusedAtTheirPlace",
	},
	{
		file: "graph/checkinputs.go", rule: "an input comes from a node that ends before this one starts",
		from: `if l.seen[source] != target+1 {`, to: `if l.seen[source] == 0 && source > target {`, tests: "TestAncestorsAgainstTheTwin",
	},
	{
		file: "graph/ancestors.go", rule: "ancestors: a block has as many sources as a word has bits",
		from: `if sources == 64 {`, to: `if sources == 65 {`, tests: "TestAncestorsInBlocks",
	},
	{
		file: "graph/inputs.go", rule: "inputs: members stand in the order of their names",
		from: `return strings.Compare(a.GetName(), b.GetName())`, to: `return strings.Compare(b.GetName(), a.GetName())`, tests: "TestInputs",
	},
	{
		file: "graph/inputs.go", rule: "inputs: their size is bounded",
		from: `if o.Len() >= MaxInputBytes {`, to: `if o.Len() >= 2*MaxInputBytes {`, tests: "TestInputsAreBoundedAndAskedOnce",
	},
	{
		file: "graph/inputs.go", rule: "inputs: what is not JSON is base64",
		from: "if isJSON(b) {\n\t\treturn trim(b)", to: "if isJSON(b) || b[0] == 'h' {\n\t\treturn trim(b)", tests: "TestInputs",
	},
	{
		file: "graph/inputs.go", rule: "inputs: a part that is too large to answer gives nothing",
		from: `ParseTooLarge(value); ok {`, to: `ParseTooLarge(value); ok && in.GetPath() != "" {`, tests: "TestSinkOutputsTooLarge",
	},
	{
		file: "graph/sinks.go", rule: "the result is of the nodes that none comes after",
		from: `if !followed[n.GetId()] {`, to: `if !followed[n.GetId()] || len(n.GetAfter()) == 0 {`, tests: "TestSinks",
	},
	{
		file: "graph/sinks.go", rule: "a result that is too large says so, and how large it is",
		from: "o = object{} // only its size matters from here on\n\t\t\tcontinue", to: "break", tests: "TestSinkOutputsTooLarge",
	},
	{
		file: "fsm/machine/submit_graph.go", rule: "submit: another input under the same id is a conflict",
		from: `case !bytes.Equal(given, input):`, to: `case len(given) != len(input):`, tests: "TestGraphDiamond",
	},
	{
		file: "fsm/machine/submit_graph.go", rule: "submit: functions of subgraphs must be known, too",
		from: `if found, err = functionsOf(kind.Subgraph, found); err != nil {`, to: `if _, err = functionsOf(kind.Subgraph, nil); err != nil {`,
		tests: "TestGraphRefused",
	},
	{
		file: "fsm/machine/graph_run.go", rule: "max_parallel: not one more",
		from: `most == 0 || r.counts.slots < most {`, to: `most == 0 || r.counts.slots <= most {`, tests: "TestGraphMaxParallel",
	},
	{
		file: "fsm/machine/graph_run.go", rule: "max_parallel: who waits for a signal takes no place",
		from: `case *perdurev1.GraphNode_Signal, *perdurev1.GraphNode_Sleep:`, to: `case *perdurev1.GraphNode_Sleep:`, tests: "TestGraphMaxParallel",
	},
	{
		file: "fsm/machine/graph_run.go", rule: "a run read anew knows the outputs of its former life",
		from: `row.output = t.keptOutput(ex, uint32(n), row.from)`, to: `_ = t.keptOutput(ex, uint32(n), row.from)`, tests: "TestGraphRetryRun",
	},
	{
		file: "fsm/machine/graph_run.go", rule: "a refused command leaves no counts of a run in memory",
		from: `= r.byChild[:u.children], u.unobserved, u.counts`, to: `= r.byChild[:u.children], u.unobserved, r.counts`, tests: "TestGraphRollback",
	},
	{
		file: "fsm/machine/graph_run.go", rule: "a refused command leaves no node started in memory",
		from: `set.put(n, !set.has(n))`, to: `set.put(n, set.has(n))`, tests: "TestGraphRollbackOfReadiness",
	},
	{
		file: "fsm/machine/graph_advance.go", rule: "one command starts a bounded number of nodes",
		from: `if t.graphStarts >= startsAtOnce {`, to: `if t.graphStarts > startsAtOnce {`, tests: "TestGraphStartsABit",
	},
	{
		file: "fsm/machine/graph_advance.go", rule: "wave: results count when the whole wave has one",
		from: "if r.counts.active > 0 {\n\t\t\treturn false", to: "if r.counts.active > 1 {\n\t\t\treturn false", tests: "TestGraphWave",
	},
	{
		file: "fsm/machine/graph_advance.go", rule: "attempts: no more than the node has",
		from: `row.attempt < attemptsOf(r.node(n)) {`, to: `row.attempt <= attemptsOf(r.node(n)) {`, tests: "TestGraphRetry",
	},
	{
		file: "fsm/machine/graph_advance.go", rule: "attempts: a failure that says so is not tried again",
		from: `&& !failure.NonRetryable &&`, to: `&& failure.Type != "" &&`, tests: "TestGraphRetry",
	},
	{
		file: "fsm/machine/graph_advance.go", rule: "pauses grow from the second on",
		from: `for i := uint32(1); i < attempt && pause < most; i++ {`, to: `for i := uint32(0); i < attempt && pause < most; i++ {`, tests: "TestGraphPauses",
	},
	{
		file: "fsm/machine/graph_advance.go", rule: "failure policy: a failed node counts as skipped if it says so",
		from: `meant := reduction.Policy(r.node(n).OnFailure).Translate(o)`, to: `meant := reduction.Policy(0).Translate(o)`, tests: "TestGraphFailureSkipped",
	},
	{
		file: "fsm/machine/graph_advance.go", rule: "skipped: the reason is kept",
		from: `nullOutcome(), skippedBytes(failure.Message))`, to: `nullOutcome(), nil)`, tests: "TestGraphSkipReason",
	},
	{
		file: "fsm/machine/graph_advance.go", rule: "a wait that is skipped is taken back first",
		from: `taken = append(taken, reduction.Result{Node: node, Outcome: reduction.NodeCancelled{}})`, to: `_ = taken`, tests: "TestGraphFailureSkipped",
	},
	{
		file: "fsm/machine/graph_node.go", rule: "signal: one that came before its node waits is kept for it",
		from: "ex.h.Incarnation, signal)); ok {", to: "ex.h.Incarnation, signal)); ok && len(payload) > 1<<20 {", tests: "TestGraphSignals",
	},
	{
		file: "fsm/machine/graph_node.go", rule: "signal: a wait whose deadline has come is over",
		from: `t.timeout(ex.ns, row.promise(ex.h.ID))`, to: `_ = row`, tests: "TestGraphSignalDeadline",
	},
	{
		file: "fsm/machine/graph_node.go", rule: "cancel: what pauses between two attempts has no further one",
		from: "case row.retryAt != 0:\n\t\t\tt.dropNode(ex, r, n, reason)", to: "case row.retryAt != 0:", tests: "TestGraphCancel",
	},
	{
		file: "fsm/machine/graph_node.go", rule: "cancel: the deadline of a dropped pause goes with it",
		from: "case row.retryAt != 0:\n\t\tt.remove(keys.DeadlineOf(keys.DueGraph, row.retryAt, ex.ns, promise))", to: "case row.retryAt != 0:", tests: "TestGraphCancel",
	},
	{
		file: "fsm/machine/graph_node.go", rule: "a run that is ended observes the wave under way",
		from: "if len(r.unobserved) > 0 {\n\t\tt.endWave(ex, r)", to: "if len(r.unobserved) > 1<<20 {\n\t\tt.endWave(ex, r)", tests: "TestGraphTerminateAndDeadline",
	},
	{
		file: "fsm/machine/retry_graph.go", rule: "retry: what was skipped is kept",
		from: `if row.status != reduction.StatusCompleted && row.status != reduction.StatusSkipped {`, to: `if row.status != reduction.StatusCompleted {`,
		tests: "TestGraphSkipReason",
	},
	{
		file: "fsm/machine/retry_graph.go", rule: "retry: an output is that of the life that made it",
		from: `if row.status == reduction.StatusCompleted && row.from == 0 {`, to: `if row.status == reduction.StatusCompleted {`, tests: "TestGraphRetryRun",
	},
	{
		file: "fsm/machine/retry_graph.go", rule: "retry: signals that the run has got stay with it",
		from: `former: h.Incarnation, signals: signals,`, to: `former: h.Incarnation, signals: signals[:0],`, tests: "TestGraphRetryRun",
	},
	{
		file: "fsm/machine/retry_graph.go", rule: "retry: not in the entry in which the run began",
		from: `case h.Incarnation == t.index:`, to: `case h.Incarnation > t.index:`, tests: "TestGraphRetryInOneEntry",
	},
	{
		file: "fsm/machine/retry_graph.go", rule: "retry: a further life has as much time as the first",
		from: `deadline = t.deadline(h.DeadlineMS - h.CreatedMS)`, to: `deadline = h.DeadlineMS`, tests: "TestGraphRetryHasItsTime",
	},
	{
		file: "fsm/machine/query_graph.go", rule: "status: a result that is too large is told",
		from: `out.Problem, out.TooLargeBytes = too.Error(), uint64(too.Bytes)`, to: `_ = too`, tests: "TestGraphResultTooLarge",
	},
}
