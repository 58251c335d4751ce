package machine

import (
	"bytes"
	"fmt"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/keys"
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
	return ok && h.Kind == KindGraph && a.has(keys.Of(keys.Promise, ns, string(promise)))
}

// lifeOf judges that what stands under a key belongs to the present or to an earlier life of a graph run.
func (a *auditor) lifeOf(key []byte) (ns string, h Header, incarnation uint64, rest []byte, ok bool) {
	ns, more, rest, ok := a.parts(key, 1)
	if !ok {
		return "", Header{}, 0, nil, false
	}
	incarnation, rest, err := keys.CutUint64(rest)
	if err != nil {
		a.damaged(ns, more[0], key, err.Error())
		return "", Header{}, 0, nil, false
	}
	h, ok = a.storedHeader(ns, more[0])
	if !ok || h.Kind != KindGraph || incarnation > h.Incarnation || incarnation < h.Incarnation && h.Life == 0 {
		a.found(ns, more[0], RuleGraph, "a %s of incarnation %d, and no such graph run", familyName(key), incarnation)
		return "", Header{}, 0, nil, false
	}
	return ns, h, incarnation, rest, true
}

// storedGraph judges the bytes of a graph.
func (a *auditor) storedGraph(key, value []byte) {
	ns, h, _, rest, ok := a.lifeOf(key)
	if !ok {
		return
	}
	if len(rest) > 0 {
		a.damaged(ns, h.ID, key, fmt.Sprintf("%d bytes too many", len(rest)))
	}
	if level := a.number(metaFeature); level < levelGraphs {
		a.found(ns, h.ID, RuleGraph, "a graph run in a state of feature level %d: programs that do not know it would take it", level)
	}
	g, spec, _, err := decodeGraph(bytes.Clone(value))
	if err == nil {
		_, err = relationOf(g)
	}
	if err != nil {
		a.damaged(ns, h.ID, key, err.Error())
		return
	}
	if again, err := wire.Marshal(g); err != nil || !bytes.Equal(again, spec) {
		a.damaged(ns, h.ID, key, "the graph is not written the one way there is")
	}
}

// node judges the bytes of a node.
func (a *auditor) node(key, value []byte) {
	ns, h, incarnation, _, ok := a.lifeOf(key)
	if !ok {
		return
	}
	nodes := 0
	b, _ := a.get(keys.GraphOf(ns, h.ID, incarnation))
	if g, _, _, err := decodeGraph(b); err == nil {
		nodes = len(g.Nodes)
	}
	if _, err := nodeOfKey(key, keys.NodePrefix(ns, h.ID, incarnation), nodes); err != nil {
		a.damaged(ns, h.ID, key, err.Error())
	}
	row, err := decodeRow(bytes.Clone(value))
	switch {
	case err != nil:
		a.damaged(ns, h.ID, key, err.Error())
	case !bytes.Equal(row.encode(), value):
		a.damaged(ns, h.ID, key, "the node is not written the one way there is")
	}
}

