package machine

import (
	"strconv"
	"strings"

	"perdure/fsm/audit"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
	"perdure/graph"
	"perdure/id"
	"perdure/journal"
	"perdure/recovery"
	"perdure/reduction"

	perdurev1 "perdure/api/perdure/v1"
)

// startsAtOnce bounds the nodes that one command starts; a run with more continues at the next tick.
const startsAtOnce = 128

// advance does all pending work of a run: it processes ended attempts, starts startable nodes, observes a
// finished wave, and ends a settled run. Attempts that end during advance are processed by the same loop, so
// recursion is at most as deep as graphs are nested.
func (t *txn) advance(ex *execution) {
	r := t.graph(ex)
	if r.busy {
		return
	}
	r.busy = true
	for !ex.h.Status.Terminal() && t.step(ex, r) {
	}
	r.forget()
}

// step does the next piece of work; it returns false when there is none.
func (t *txn) step(ex *execution, r *graphRun) bool {
	if r.taken < len(r.ended) {
		p := r.ended[r.taken]
		r.taken++
		t.attemptOver(ex, r, p)
		return true
	}
	if ex.h.Status == journal.StatusCancelling {
		if r.counts.attempts == 0 {
			t.mustNot(ex, t.cancelled(ex, ex.endReason("cancelled")))
		}
		return false
	}
	if n, ok := r.next(); ok {
		if t.graphStarts >= startsAtOnce {
			t.continueLater(ex)
			return false
		}
		t.graphStarts++
		t.startNode(ex, r, n)
		return true
	}
	if len(r.unobserved) > 0 {
		if r.counts.active > 0 {
			return false
		}
		t.endWave(ex, r)
		return true
	}
	t.conclude(ex, r)
	return false
}

// mustNot halts the replica on an error that no sound run can cause: a defect, or damage.
func (t *txn) mustNot(ex *execution, err error) {
	switch err.(type) {
	case nil:
	case *state.CorruptError, *audit.InvariantError, *journal.Violation:
		panic(state.Fault{Err: err})
	default:
		panic(state.Fault{Err: &audit.InvariantError{Namespace: ex.ns, ID: ex.h.ID, Rule: audit.RuleGraph, Detail: err.Error()}})
	}
}

// continueLater schedules the run to continue at the next tick.
func (t *txn) continueLater(ex *execution) {
	if ex.h.GraphAt != 0 {
		return
	}
	ex.h.GraphAt, ex.dirty = max(t.now, 1), true
	t.put(keys.DeadlineOf(keys.DeadlineGraph, ex.h.GraphAt, ex.ns, ex.h.ID), []byte{})
	t.fx.expiration(ex.h.GraphAt)
}

// expireGraph runs an expiration of graphs: a run continues, or a node gets its next attempt.
func (t *txn) expireGraph(ns, objectID string) {
	if ex, ok := t.execution(ns, objectID); ok {
		if ex.h.Kind != state.KindGraph || ex.h.GraphAt == 0 || ex.h.GraphAt > t.now {
			return
		}
		t.remove(keys.DeadlineOf(keys.DeadlineGraph, ex.h.GraphAt, ns, objectID))
		ex.h.GraphAt, ex.dirty = 0, true
		t.advance(ex)
		return
	}
	run, ok := state.ParentOf(objectID)
	if !ok {
		return
	}
	t.runExpirations(ns, run)
	ex, ok := t.execution(ns, run)
	if !ok || ex.h.Kind != state.KindGraph || ex.h.Status.Terminal() {
		return
	}
	r := t.graph(ex)
	if n, ok := r.nodeOf(id.PromiseID(objectID)); ok {
		t.retryNode(ex, r, n)
	}
}

// nodeOf is the node of a promise of the run.
func (r *graphRun) nodeOf(promise id.PromiseID) (int32, bool) {
	k, ok := promise.Last()
	if !ok || uint64(k) >= uint64(len(r.byChild)) || r.byChild[k] < 0 {
		return 0, false
	}
	return r.byChild[k], true
}

