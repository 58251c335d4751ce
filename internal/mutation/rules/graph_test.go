package rules

import "perdure/internal/mutation"

// graphBugs break what a graph must be to be run, what its nodes get and what a run answers, and what the
// machine does with a run: which nodes it starts, what the end of an attempt means, signals, waves, how a run
// is ended from outside, and a further incarnation.
var graphBugs = []mutation.Bug{
	{
		File: "graph/validate.go", Rule: "an edge is named once",
		From: `case l.seen[p] == int32(i)+1:`, To: `case l.seen[p] > int32(i)+1:`, Tests: "TestBadGraphsAreRefusedAtTheirPath",
	},
	{
		File: "graph/validate.go", Rule: "problems beyond the bound are counted",
		From: "e.More++\n\t\t\treturn", To: "return", Tests: "TestProblemsAreBoundedAndCounted",
	},
	{
		File: "graph/order.go", Rule: "a cycle is found",
		From: `if len(order) < count {`, To: `if len(order) == 0 && count > 0 {`, Tests: "TestBadGraphsAreRefusedAtTheirPath",
	},
	{
		File: "graph/checkinputs.go", Rule: "an input comes from a node that ends before this one starts",
		From: `if l.seen[source] != target+1 {`, To: `if l.seen[source] == 0 && source > target {`, Tests: "TestAncestorsAgainstTheTwin",
	},
	{
		File: "graph/ancestors.go", Rule: "ancestors: a block has as many sources as a word has bits",
		From: `if sources == 64 {`, To: `if sources == 65 {`, Tests: "TestAncestorsInBlocks",
	},
	{
		File: "graph/inputs.go", Rule: "inputs: members are in the order of their names",
		From: `return strings.Compare(a.GetName(), b.GetName())`, To: `return strings.Compare(b.GetName(), a.GetName())`, Tests: "TestInputs",
	},
	{
		File: "graph/inputs.go", Rule: "inputs: their size is bounded",
		From: `if o.Len() >= MaxInputBytes {`, To: `if o.Len() >= 2*MaxInputBytes {`, Tests: "TestInputsAreBoundedAndAskedOnce",
	},
	{
		File: "graph/inputs.go", Rule: "inputs: what is not JSON is base64",
		From: "if isJSON(b) {\n\t\treturn trim(b)", To: "if isJSON(b) || b[0] == 'h' {\n\t\treturn trim(b)", Tests: "TestInputs",
	},
	{
		File: "graph/inputs.go", Rule: "inputs: a part that is too large to answer gives nothing",
		From: `ParseTooLarge(value); ok {`, To: `ParseTooLarge(value); ok && in.GetPath() != "" {`, Tests: "TestSinkOutputsTooLarge",
	},
	{
		File: "graph/inputs.go", Rule: "quote: a control character is escaped",
		From: `c < ' ' || c > '~'`, To: `c > '~'`, Tests: "TestQuoteAgainstTheEncoder",
	},
	{
		File: "graph/inputs.go", Rule: "quote: a backslash is escaped",
		From: `c == '"' || c == '\\'`, To: `c == '"'`, Tests: "TestQuoteAgainstTheEncoder",
	},
	{
		File: "graph/sinks.go", Rule: "the result is of the nodes that none comes after",
		From: `if !followed[n.GetId()] {`, To: `if !followed[n.GetId()] || len(n.GetAfter()) == 0 {`, Tests: "TestSinks",
	},
	{
		File: "graph/sinks.go", Rule: "a result that is too large says so, and how large it is",
		From: "o = object{} // only its size matters from here on\n\t\t\tcontinue", To: "break", Tests: "TestSinkOutputsTooLarge",
	},
	{
		File: "fsm/machine/submit_graph.go", Rule: "submit: another input under the same id is a conflict",
		From: `if bytes.Equal(stored, submitted) {`, To: `if len(stored) == len(submitted) {`, Tests: "TestGraphDiamond",
	},
	{
		File: "fsm/machine/submit_graph.go", Rule: "submit: functions of subgraphs must be known, too",
		From: `if found, err = functionsOf(kind.Subgraph, found); err != nil {`, To: `if _, err = functionsOf(kind.Subgraph, nil); err != nil {`,
		Tests: "TestGraphRefused",
	},
	{
		File: "fsm/machine/store.go", Rule: "a run among the remains of another reads which ids are free",
		From: `none = false`, To: `none = true`, Tests: "TestRunAmongRemainsIsNotAlone",
	},
	{
		File: "fsm/machine/store.go", Rule: "children among the remains of others meet them",
		From: `none = false`, To: `none = true`, Tests: "TestChildrenAmongRemains",
	},
	{
		File: "fsm/machine/txn.go", Rule: "expirations stay applied when the command is refused",
		From: `return len(t.table.log) == 0 && len(t.entities)`, To: `return len(t.entities)`, Tests: "TestExpirationsOutlastRefusal",
	},
	{
		File: "fsm/machine/graph_run.go", Rule: "max_parallel: not one more",
		From: `most == 0 || r.counts.slots < most {`, To: `most == 0 || r.counts.slots <= most {`, Tests: "TestGraphMaxParallel",
	},
	{
		File: "fsm/machine/graph_run.go", Rule: "max_parallel: who waits for a signal takes no place",
		From: `case *perdurev1.GraphNode_Signal, *perdurev1.GraphNode_Sleep:`, To: `case *perdurev1.GraphNode_Sleep:`, Tests: "TestGraphMaxParallel",
	},
	{
		File: "fsm/machine/graph_run.go", Rule: "a reloaded run knows the outputs of its former incarnation",
		From: `row.Output = t.keptOutput(ex, uint32(n), row.From)`, To: `_ = t.keptOutput(ex, uint32(n), row.From)`, Tests: "TestGraphRetryRun",
	},
	{
		File: "fsm/machine/graph_run.go", Rule: "a refused command leaves no counts of a run in memory",
		From: `= r.byChild[:u.children], u.unobserved, u.counts`, To: `= r.byChild[:u.children], u.unobserved, r.counts`, Tests: "TestGraphRollback",
	},
	{
		File: "fsm/machine/graph_run.go", Rule: "a refused command leaves no node started in memory",
		From: `set.put(n, !set.has(n))`, To: `set.put(n, set.has(n))`, Tests: "TestGraphRollbackOfReadiness",
	},
	{
		File: "fsm/machine/graph_advance.go", Rule: "one command starts a bounded number of nodes",
		From: `if t.graphStarts >= startsAtOnce {`, To: `if t.graphStarts > startsAtOnce {`, Tests: "TestGraphStartsABit",
	},
	{
		File: "fsm/machine/graph_advance.go", Rule: "wave: results count when the whole wave has one",
		From: "if r.counts.active > 0 {\n\t\t\treturn false", To: "if r.counts.active > 1 {\n\t\t\treturn false", Tests: "TestGraphWave",
	},
	{
		File: "fsm/machine/graph_advance.go", Rule: "attempts: no more than the node has",
		From: `row.Attempt < attemptsOf(r.node(n)) {`, To: `row.Attempt <= attemptsOf(r.node(n)) {`, Tests: "TestGraphRetry",
	},
	{
		File: "fsm/machine/graph_advance.go", Rule: "attempts: a failure that says so is not tried again",
		From: `&& !failure.NonRetryable &&`, To: `&& failure.Type != "" &&`, Tests: "TestGraphRetry",
	},
	{
		File: "fsm/state/header_more.go", Rule: "pauses grow from the second on",
		From: `for i := uint32(1); i < n && pause < most; i++ {`, To: `for i := uint32(0); i < n && pause < most; i++ {`, Pkg: "fsm/machine", Tests: "TestGraphPauses",
	},
	{
		File: "fsm/machine/graph_advance.go", Rule: "failure policy: a failed node counts as skipped if it says so",
		From: `meant := reduction.Policy(r.node(n).OnFailure).Translate(o)`, To: `meant := reduction.Policy(0).Translate(o)`, Tests: "TestGraphFailureSkipped",
	},
	{
		File: "fsm/machine/graph_advance.go", Rule: "skipped: the reason is kept",
		From: `nullOutcome(), skippedBytes(failure.Message))`, To: `nullOutcome(), nil)`, Tests: "TestGraphSkipReason",
	},
	{
		File: "fsm/machine/graph_advance.go", Rule: "a wait that is skipped is taken back first",
		From: `taken = append(taken, reduction.Result{Node: node, Outcome: reduction.NodeCancelled{}})`, To: `_ = taken`, Tests: "TestGraphFailureSkipped",
	},
	{
		File: "fsm/machine/graph_node.go", Rule: "signal: one that came before its node waits is kept for it",
		From: "ex.h.Incarnation, signal)); ok {", To: "ex.h.Incarnation, signal)); ok && len(payload) > 1<<20 {", Tests: "TestGraphSignals",
	},
	{
		File: "fsm/machine/graph_node.go", Rule: "signal: a wait whose deadline has come is over",
		From: `t.timeout(ex.ns, row.Promise(ex.h.ID))`, To: `_ = row`, Tests: "TestGraphSignalDeadline",
	},
	{
		File: "fsm/machine/graph_node.go", Rule: "cancel: what pauses between two attempts has no further one",
		From: "case row.RetryAt != 0:\n\t\t\tt.dropNode(ex, r, n, reason)", To: "case row.RetryAt != 0:", Tests: "TestGraphCancel",
	},
	{
		File: "fsm/machine/graph_node.go", Rule: "cancel: the deadline of a dropped pause goes with it",
		From: "case row.RetryAt != 0:\n\t\tt.remove(keys.DeadlineOf(keys.DeadlineGraph, row.RetryAt, ex.ns, promise))", To: "case row.RetryAt != 0:", Tests: "TestGraphCancel",
	},
	{
		File: "fsm/machine/graph_node.go", Rule: "a run that is ended observes the wave under way",
		From: "if len(r.unobserved) > 0 {\n\t\tt.endWave(ex, r)", To: "if len(r.unobserved) > 1<<20 {\n\t\tt.endWave(ex, r)", Tests: "TestGraphTerminateAndDeadline",
	},
	{
		File: "fsm/machine/retry_graph.go", Rule: "retry: what was skipped is kept",
		From: `if row.Status != reduction.StatusCompleted && row.Status != reduction.StatusSkipped {`, To: `if row.Status != reduction.StatusCompleted {`,
		Tests: "TestGraphSkipReason",
	},
	{
		File: "fsm/machine/retry_graph.go", Rule: "retry: an output is that of the incarnation that made it",
		From: `if row.Status == reduction.StatusCompleted && row.From == 0 {`, To: `if row.Status == reduction.StatusCompleted {`, Tests: "TestGraphRetryRun",
	},
	{
		File: "fsm/machine/retry_graph.go", Rule: "retry: signals that the run has got stay with it",
		From: `former: h.Incarnation, signals: signals,`, To: `former: h.Incarnation, signals: signals[:0],`, Tests: "TestGraphRetryRun",
	},
	{
		File: "fsm/machine/retry_graph.go", Rule: "retry: not in the entry in which the run began",
		From: `case h.Incarnation == t.index:`, To: `case h.Incarnation > t.index:`, Tests: "TestGraphRetryInOneEntry",
	},
	{
		File: "fsm/machine/retry_graph.go", Rule: "retry: a further incarnation has as much time as the first",
		From: `deadline = t.deadline(h.DeadlineMS - h.CreatedMS)`, To: `deadline = h.DeadlineMS`, Tests: "TestGraphRetryHasItsTime",
	},
	{
		File: "fsm/query/graph.go", Pkg: "fsm/machine", Rule: "status: a result that is too large is reported",
		From: `out.Problem, out.TooLargeBytes = too.Error(), uint64(too.Bytes)`, To: `_ = too`, Tests: "TestGraphResultTooLarge",
	},
}