// latch judges the place of a signal that a run has got; its payload is judged with the journal.
func (a *auditor) latch(key, _ []byte) {
	ns, h, incarnation, rest, ok := a.lifeOf(key)
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

// graphAudit is one graph run while it is judged.
type graphAudit struct {
	a      *auditor
	ns     string
	h      Header
	graph  *perdurev1.Graph
	rows   []nodeRow
	replay *journal.Replay
	// begun and done are when the journal says that an operation was scheduled, and that it ended.
	begun, done map[id.PromiseID]int64
}

func (g *graphAudit) bad(format string, args ...any) {
	g.a.found(g.ns, g.h.ID, RuleGraph, format, args...)
}

// graphRun judges a graph run: its rows against its graph, its journal, its promises and its attempts, and its
// state by Definition 1.
func (a *auditor) graphRun(ns string, h Header, entries []journal.Entry) {
	g := &graphAudit{a: a, ns: ns, h: h}
	b, ok := a.get(keys.GraphOf(ns, h.ID, h.Incarnation))
	if !ok {
		g.bad("a graph run without a graph")
		return
	}
	var input []byte
	var err error
	if g.graph, _, input, err = decodeGraph(b); err != nil {
		return // said to be damaged
	}
	if h.Former != 0 && !a.has(keys.JournalEntry(ns, h.ID, h.Former, 0)) || (h.Former != 0) != (h.Life > 0) {
		g.bad("it goes on from incarnation %d in life %d, and that has no journal", h.Former, h.Life)
	}
	if h.Former != 0 {
		if former, ok := a.get(keys.GraphOf(ns, h.ID, h.Former)); !ok || !bytes.Equal(former, b) {
			g.bad("it goes on from incarnation %d, whose graph or input is another", h.Former)
		}
	}
	if h.GraphAt != 0 && (h.Status.Terminal() || !a.has(keys.DeadlineOf(keys.DueGraph, h.GraphAt, ns, h.ID))) {
		g.bad("it is to go on at %d, and is %s or not in the index", h.GraphAt, h.Status)
	}
	if len(entries) > 0 {
		if s, ok := entries[0].Event.(journal.ExecutionStarted); ok && !bytes.Equal(s.Input, input) {
			g.bad("its input has %d bytes, its journal says %d", len(input), len(s.Input))
		}
	}
	rel, err := relationOf(g.graph)
	if err != nil || !g.read() {
		return // said to be damaged
	}
	if g.replay, err = journal.NewReplay(id.PromiseID(h.ID), entries, journal.WithRetryBound(retryBound)); err != nil {
		return // the journal is broken, and said to be
	}
	g.times(entries)
	g.signals(entries)
	g.children()
	running, waiting, unobserved := 0, 0, 0
	for n := range g.rows {
		row := &g.rows[n]
		g.row(n, row)
		switch {
		case row.status == reduction.StatusRunning:
			running++
		case row.status == reduction.StatusWaiting:
			waiting++
		case !row.observed(h.Wave):
			unobserved++
		}
	}
	state := stateOf(g.graph, g.rows, h.Wave)
	for n := range g.rows {
		// An output counts wherever it stands: that only completed nodes have one is for Definition 1 to say.
		if row := &g.rows[n]; row.observed(h.Wave) {
			if node := reduction.NodeID(g.graph.Nodes[n].Id); len(row.output) > 0 {
				state.Outputs[node] = row.output
			} else {
				delete(state.Outputs, node)
			}
		}
	}
	recovered, step, err := reduction.Recover(rel, state, nil)
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
		// An entry is applied whole, so what is stored is closed.
		if node := reduction.NodeID(g.graph.Nodes[n].Id); recovered.Statuses[node].Kind == reduction.StatusFailed && g.rows[n].status != reduction.StatusFailed {
			g.bad("node %q is %s, and comes after one that failed", node, g.rows[n].status)
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
		g.bad("its graph is %s, and it goes on", phase)
	case h.Status == journal.StatusRunning && running+waiting == 0 && h.GraphAt == 0:
		a.found(ns, h.ID, RuleStuck, "no node runs, and none waits: the graph is %s", phase)
	}
}

// read reads the rows; it answers false if one is damaged.
func (g *graphAudit) read() bool {
	a, whole := g.a, true
	g.rows = make([]nodeRow, len(g.graph.Nodes))
	for n := range g.rows {
		g.rows[n].status = reduction.StatusPending
	}
	prefix := keys.NodePrefix(g.ns, g.h.ID, g.h.Incarnation)
	a.scan(prefix, keys.After(prefix), func(key, value []byte) bool {
		n, err := nodeOfKey(key, prefix, len(g.rows))
		if err == nil {
			g.rows[n], err = decodeRow(bytes.Clone(value))
		}
		whole = whole && err == nil
		return true
	})
	for n := range g.rows {
		row := &g.rows[n]
		if row.from == 0 {
			continue
		}
		b, ok := a.get(keys.NodeOf(g.ns, g.h.ID, row.from, uint32(n)))
		former, err := decodeRow(b)
		if !ok || err != nil || !row.kept || row.from >= g.h.Incarnation || former.status != reduction.StatusCompleted {
			g.bad("node %q has its output from incarnation %d, which has none", g.graph.Nodes[n].Id, row.from)
			continue
		}
		if len(row.output) > 0 {
			g.bad("node %q has an output of its own, and one from incarnation %d", g.graph.Nodes[n].Id, row.from)
		}
		row.output = former.output
	}
	return whole
}

// signals compares what the run keeps of signals with what its journal says was delivered last.
func (g *graphAudit) signals(entries []journal.Entry) {
	last := map[string][]byte{}
	var names []string
	for _, e := range entries {
		if s, ok := e.Event.(journal.SignalDelivered); ok {
			if _, known := last[s.Name]; !known {
				names = append(names, s.Name)
			}
			last[s.Name] = dataOf(s.Payload)
		}
	}
	for _, name := range names {
		if kept, ok := g.a.get(keys.LatchOf(g.ns, g.h.ID, g.h.Incarnation, name)); !ok || !bytes.Equal(kept, last[name]) {
			g.bad("signal %q was delivered, and its payload is not kept", name)
		}
	}
	prefix := keys.LatchPrefix(g.ns, g.h.ID, g.h.Incarnation)
	g.a.scan(prefix, keys.After(prefix), func(key, _ []byte) bool {
		name, _, err := keys.CutString(key[len(prefix):])
		if _, known := last[name]; err == nil && !known {
			g.bad("signal %q is kept, and was never delivered", name)
		}
		return true
	})
}

// children judges that every operation of the journal belongs to one node.
func (g *graphAudit) children() {
	owners := make([]int, g.replay.State().NextChild())
	for n := range g.rows {
		row := &g.rows[n]
		if row.child == 0 || row.kept {
			continue
		}
		if uint64(row.child) > uint64(len(owners)) {
			g.bad("node %q has promise %d, the journal knows %d", g.graph.Nodes[n].Id, row.child-1, len(owners))
			continue
		}
		owners[row.child-1]++
	}
	for k, n := range owners {
		if n != 1 {
			g.bad("operation %d of the journal belongs to %d nodes", k, n)
		}
	}
}

// row judges one node.
func (g *graphAudit) row(n int, row *nodeRow) {
	node := g.graph.Nodes[n]
	bad := func(format string, args ...any) {
		g.bad("node %q is %s: %s", node.Id, row.status, fmt.Sprintf(format, args...))
	}
	open := row.status == reduction.StatusRunning || row.status == reduction.StatusWaiting
	switch {
	case row.kept && row.status != reduction.StatusCompleted && row.status != reduction.StatusSkipped,
		row.kept && (row.from != 0) != (row.status == reduction.StatusCompleted), !row.kept && row.from != 0:
		bad("kept from an earlier life: %t, with the output of incarnation %d", row.kept, row.from)
	case row.propagated != (row.status == reduction.StatusFailed && row.child == 0):
		bad("by propagation: %t, started: %t", row.propagated, row.child != 0)
	case (row.status == reduction.StatusWaiting) && row.signal == "", row.retryAt != 0 && row.status != reduction.StatusRunning:
		bad("signal %q, next attempt at %d", row.signal, row.retryAt)
	case row.wave > g.h.Wave+1 || row.wave != 0 && !g.graph.Wave:
		bad("recorded in wave %d, the run is at %d", row.wave, g.h.Wave)
	}
	g.waitsFor(n, row, bad)
	if !row.observed(g.h.Wave) && (row.status == reduction.StatusCompleted) != (len(row.output) > 0) {
		bad("it has an output of %d bytes", len(row.output))
	}
	if row.kept || row.child == 0 {
		if open || row.child == 0 && (row.status == reduction.StatusCompleted || row.status == reduction.StatusSkipped) {
			bad("it was never started")
		}
		return
	}
	promise := id.PromiseID(row.promise(g.h.ID))
	r, ok := g.replay.Lookup(promise)
	if !ok {
		return // said by children
	}
	if !fitsKind(node, r) {
		bad("the journal has %s of %q for it", r.Call, r.Function)
	}
	dropped := row.status == reduction.StatusPending
	switch {
	case (open || dropped) && r.Resolved:
		bad("the journal has its result")
	case !open && !dropped && !r.Resolved:
		bad("the journal has no result of it")
	case open && r.Call == journal.KindInvokeScheduled && row.retryAt == 0 && r.Open != row.attempt,
		row.retryAt != 0 && (r.Open != 0 || r.Retries != row.attempt || r.RetryAt != row.retryAt):
		bad("attempt %d, the next at %d; the journal has attempt %d, %d retries, the next at %d",
			row.attempt, row.retryAt, r.Open, r.Retries, r.RetryAt)
	}
	p, ok := g.a.storedPromise(g.ns, string(promise))
	if !ok || p.Incarnation != g.h.Incarnation || open != (p.State == recovery.PromisePending) || p.Target != "" {
		bad("its promise %q is %s of incarnation %d", promise, p.State, p.Incarnation)
	}
	g.values(row, r, p, bad)
	if row.retryAt != 0 {
		if !g.a.has(keys.DeadlineOf(keys.DueGraph, row.retryAt, g.ns, string(promise))) {
			g.a.found(g.ns, g.h.ID, RuleDeadline, "node %q is to be tried again at %d, and that is not in the index", node.Id, row.retryAt)
		}
		return
	}
	if r.Call != journal.KindInvokeScheduled || r.Invoke == journal.InvokeSignal {
		return
	}
	attempt, ok := g.a.storedHeader(g.ns, row.attemptID(g.h.ID))
	if ok {
		g.a.startedWith(g.ns, attempt, g.h, r)
	}
	if underWay := ok && !attempt.Status.Terminal(); underWay != (row.status == reduction.StatusRunning) ||
		ok && (attempt.ParentPromise != string(promise) || attempt.ParentIncarnation != g.h.Incarnation) {
		bad("its attempt %q is %s, for promise %q of incarnation %d", row.attemptID(g.h.ID), attempt.Status, attempt.ParentPromise, attempt.ParentIncarnation)
	}
}

// times notes when the journal says that operations began and ended.
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

// waitsFor judges the signal of a node: that of its graph, or what its last attempt has asked for.
func (g *graphAudit) waitsFor(n int, row *nodeRow, bad func(string, ...any)) {
	if kind, ok := g.graph.Nodes[n].Kind.(*perdurev1.GraphNode_Signal); ok {
		if started := row.child != 0 && row.status != reduction.StatusPending; started && row.signal != kind.Signal.GetName() {
			bad("it waits for signal %q, the graph says %q", row.signal, kind.Signal.GetName())
		}
		return
	}
	if row.signal == "" || row.kept || row.child == 0 {
		return
	}
	attempt, ok := g.a.storedPromise(g.ns, row.attemptID(g.h.ID))
	o, err := recovery.DecodeOutcome(attempt.Value)
	if !ok || err != nil || o.Failure == nil || o.Failure.Type != FailureSuspended ||
		row.signal != o.Failure.Message && row.signal != string(o.Failure.Details) {
		bad("it waits for signal %q, which its attempt %q did not ask for", row.signal, row.attemptID(g.h.ID))
	}
}

// values compares what a row has of a node's result, and when it was, with its journal and its promise.
func (g *graphAudit) values(row *nodeRow, r journal.Recorded, p recovery.Promise, bad func(string, ...any)) {
	timer := r.Call == journal.KindTimerScheduled
	invoked := r.Call == journal.KindInvokeScheduled
	if at := g.begun[r.Promise]; at != row.started {
		bad("it began at %d, the journal says %d", row.started, at)
	}
	if at, ended := g.done[r.Promise]; ended && at != row.ended {
		bad("it ended at %d, the journal says %d", row.ended, at)
	}
	if invoked && r.Resolved && p.State.Settled() && !bytes.Equal(r.Result, outcomeOf(p)) {
		bad("the journal has a result of %d bytes, its promise, %s, another of %d", len(r.Result), p.State, len(outcomeOf(p)))
	}
	if timer && (!p.Timer || p.TimeoutAt != r.FireAt || r.Resolved && p.State != recovery.PromiseResolved) {
		bad("the journal has a timer due at %d, its promise, %s, is due at %d", r.FireAt, p.State, p.TimeoutAt)
	}
	switch row.status {
	case reduction.StatusCompleted:
		want := []byte("null")
		if invoked {
			want = dataOf(r.Result)
		}
		if p.State != recovery.PromiseResolved || !bytes.Equal(row.output, want) || len(row.failure) > 0 {
			bad("its output has %d bytes and its failure %d, the journal has %d, its promise is %s", len(row.output), len(row.failure), len(want), p.State)
		}
	case reduction.StatusFailed:
		if !bytes.Equal(row.failure, r.Result) || p.State == recovery.PromiseResolved {
			bad("its failure has %d bytes, the journal has %d, its promise is %s", len(row.failure), len(r.Result), p.State)
		}
	case reduction.StatusSkipped:
		if o, err := recovery.DecodeOutcome(r.Result); err == nil && o.Failure != nil && !bytes.Equal(row.failure, r.Result) {
			bad("it was skipped for a failure of %d bytes, the journal has %d", len(row.failure), len(r.Result))
		}
	case reduction.StatusRunning:
		if row.retryAt != 0 && !bytes.Equal(row.failure, r.LastError) {
			bad("its last attempt failed with %d bytes, the journal has %d", len(row.failure), len(r.LastError))
		}
	}
}

// nodeRetry is when the node whose promise this is gets its next attempt; 0 if it is none, or gets none.
func (a *auditor) nodeRetry(ns, promise string) int64 {
	const most = 8 // deadlines are in the order of time, so they alternate between runs
	parent, ok := id.PromiseID(promise).Parent()
	if !ok {
		return 0
	}
	run := Ref{ns, string(parent)}
	retries, known := a.runs[run]
	if !known {
		h, ok := a.storedHeader(ns, run.ID)
		if !ok || h.Kind != KindGraph {
			return 0
		}
		retries = map[string]int64{}
		prefix := keys.NodePrefix(ns, h.ID, h.Incarnation)
		a.scan(prefix, keys.After(prefix), func(_, value []byte) bool {
			if row, err := decodeRow(value); err == nil && row.retryAt != 0 && row.child != 0 && !row.kept {
				retries[string(id.PromiseID(h.ID).Child(row.child-1))] = row.retryAt
			}
			return true
		})
		if len(a.runs) >= most || a.runs == nil {
			a.runs = map[Ref]map[string]int64{}
		}
		a.runs[run] = retries
	}
	return retries[promise]
}

// fitsKind reports whether a journal has for a node what its kind asks for.
func fitsKind(node *perdurev1.GraphNode, r journal.Recorded) bool {
	switch kind := node.Kind.(type) {
	case *perdurev1.GraphNode_Sleep:
		return r.Call == journal.KindTimerScheduled
	case *perdurev1.GraphNode_Signal:
		return r.Invoke == journal.InvokeSignal && r.Function == kind.Signal.GetName()
	case *perdurev1.GraphNode_Http:
		return r.Invoke == journal.InvokeHTTP && r.Function == functionOfHTTP
	case *perdurev1.GraphNode_Subgraph:
		return r.Invoke == journal.InvokeFunction && r.Function == functionOfGraph
	case *perdurev1.GraphNode_Function:
		return r.Invoke == journal.InvokeFunction && r.Function == kind.Function.GetFunction()
	}
	return false
}