// attemptEnded processes the end of an attempt, whose promise is settled.
func (t *txn) attemptEnded(attempt *execution, p recovery.Promise) {
	ns, run, incarnation := attempt.ns, attempt.h.Parent, attempt.h.ParentIncarnation
	// The run's own deadline may have expired as well: then the run ends and the result comes too late.
	t.runExpirations(ns, run)
	ex, ok := t.execution(ns, run)
	if !ok || ex.h.Kind != state.KindGraph || ex.h.Status.Terminal() || incarnation != ex.h.Incarnation {
		return
	}
	r := t.graph(ex)
	r.ended = append(r.ended, p)
	t.advance(ex)
}

// attemptOver decides from an attempt's end how its node continues.
func (t *txn) attemptOver(ex *execution, r *graphRun, p recovery.Promise) {
	promise, _ := id.PromiseID(p.ID).Parent()
	n, ok := r.nodeOf(promise)
	if !ok {
		return
	}
	row := r.rows[n]
	if row.Status != reduction.StatusRunning || row.RetryAt != 0 || row.AttemptID(ex.h.ID) != p.ID {
		return
	}
	outcome := state.OutcomeOf(p)
	if p.State == recovery.PromiseResolved {
		t.endNode(ex, r, n, reduction.Succeeded{Output: state.DataOf(outcome)}, recovery.PromiseResolved, outcome, nil)
		return
	}
	if p.State == recovery.PromiseRejectedCanceled && ex.h.Status == journal.StatusCancelling {
		t.dropNode(ex, r, n, "cancelled")
		return
	}
	failure := recovery.Failure{}
	if o, err := recovery.DecodeOutcome(outcome); err == nil && o.Failure != nil {
		failure = *o.Failure
	}
	result := reduction.Outcome(reduction.NodeFailed{})
	switch {
	case p.State == recovery.PromiseRejectedTimedout:
		result = reduction.NodeTimedOut{}
	case p.State == recovery.PromiseRejectedCanceled:
		// A caller cancelled the attempt and not the run.
	case failure.Type == state.FailureSkipped:
		t.endNode(ex, r, n, reduction.Skipped{}, recovery.PromiseResolved, nullOutcome(), skippedBytes(failure.Message))
		return
	case failure.Type == state.FailureSuspended:
		signal := failure.Message
		if signal == "" {
			signal = string(failure.Details)
		}
		if signal != "" {
			t.suspendNode(ex, r, n, signal)
			return
		}
	}
	if ex.h.Status == journal.StatusRunning && !failure.NonRetryable && row.Attempt < attemptsOf(r.node(n)) {
		row.RetryAt, row.Failure = t.now+pauseOf(r.node(n), row.Attempt), outcome
		t.must(ex, journal.InvokeRetrying{Promise: promise, FailedAttempt: row.Attempt, Error: outcome, RetryAt: row.RetryAt})
		t.putRow(ex, n, row)
		t.put(keys.DeadlineOf(keys.DeadlineGraph, row.RetryAt, ex.ns, string(promise)), []byte{})
		t.fx.expiration(row.RetryAt)
		return
	}
	t.endNode(ex, r, n, result, recovery.PromiseRejected, outcome, outcome)
}

// maxReason bounds the stored reason of a skipped node, in bytes.
const maxReason = 1000

// skippedBytes encodes a skipped node's own reason for its row.
func skippedBytes(reason string) []byte {
	if reason == "" {
		return nil
	}
	return state.EncodeFailure(state.FailureSkipped, strings.ToValidUTF8(reason[:min(len(reason), maxReason)], ""))
}

func nullOutcome() []byte { return recovery.AppendOutcome(nil, recovery.Outcome{Data: []byte("null")}) }

// attemptsOf is how many attempts a node has in all.
func attemptsOf(n *perdurev1.GraphNode) uint32 {
	return min(max(n.GetRetry().GetAttempts(), 1), state.AttemptsPerGeneration)
}

