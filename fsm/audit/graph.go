package audit

import (
	"bytes"
	"fmt"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/graph"
	"perdure/id"
	"perdure/journal"
	"perdure/recovery"
	"perdure/reduction"
)

// ofNode reports whether an id is the promise of a node of a graph run: its children are attempts.
func (a *auditor) ofNode(ns string, promise id.PromiseID) bool {
	run, ok := promise.Parent()
	if !ok {
		return false
	}
	h, ok := a.storedHeader(ns, string(run))
	return ok && h.Kind == state.KindGraph && a.Has(keys.Of(keys.Promise, ns, string(promise)))
}

// incarnationOf checks that a key belongs to the present or an earlier incarnation of a graph run.
func (a *auditor) incarnationOf(key []byte) (ns string, h state.Header, incarnation uint64, rest []byte, ok bool) {
	ns, more, rest, ok := a.parts(key, 1)
	if !ok {
		return "", state.Header{}, 0, nil, false
	}
	incarnation, rest, err := keys.CutUint64(rest)
	if err != nil {
		a.damaged(ns, more[0], key, err.Error())
		return "", state.Header{}, 0, nil, false
	}
	h, ok = a.storedHeader(ns, more[0])
	if a.ofPurged(ns, more[0], incarnation) || !ok && a.swept(ns, more[0], h, ok) {
		return "", state.Header{}, 0, nil, false
	}
	if !ok || h.Kind != state.KindGraph || incarnation > h.Incarnation || incarnation < h.Incarnation && h.Generation == 0 {
		a.found(ns, more[0], RuleGraph, "a %s of incarnation %d, and no such graph run", keys.NameOf(key), incarnation)
		return "", state.Header{}, 0, nil, false
	}
	return ns, h, incarnation, rest, true
}

// storedGraph checks the bytes of a graph.
func (a *auditor) storedGraph(key, value []byte) {
	ns, h, _, rest, ok := a.incarnationOf(key)
	if !ok {
		return
	}
	if len(rest) > 0 {
		a.damaged(ns, h.ID, key, fmt.Sprintf("%d bytes too many", len(rest)))
	}
	if level := a.number(state.MetaFeature); level < state.LevelGraphs {
		a.found(ns, h.ID, RuleGraph, "a graph run in a state of feature level %d: programs that do not know it would take it", level)
	}
	g, spec, _, err := state.DecodeGraph(bytes.Clone(value))
	if err == nil {
		_, err = state.RelationOf(g)
	}
	if err != nil {
		a.damaged(ns, h.ID, key, err.Error())
		return
	}
	if again, err := state.Deterministic.Marshal(g); err != nil || !bytes.Equal(again, spec) {
		a.damaged(ns, h.ID, key, "the graph is not written the one way there is")
	}
}

// node checks the bytes of a node.
func (a *auditor) node(key, value []byte) {
	ns, h, incarnation, _, ok := a.incarnationOf(key)
	if !ok {
		return
	}
	nodes := 0
	b, _ := a.Get(keys.GraphOf(ns, h.ID, incarnation))
	if g, _, _, err := state.DecodeGraph(b); err == nil {
		nodes = len(g.Nodes)
	}
	if _, err := state.NodeOfKey(key, keys.NodePrefix(ns, h.ID, incarnation), nodes); err != nil {
		a.damaged(ns, h.ID, key, err.Error())
	}
	row, err := state.DecodeRow(bytes.Clone(value))
	switch {
	case err != nil:
		a.damaged(ns, h.ID, key, err.Error())
	case !bytes.Equal(row.Encode(), value):
		a.damaged(ns, h.ID, key, "the node is not written the one way there is")
	}
}