func policyOf(n *perdurev1.GraphNode) string {
	if attemptsOf(n) == 1 {
		return "attempts=1"
	}
	return "attempts=" + strconv.FormatUint(uint64(attemptsOf(n)), 10)
}

// pauseOf is the pause after an attempt, in milliseconds.
func pauseOf(n *perdurev1.GraphNode, attempt uint32) int64 {
	p := n.GetRetry()
	return state.Retry{InitialMS: p.GetInitialMs(), MaxMS: p.GetMaxMs(), FactorPercent: p.GetFactorPercent()}.Pause(attempt)
}

// endNode records the end of a node that has a promise and an open invocation. why is the reason that its row
// stores, if any.
func (t *txn) endNode(ex *execution, r *graphRun, n int32, o reduction.Outcome, to recovery.PromiseState, outcome, why []byte) {
	promise := id.PromiseID(r.rows[n].Promise(ex.h.ID))
	t.settleNode(ex, promise, to, outcome)
	inv, _ := ex.j.Invoke(promise)
	t.must(ex, journal.InvokeCompleted{Promise: promise, Result: outcome, Attempt: inv.Open})
	t.result(ex, r, n, o, why)
}

// settleNode settles the promise of a node, unless its deadline has.
func (t *txn) settleNode(ex *execution, promise id.PromiseID, to recovery.PromiseState, value []byte) {
	s := t.store(ex.ns)
	st := recovery.TimeoutPromise(s, t.now, recovery.Ref{ID: string(promise)})
	if !st.Changed {
		var err error
		st, err = recovery.Settle(s, t.now, recovery.Ref{ID: string(promise)}, to, value)
		t.mustNot(ex, err)
	}
	if st.Changed {
		t.notify(ex.ns, st)
	}
}

// result writes a node's result, as its policy maps it, and observes it unless the graph runs in waves.
func (t *txn) result(ex *execution, r *graphRun, n int32, o reduction.Outcome, failure []byte) {
	meant := reduction.Policy(r.node(n).OnFailure).Translate(o)
	row := r.rows[n]
	row.Status, row.Failure, row.Ended, row.RetryAt = meant.Target().Kind, failure, t.now, 0
	if done, ok := meant.(reduction.Succeeded); ok {
		row.Output = done.Output
	}
	if r.graph.Wave {
		row.Wave = ex.h.Wave + 1
		t.putRow(ex, n, row)
		r.unobserved = append(r.unobserved, n)
		return
	}
	t.putRow(ex, n, row)
	t.observe(ex, r, []int32{n})
}

// endWave observes all results of a wave together.
func (t *txn) endWave(ex *execution, r *graphRun) {
	nodes := slicesSorted(r.unobserved)
	r.unobserved = nil
	ex.h.Wave++
	ex.dirty = true
	t.observe(ex, r, nodes)
}

// observe feeds results from the rows to the reduction: accumulate, close, and find startable nodes.
func (t *txn) observe(ex *execution, r *graphRun, nodes []int32) {
	var taken, results []reduction.Result
	var signals []int32
	for _, n := range nodes {
		row, node := &r.rows[n], r.name(n)
		waits := r.engine.Status(node).Kind == reduction.StatusWaiting
		switch row.Status {
		case reduction.StatusCompleted:
			if waits {
				signals = append(signals, n)
				continue
			}
			results = append(results, reduction.Result{Node: node, Outcome: reduction.Succeeded{Output: row.Output}})
		case reduction.StatusSkipped:
			if waits {
				// A wait ends by its signal, by failure, or by withdrawal.
				taken = append(taken, reduction.Result{Node: node, Outcome: reduction.NodeCancelled{}})
			}
			results = append(results, reduction.Result{Node: node, Outcome: reduction.Skipped{}})
		default:
			results = append(results, reduction.Result{Node: node, Outcome: reduction.NodeFailed{}})
		}
	}
	for _, batch := range [][]reduction.Result{taken, results} {
		if len(batch) > 0 {
			delta, err := r.engine.Apply(batch...)
			t.mustNot(ex, err)
			t.follow(ex, r, delta)
		}
	}
	for _, n := range signals {
		delta, err := r.engine.Resolve(r.name(n), r.rows[n].Signal, r.rows[n].Output)
		t.mustNot(ex, err)
		t.follow(ex, r, delta)
	}
	for _, n := range nodes {
		if row := r.rows[n]; row.Output != nil {
			row.Output = nil
			r.remember(n, row)
		}
	}
}