// latch checks the key of a signal that a run has received; its payload is checked with the journal.
func (a *auditor) latch(key, _ []byte) {
	ns, h, incarnation, rest, ok := a.incarnationOf(key)
	if !ok {
		return
	}
	name, _, err := keys.CutString(rest)
	if err != nil {
		a.damaged(ns, h.ID, key, err.Error())
		return
	}
	if want := keys.LatchOf(ns, h.ID, incarnation, name); !bytes.Equal(key, want) {
		a.damaged(ns, h.ID, key, fmt.Sprintf("the key of this is %x", want))
	}
}

// graphAudit is the check of one graph run.
type graphAudit struct {
	a      *auditor
	ns     string
	h      state.Header
	graph  *perdurev1.Graph
	rows   []state.NodeRow
	replay *journal.Replay
	// begun and done are the times in the journal at which operations were scheduled and ended.
	begun, done map[id.PromiseID]int64
}

func (g *graphAudit) bad(format string, args ...any) {
	g.a.found(g.ns, g.h.ID, RuleGraph, format, args...)
}

// graphRun checks a graph run: its rows against its graph, its journal, its promises and its attempts, and
// its state by Definition 1.
func (a *auditor) graphRun(ns string, h state.Header, entries []journal.Entry) {
	g := &graphAudit{a: a, ns: ns, h: h}
	b, ok := a.Get(keys.GraphOf(ns, h.ID, h.Incarnation))
	if !ok {
		g.bad("a graph run without a graph")
		return
	}
	var input []byte
	var err error
	if g.graph, _, input, err = state.DecodeGraph(b); err != nil {
		return // reported as damaged
	}
	if h.Former != 0 && !a.Has(keys.JournalEntry(ns, h.ID, h.Former, 0)) || (h.Former != 0) != (h.Generation > 0) {
		g.bad("it continues incarnation %d in generation %d, and that has no journal", h.Former, h.Generation)
	}
	if h.Former != 0 {
		if former, ok := a.Get(keys.GraphOf(ns, h.ID, h.Former)); !ok || !bytes.Equal(former, b) {
			g.bad("it continues incarnation %d, whose graph or input is another", h.Former)
		}
	}
	if h.GraphAt != 0 && (h.Status.Terminal() || !a.Has(keys.DeadlineOf(keys.DeadlineGraph, h.GraphAt, ns, h.ID))) {
		g.bad("it continues at %d, and is %s or not in the index", h.GraphAt, h.Status)
	}
	if len(entries) > 0 {
		if s, ok := entries[0].Event.(journal.ExecutionStarted); ok && !bytes.Equal(s.Input, input) {
			g.bad("its input has %d bytes, its journal says %d", len(input), len(s.Input))
		}
	}
	rel, err := state.RelationOf(g.graph)
	if err != nil || !g.read() {
		return // reported as damaged
	}
	if g.replay, err = journal.NewReplay(id.PromiseID(h.ID), entries, journal.WithRetryBound(state.RetryBound)); err != nil {
		return // the journal is broken, and reported so
	}
	g.times(entries)
	g.signals(entries)
	g.children()
	running, waiting, unobserved := 0, 0, 0
	for n := range g.rows {
		row := &g.rows[n]
		g.row(n, row)
		switch {
		case row.Status == reduction.StatusRunning:
			running++
		case row.Status == reduction.StatusWaiting:
			waiting++
		case !row.Observed(h.Wave):
			unobserved++
		}
	}
	reduced := state.ReductionState(g.graph, g.rows, h.Wave)
	for n := range g.rows {
		// Every row's output counts: Definition 1 checks that only completed nodes have one.
		if row := &g.rows[n]; row.Observed(h.Wave) {
			if node := reduction.NodeID(g.graph.Nodes[n].Id); len(row.Output) > 0 {
				reduced.Outputs[node] = row.Output
			} else {
				delete(reduced.Outputs, node)
			}
		}
	}
	recovered, step, err := reduction.Recover(rel, reduced, nil)
	if err != nil {
		g.bad("%v", err)
		return
	}
	var frontier []reduction.NodeID
	if p, ok := step.(reduction.Progressing); ok {
		frontier = p.Frontier
	}
	for _, v := range reduction.WellFormed(rel, recovered, frontier) {
		g.bad("%v", v)
	}
	for n := range g.rows {
		// An entry is applied whole, so the stored state is closed.
		if node := reduction.NodeID(g.graph.Nodes[n].Id); recovered.Statuses[node].Kind == reduction.StatusFailed && g.rows[n].Status != reduction.StatusFailed {
			g.bad("node %q is %s, and comes after one that failed", node, g.rows[n].Status)
		}
	}
	phase := step.Phase()
	if last := len(entries) - 1; h.Status == journal.StatusCompleted && phase == reduction.PhaseCompleted {
		result := graph.SinkOutputs(g.graph, func(node string) ([]byte, bool) {
			output, ok := recovered.Outputs[reduction.NodeID(node)]
			return output, ok
		})
		if e, ok := entries[last].Event.(journal.ExecutionCompleted); ok && !bytes.Equal(e.Result, result) {
			g.bad("its journal ends with a result of %d bytes, its last nodes' outputs make another of %d", len(e.Result), len(result))
		}
	}
	switch {
	case h.Status.Terminal() && running+waiting+unobserved > 0:
		g.bad("it is %s: %d nodes run, %d wait, %d results are not observed", h.Status, running, waiting, unobserved)
	case h.Status == journal.StatusCompleted && phase != reduction.PhaseCompleted,
		h.Status == journal.StatusFailed && phase != reduction.PhaseFailed && phase != reduction.PhaseStuck:
		g.bad("it is %s, and its graph is %s", h.Status, phase)
	case h.Status == journal.StatusRunning && unobserved == 0 && (phase.Settled() || phase == reduction.PhaseStuck):
		g.bad("its graph is %s, and it has not ended", phase)
	case h.Status == journal.StatusRunning && running+waiting == 0 && h.GraphAt == 0:
		a.found(ns, h.ID, RuleStuck, "no node runs, and none waits: the graph is %s", phase)
	}
}