// follow processes the other nodes that a call of the reduction has changed.
func (t *txn) follow(ex *execution, r *graphRun, delta reduction.Delta) {
	for _, c := range delta.Changed {
		n := r.index(c.Node)
		if row := r.rows[n]; c.To.Kind == reduction.StatusFailed && row.Status != reduction.StatusFailed {
			row.Status, row.Propagated, row.Ended = reduction.StatusFailed, true, t.now
			t.putRow(ex, n, row)
			r.mayStart(n, false)
		}
	}
	for _, node := range delta.Ready {
		if n := r.index(node); r.rows[n].Status == reduction.StatusPending {
			r.mayStart(n, true)
		}
	}
}

// conclude ends a settled run.
func (t *txn) conclude(ex *execution, r *graphRun) {
	switch r.engine.Phase() {
	case reduction.PhaseCompleted:
		data := r.result()
		t.must(ex, journal.ExecutionCompleted{Result: data})
		t.mustNot(ex, t.finish(ex, recovery.PromiseResolved, recovery.AppendOutcome(nil, recovery.Outcome{Data: data})))
	case reduction.PhaseFailed:
		t.failGraph(ex, state.FailureGraph, r.failures())
	case reduction.PhaseStuck:
		why := "nothing can start, and nothing is waited for"
		if stuck, ok := r.engine.Classify().(reduction.Stuck); ok {
			why += ": " + stuck.Diagnosis.String()
		}
		t.failGraph(ex, state.FailureStuck, bounded(why))
	}
}

func (t *txn) failGraph(ex *execution, kind, message string) {
	failure := state.EncodeFailure(kind, message)
	t.must(ex, journal.ExecutionFailed{Error: failure})
	t.mustNot(ex, t.finish(ex, recovery.PromiseRejected, failure))
}

// maxMessage bounds a failure's message, in bytes.
const maxMessage = 2048

// bounded returns as much of a failure's message as is stored.
func bounded(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxMessage)], "") }

// result is the run's result: see graph.SinkOutputs.
func (r *graphRun) result() []byte {
	nodes := r.rel.Sinks()
	sinks := make([]string, len(nodes))
	for i, node := range nodes {
		sinks[i] = string(node)
	}
	return graph.OutputsOf(sinks, r.outputOf)
}

// outputOf is the output of a node that has one.
func (r *graphRun) outputOf(node string) ([]byte, bool) {
	return r.engine.Output(reduction.NodeID(node))
}

// failures names the nodes that failed on their own, not by propagation.
func (r *graphRun) failures() string {
	const most = 10
	var named []string
	all := 0
	for n := range r.rows {
		row := &r.rows[n]
		if row.Status != reduction.StatusFailed || row.Propagated {
			continue
		}
		if all++; all > most {
			continue
		}
		what := "node " + strconv.Quote(r.graph.Nodes[n].Id)
		if f := wire.EncodeFailure(row.Failure); len(row.Failure) > 0 {
			what += " (" + strings.ToValidUTF8(f.Type[:min(len(f.Type), 100)], "")
			if f.Message != "" {
				what += ": " + strings.ToValidUTF8(f.Message[:min(len(f.Message), 200)], "")
			}
			what += ")"
		}
		named = append(named, what)
	}
	text := strings.Join(named, ", ") + " failed"
	if all > most {
		text = strings.Join(named, ", ") + " and " + strconv.Itoa(all-most) + " more failed"
	}
	return bounded(text)
}