// read reads the rows; it returns false if one is damaged.
func (g *graphAudit) read() bool {
	a, whole := g.a, true
	g.rows = make([]state.NodeRow, len(g.graph.Nodes))
	for n := range g.rows {
		g.rows[n].Status = reduction.StatusPending
	}
	prefix := keys.NodePrefix(g.ns, g.h.ID, g.h.Incarnation)
	a.Scan(prefix, keys.After(prefix), func(key, value []byte) bool {
		n, err := state.NodeOfKey(key, prefix, len(g.rows))
		if err == nil {
			g.rows[n], err = state.DecodeRow(bytes.Clone(value))
		}
		whole = whole && err == nil
		return true
	})
	for n := range g.rows {
		row := &g.rows[n]
		if row.From == 0 {
			continue
		}
		b, ok := a.Get(keys.NodeOf(g.ns, g.h.ID, row.From, uint32(n)))
		former, err := state.DecodeRow(b)
		if !ok || err != nil || !row.Kept || row.From >= g.h.Incarnation || former.Status != reduction.StatusCompleted {
			g.bad("node %q has its output from incarnation %d, which has none", g.graph.Nodes[n].Id, row.From)
			continue
		}
		if len(row.Output) > 0 {
			g.bad("node %q has an output of its own, and one from incarnation %d", g.graph.Nodes[n].Id, row.From)
		}
		row.Output = former.Output
	}
	return whole
}

// signals compares the run's stored signals with the last deliveries in its journal.
func (g *graphAudit) signals(entries []journal.Entry) {
	last := map[string][]byte{}
	var names []string
	for _, e := range entries {
		if s, ok := e.Event.(journal.SignalDelivered); ok {
			if _, known := last[s.Name]; !known {
				names = append(names, s.Name)
			}
			last[s.Name] = state.DataOf(s.Payload)
		}
	}
	for _, name := range names {
		if kept, ok := g.a.Get(keys.LatchOf(g.ns, g.h.ID, g.h.Incarnation, name)); !ok || !bytes.Equal(kept, last[name]) {
			g.bad("signal %q was delivered, and its payload is not stored", name)
		}
	}
	prefix := keys.LatchPrefix(g.ns, g.h.ID, g.h.Incarnation)
	g.a.Scan(prefix, keys.After(prefix), func(key, _ []byte) bool {
		name, _, err := keys.CutString(key[len(prefix):])
		if _, known := last[name]; err == nil && !known {
			g.bad("signal %q is stored, and was never delivered", name)
		}
		return true
	})
}

// children checks that every operation of the journal belongs to one node.
func (g *graphAudit) children() {
	owners := make([]int, g.replay.State().NextChild())
	for n := range g.rows {
		row := &g.rows[n]
		if row.Child == 0 || row.Kept {
			continue
		}
		if uint64(row.Child) > uint64(len(owners)) {
			g.bad("node %q has promise %d, the journal knows %d", g.graph.Nodes[n].Id, row.Child-1, len(owners))
			continue
		}
		owners[row.Child-1]++
	}
	for k, n := range owners {
		if n != 1 {
			g.bad("operation %d of the journal belongs to %d nodes", k, n)
		}
	}
}

// row checks one node.
func (g *graphAudit) row(n int, row *state.NodeRow) {
	node := g.graph.Nodes[n]
	bad := func(format string, args ...any) {
		g.bad("node %q is %s: %s", node.Id, row.Status, fmt.Sprintf(format, args...))
	}
	open := row.Status == reduction.StatusRunning || row.Status == reduction.StatusWaiting
	switch {
	case row.Kept && row.Status != reduction.StatusCompleted && row.Status != reduction.StatusSkipped,
		row.Kept && (row.From != 0) != (row.Status == reduction.StatusCompleted), !row.Kept && row.From != 0:
		bad("kept from an earlier incarnation: %t, with the output of incarnation %d", row.Kept, row.From)
	case row.Propagated != (row.Status == reduction.StatusFailed && row.Child == 0):
		bad("by propagation: %t, started: %t", row.Propagated, row.Child != 0)
	case (row.Status == reduction.StatusWaiting) && row.Signal == "", row.RetryAt != 0 && row.Status != reduction.StatusRunning:
		bad("signal %q, next attempt at %d", row.Signal, row.RetryAt)
	case row.Wave > g.h.Wave+1 || row.Wave != 0 && !g.graph.Wave:
		bad("recorded in wave %d, the run is at %d", row.Wave, g.h.Wave)
	}
	g.waitsFor(n, row, bad)
	if !row.Observed(g.h.Wave) && (row.Status == reduction.StatusCompleted) != (len(row.Output) > 0) {
		bad("it has an output of %d bytes", len(row.Output))
	}
	if row.Kept || row.Child == 0 {
		if open || row.Child == 0 && (row.Status == reduction.StatusCompleted || row.Status == reduction.StatusSkipped) {
			bad("it was never started")
		}
		return
	}
	promise := id.PromiseID(row.Promise(g.h.ID))
	r, ok := g.replay.Lookup(promise)
	if !ok {
		return // reported by children
	}
	if !fitsKind(node, r) {
		bad("the journal has %s of %q for it", r.Call, r.Function)
	}
	dropped := row.Status == reduction.StatusPending
	switch {
	case (open || dropped) && r.Resolved:
		bad("the journal has its result")
	case !open && !dropped && !r.Resolved:
		bad("the journal has no result of it")
	case open && r.Call == journal.KindInvokeScheduled && row.RetryAt == 0 && r.Open != row.Attempt,
		row.RetryAt != 0 && (r.Open != 0 || r.Retries != row.Attempt || r.RetryAt != row.RetryAt):
		bad("attempt %d, the next at %d; the journal has attempt %d, %d retries, the next at %d",
			row.Attempt, row.RetryAt, r.Open, r.Retries, r.RetryAt)
	}
	p, ok := g.a.storedPromise(g.ns, string(promise))
	if !ok || p.Incarnation != g.h.Incarnation || open != (p.State == recovery.PromisePending) || p.Target != "" {
		bad("its promise %q is %s of incarnation %d", promise, p.State, p.Incarnation)
	}
	g.values(row, r, p, bad)
	if row.RetryAt != 0 {
		if !g.a.Has(keys.DeadlineOf(keys.DeadlineGraph, row.RetryAt, g.ns, string(promise))) {
			g.a.found(g.ns, g.h.ID, RuleDeadline, "node %q is to be tried again at %d, and that is not in the index", node.Id, row.RetryAt)
		}
		return
	}
	if r.Call != journal.KindInvokeScheduled || r.Invoke == journal.InvokeSignal {
		return
	}
	attempt, ok := g.a.storedHeader(g.ns, row.AttemptID(g.h.ID))
	if ok {
		g.a.startedWith(g.ns, attempt, g.h, r)
	}
	if underWay := ok && !attempt.Status.Terminal(); underWay != (row.Status == reduction.StatusRunning) ||
		ok && (attempt.ParentPromise != string(promise) || attempt.ParentIncarnation != g.h.Incarnation) {
		bad("its attempt %q is %s, for promise %q of incarnation %d", row.AttemptID(g.h.ID), attempt.Status, attempt.ParentPromise, attempt.ParentIncarnation)
	}
}

// times collects the times at which operations began and ended, from the journal.
func (g *graphAudit) times(entries []journal.Entry) {
	g.begun, g.done = map[id.PromiseID]int64{}, map[id.PromiseID]int64{}
	for _, e := range entries {
		switch ev := e.Event.(type) {
		case journal.InvokeScheduled:
			g.begun[ev.Promise] = e.Time
		case journal.TimerScheduled:
			g.begun[ev.Promise] = e.Time
		case journal.InvokeCompleted:
			g.done[ev.Promise] = e.Time
		case journal.TimerFired:
			g.done[ev.Promise] = e.Time
		}
	}
}

// waitsFor checks the signal of a node: its graph or its last attempt has named it.
func (g *graphAudit) waitsFor(n int, row *state.NodeRow, bad func(string, ...any)) {
	if kind, ok := g.graph.Nodes[n].Kind.(*perdurev1.GraphNode_Signal); ok {
		if started := row.Child != 0 && row.Status != reduction.StatusPending; started && row.Signal != kind.Signal.GetName() {
			bad("it waits for signal %q, the graph says %q", row.Signal, kind.Signal.GetName())
		}
		return
	}
	if row.Signal == "" || row.Kept || row.Child == 0 {
		return
	}
	attempt, ok := g.a.storedPromise(g.ns, row.AttemptID(g.h.ID))
	o, err := recovery.DecodeOutcome(attempt.Value)
	if !ok || err != nil || o.Failure == nil || o.Failure.Type != state.FailureSuspended ||
		row.Signal != o.Failure.Message && row.Signal != string(o.Failure.Details) {
		bad("it waits for signal %q, which its attempt %q did not ask for", row.Signal, row.AttemptID(g.h.ID))
	}
}

// values compares a node's result and times in its row with the journal and the promise.
func (g *graphAudit) values(row *state.NodeRow, r journal.Recorded, p recovery.Promise, bad func(string, ...any)) {
	timer := r.Call == journal.KindTimerScheduled
	invoked := r.Call == journal.KindInvokeScheduled
	if at := g.begun[r.Promise]; at != row.Started {
		bad("it began at %d, the journal says %d", row.Started, at)
	}
	if at, ended := g.done[r.Promise]; ended && at != row.Ended {
		bad("it ended at %d, the journal says %d", row.Ended, at)
	}
	if invoked && r.Resolved && p.State.Settled() && !bytes.Equal(r.Result, state.OutcomeOf(p)) {
		bad("the journal has a result of %d bytes, its promise, %s, another of %d", len(r.Result), p.State, len(state.OutcomeOf(p)))
	}
	if timer && (!p.Timer || p.TimeoutAt != r.FireAt || r.Resolved && p.State != recovery.PromiseResolved) {
		bad("the journal has a timer for %d, its promise, %s, has deadline %d", r.FireAt, p.State, p.TimeoutAt)
	}
	switch row.Status {
	case reduction.StatusCompleted:
		want := []byte("null")
		if invoked {
			want = state.DataOf(r.Result)
		}
		if p.State != recovery.PromiseResolved || !bytes.Equal(row.Output, want) || len(row.Failure) > 0 {
			bad("its output has %d bytes and its failure %d, the journal has %d, its promise is %s", len(row.Output), len(row.Failure), len(want), p.State)
		}
	case reduction.StatusFailed:
		if !bytes.Equal(row.Failure, r.Result) || p.State == recovery.PromiseResolved {
			bad("its failure has %d bytes, the journal has %d, its promise is %s", len(row.Failure), len(r.Result), p.State)
		}
	case reduction.StatusSkipped:
		if o, err := recovery.DecodeOutcome(r.Result); err == nil && o.Failure != nil && !bytes.Equal(row.Failure, r.Result) {
			bad("it was skipped for a failure of %d bytes, the journal has %d", len(row.Failure), len(r.Result))
		}
	case reduction.StatusRunning:
		if row.RetryAt != 0 && !bytes.Equal(row.Failure, r.LastError) {
			bad("its last attempt failed with %d bytes, the journal has %d", len(row.Failure), len(r.LastError))
		}
	}
}

// nodeRetry returns the time of the next attempt of the node with this promise; 0 if there is no such node or
// no next attempt.
func (a *auditor) nodeRetry(ns, promise string) int64 {
	const most = 8 // deadlines are in the order of time, so they alternate between runs
	parent, ok := id.PromiseID(promise).Parent()
	if !ok {
		return 0
	}
	run := state.Ref{Namespace: ns, ID: string(parent)}
	retries, known := a.runs[run]
	if !known {
		h, ok := a.storedHeader(ns, run.ID)
		if !ok || h.Kind != state.KindGraph {
			return 0
		}
		retries = map[string]int64{}
		prefix := keys.NodePrefix(ns, h.ID, h.Incarnation)
		a.Scan(prefix, keys.After(prefix), func(_, value []byte) bool {
			if row, err := state.DecodeRow(value); err == nil && row.RetryAt != 0 && row.Child != 0 && !row.Kept {
				retries[string(id.PromiseID(h.ID).Child(row.Child-1))] = row.RetryAt
			}
			return true
		})
		if len(a.runs) >= most || a.runs == nil {
			a.runs = map[state.Ref]map[string]int64{}
		}
		a.runs[run] = retries
	}
	return retries[promise]
}

// fitsKind reports whether a node's operation in the journal fits the node's kind.
func fitsKind(node *perdurev1.GraphNode, r journal.Recorded) bool {
	switch kind := node.Kind.(type) {
	case *perdurev1.GraphNode_Sleep:
		return r.Call == journal.KindTimerScheduled
	case *perdurev1.GraphNode_Signal:
		return r.Invoke == journal.InvokeSignal && r.Function == kind.Signal.GetName()
	case *perdurev1.GraphNode_Http:
		return r.Invoke == journal.InvokeHTTP && r.Function == state.FunctionHTTP
	case *perdurev1.GraphNode_Subgraph:
		return r.Invoke == journal.InvokeFunction && r.Function == state.FunctionGraph
	case *perdurev1.GraphNode_Function:
		return r.Invoke == journal.InvokeFunction && r.Function == kind.Function.GetFunction()
	}
	return false
}
