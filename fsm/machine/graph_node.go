package machine

import (
	"encoding/json"
	"fmt"
	"slices"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/graph"
	"perdure/id"
	"perdure/journal"
	"perdure/recovery"
	"perdure/reduction"

	perdurev1 "perdure/api/perdure/v1"
)

func slicesSorted(list []int32) []int32 {
	out := slices.Clone(list)
	slices.Sort(out)
	return out
}

// startNode creates a node's promise and begins its work.
func (t *txn) startNode(ex *execution, r *graphRun, n int32) {
	node, k := r.node(n), ex.j.NextChild()
	promise := id.PromiseID(ex.h.ID).Child(k)
	row := state.NodeRow{Status: reduction.StatusRunning, Child: k + 1, Generation: ex.h.Generation, Attempt: 1, Started: t.now}
	r.mayStart(n, false)
	for uint32(len(r.byChild)) < k {
		r.byChild = append(r.byChild, -1)
	}
	r.byChild = append(r.byChild, n)
	switch kind := node.Kind.(type) {
	case *perdurev1.GraphNode_Sleep:
		t.startSleep(ex, r, n, row, promise, kind.Sleep.GetDurationMs())
	case *perdurev1.GraphNode_Signal:
		t.startWait(ex, r, n, row, promise, kind.Signal.GetName())
	default:
		t.startWork(ex, r, n, row, promise)
	}
}

// nodePromise creates the promise of a node and replaces one of an earlier incarnation.
func (t *txn) nodePromise(ex *execution, req recovery.CreateRequest) recovery.Promise {
	s := t.store(ex.ns)
	if ex.run.alone {
		t.noPromise(ex.ns, req.ID)
	}
	if old, ok := s.Promise(req.ID); ok && old.Incarnation != ex.h.Incarnation && old.State.Settled() {
		s.remove(req.ID)
	}
	req.Incarnation = ex.h.Incarnation
	made, _, err := recovery.Create(s, t.now, req, retryMS)
	if err == nil && !made.New {
		err = fmt.Errorf("fsm: the promise %q of a node is there already", req.ID)
	}
	t.mustNot(ex, err)
	return made.Promise
}

// engineStart marks a node as running in the reduction.
func (t *txn) engineStart(ex *execution, r *graphRun, n int32) {
	_, err := r.engine.Start(r.name(n))
	t.mustNot(ex, err)
}

func (t *txn) startSleep(ex *execution, r *graphRun, n int32, row state.NodeRow, promise id.PromiseID, duration int64) {
	duration = min(max(duration, 0), state.Never-1-t.now)
	at := t.now + duration
	t.must(ex, journal.TimerScheduled{Promise: promise, Duration: duration, FireAt: at})
	t.engineStart(ex, r, n)
	t.putRow(ex, n, row)
	if p := t.nodePromise(ex, recovery.CreateRequest{ID: string(promise), Timer: true, TimeoutAt: at}); p.State.Settled() {
		t.must(ex, journal.TimerFired{Promise: promise})
		t.result(ex, r, n, reduction.Succeeded{Output: []byte("null")}, nil)
	}
}

func (t *txn) startWait(ex *execution, r *graphRun, n int32, row state.NodeRow, promise id.PromiseID, signal string) {
	t.must(ex, journal.InvokeScheduled{Promise: promise, Invoke: journal.InvokeSignal, Function: signal, RetryPolicy: "attempts=1"})
	t.must(ex, journal.InvokeStarted{Promise: promise, Attempt: 1})
	timeout := t.deadline(r.node(n).TimeoutMs)
	if timeout == 0 {
		timeout = state.Never
	}
	t.nodePromise(ex, recovery.CreateRequest{ID: string(promise), External: true, TimeoutAt: timeout})
	r.remember(n, row)
	t.suspendNode(ex, r, n, signal)
}

// suspendNode makes a node wait for a signal. An earlier delivery of it ends the wait at once.
func (t *txn) suspendNode(ex *execution, r *graphRun, n int32, signal string) {
	_, err := r.engine.Apply(reduction.Result{Node: r.name(n), Outcome: reduction.SuspendedOn{Signal: signal}})
	t.mustNot(ex, err)
	row := r.rows[n]
	row.Status, row.Signal = reduction.StatusWaiting, signal
	t.putRow(ex, n, row)
	if payload, ok := t.get(keys.LatchOf(ex.ns, ex.h.ID, ex.h.Incarnation, signal)); ok {
		t.signalled(ex, r, n, payload)
	}
}

// startWork starts a node's work: a function, an HTTP request, or a graph of its own.
func (t *txn) startWork(ex *execution, r *graphRun, n int32, row state.NodeRow, promise id.PromiseID) {
	input, err := r.inputOf(n, promise)
	if err == nil && len(input) > graph.MaxInputBytes {
		err = fmt.Errorf("its input has %d bytes, the most is %d", len(input), graph.MaxInputBytes)
	}
	if err != nil {
		input = nil
	}
	scheduled := journal.InvokeScheduled{Promise: promise, Invoke: journal.InvokeFunction, Input: input, RetryPolicy: policyOf(r.node(n))}
	switch kind := r.node(n).Kind.(type) {
	case *perdurev1.GraphNode_Function:
		scheduled.Function = kind.Function.GetFunction()
	case *perdurev1.GraphNode_Http:
		scheduled.Invoke, scheduled.Function = journal.InvokeHTTP, state.FunctionHTTP
	default:
		scheduled.Function = state.FunctionGraph
	}
	t.must(ex, scheduled)
	t.must(ex, journal.InvokeStarted{Promise: promise, Attempt: 1})
	t.engineStart(ex, r, n)
	t.putRow(ex, n, row)
	t.nodePromise(ex, recovery.CreateRequest{ID: string(promise), External: true, TimeoutAt: state.Never})
	if err != nil {
		why := state.EncodeFailure(state.FailureInput, bounded(err.Error()))
		t.endNode(ex, r, n, reduction.NodeFailed{}, recovery.PromiseRejected, why, why)
		return
	}
	t.startAttempt(ex, r, n, input)
}

// startAttempt starts the execution of a node's present attempt.
func (t *txn) startAttempt(ex *execution, r *graphRun, n int32, input []byte) {
	row, node := &r.rows[n], r.node(n)
	b := birth{
		id: row.AttemptID(ex.h.ID), digest: ex.h.Digest, input: input, deadlineMS: t.deadline(node.TimeoutMs),
		parent: ex.h.ID, parentIncarnation: ex.h.Incarnation, parentPromise: row.Promise(ex.h.ID),
	}
	switch kind := node.Kind.(type) {
	case *perdurev1.GraphNode_Function:
		b.function = kind.Function.GetFunction()
	case *perdurev1.GraphNode_Http:
		b.function = state.FunctionHTTP
	case *perdurev1.GraphNode_Subgraph:
		stored, err := state.EncodeGraph(kind.Subgraph, input)
		t.mustNot(ex, err)
		b.function, b.graph, b.stored = state.FunctionGraph, kind.Subgraph, stored
	}
	if b.graph == nil {
		b.digest = t.digest(ex.ns, b.function, ex.h.Digest)
	}
	if r.alone {
		t.noPromise(ex.ns, b.id)
	}
	_, err := t.start(ex.ns, b)
	t.mustNot(ex, err)
}

// retryNode starts the next attempt of a node whose pause is over.
func (t *txn) retryNode(ex *execution, r *graphRun, n int32) {
	row := r.rows[n]
	if row.RetryAt == 0 || row.RetryAt > t.now || ex.h.Status != journal.StatusRunning {
		return
	}
	promise := row.Promise(ex.h.ID)
	t.remove(keys.DeadlineOf(keys.DeadlineGraph, row.RetryAt, ex.ns, promise))
	row.RetryAt = 0
	row.Attempt++
	t.must(ex, journal.InvokeStarted{Promise: id.PromiseID(promise), Attempt: row.Attempt})
	t.putRow(ex, n, row)
	input, err := r.inputOf(n, id.PromiseID(promise))
	t.mustNot(ex, err)
	t.startAttempt(ex, r, n, input)
	t.advance(ex)
}

// inputOf builds a node's input from the nodes before it. It is the same for every attempt.
func (r *graphRun) inputOf(n int32, promise id.PromiseID) ([]byte, error) {
	node := r.node(n)
	input, err := graph.Inputs(node, r.input, r.outputOf)
	if err != nil {
		return nil, err
	}
	h, ok := node.Kind.(*perdurev1.GraphNode_Http)
	if !ok {
		return input, nil
	}
	request := httpRequest{URL: h.Http.GetUrl(), Method: h.Http.GetMethod(), Headers: h.Http.GetHeaders(),
		IdempotencyKey: string(promise), TimeoutMS: node.TimeoutMs}
	if request.Method == "" {
		request.Method = "GET"
	}
	if h.Http.GetSendInputs() {
		request.Body = input
	}
	return json.Marshal(request)
}

// httpRequest is the input of the function $http.
type httpRequest struct {
	URL     string            `json:"url"`
	Method  string            `json:"method"`
	Headers map[string]string `json:"headers,omitempty"`
	// Body is JSON.
	Body json.RawMessage `json:"body,omitempty"`
	// IdempotencyKey is the same for every attempt of the node.
	IdempotencyKey string `json:"idempotency_key"`
	TimeoutMS      int64  `json:"timeout_ms,omitempty"`
}

// expireNode processes an expired deadline of a node's own promise: the end of a sleep, or the timeout of a
// signal wait.
func (t *txn) expireNode(ex *execution, promise id.PromiseID, p recovery.Promise) {
	r := t.graph(ex)
	n, ok := r.nodeOf(promise)
	if !ok {
		return
	}
	switch r.rows[n].Status {
	case reduction.StatusRunning:
		if fired, isTimer := ex.j.Timer(promise); !isTimer || fired {
			return
		}
		t.must(ex, journal.TimerFired{Promise: promise})
		t.result(ex, r, n, reduction.Succeeded{Output: []byte("null")}, nil)
	case reduction.StatusWaiting:
		inv, _ := ex.j.Invoke(promise)
		outcome := state.OutcomeOf(p)
		t.must(ex, journal.InvokeCompleted{Promise: promise, Result: outcome, Attempt: inv.Open})
		t.result(ex, r, n, reduction.NodeTimedOut{}, outcome)
	default:
		return
	}
	t.advance(ex)
}

// signalGraph delivers a signal to a run: it stores the signal for later waits, and ends the waits of all
// nodes that wait for it now.
func (t *txn) signalGraph(ex *execution, name string, payload []byte) (uint64, error) {
	r := t.graph(ex)
	t.expireWaits(ex, name)
	if ex.h.Status.Terminal() {
		return 0, finished(ex)
	}
	t.deliver(ex, latch{name, state.DataOf(payload)})
	for _, node := range r.engine.WaitingOn(name) {
		if n := r.index(node); r.rows[n].Status == reduction.StatusWaiting {
			t.signalled(ex, r, n, state.DataOf(payload))
		}
	}
	t.advance(ex)
	return ex.j.Deliveries(name), nil
}

// expireWaits ends the nodes' signal waits whose deadline has expired, so that a signal that arrives now is
// not for them. It may end the run.
func (t *txn) expireWaits(ex *execution, name string) {
	r := t.graph(ex)
	for _, node := range r.engine.WaitingOn(name) {
		if row := &r.rows[r.index(node)]; row.Status == reduction.StatusWaiting {
			t.timeout(ex.ns, row.Promise(ex.h.ID))
		}
	}
}

// deliver records a signal and keeps its payload.
func (t *txn) deliver(ex *execution, s latch) {
	t.must(ex, journal.SignalDelivered{Name: s.name, Payload: recovery.AppendOutcome(nil, recovery.Outcome{Data: s.payload}),
		DeliveryID: ex.j.Deliveries(s.name) + 1})
	t.put(keys.LatchOf(ex.ns, ex.h.ID, ex.h.Incarnation, s.name), s.payload)
}

// signalled ends a node's wait with the payload of its signal.
func (t *txn) signalled(ex *execution, r *graphRun, n int32, payload []byte) {
	t.endNode(ex, r, n, reduction.Succeeded{Output: payload}, recovery.PromiseResolved,
		recovery.AppendOutcome(nil, recovery.Outcome{Data: payload}), nil)
}

// cancelNodes cancels all running attempts. A node that pauses between two attempts gets no further one.
func (t *txn) cancelNodes(ex *execution, reason string, graceMS int64) {
	r := t.graph(ex)
	r.busy = true
	for i := range r.rows {
		n := int32(i)
		switch row := &r.rows[n]; {
		case row.Status != reduction.StatusRunning || r.sleeps(n):
		case row.RetryAt != 0:
			t.dropNode(ex, r, n, reason)
		default:
			attempt := row.AttemptID(ex.h.ID)
			t.runExpirations(ex.ns, attempt)
			if a, ok := t.execution(ex.ns, attempt); ok && !a.h.Status.Terminal() && a.h.Status != journal.StatusCancelling {
				t.mustNot(ex, t.requestCancel(a, reason, graceMS))
			}
		}
	}
	r.busy = false
	t.advance(ex)
}

// dropNode withdraws an open node without a result, because its run ends first.
func (t *txn) dropNode(ex *execution, r *graphRun, n int32, reason string) {
	row := r.rows[n]
	promise := row.Promise(ex.h.ID)
	switch {
	case row.RetryAt != 0:
		t.remove(keys.DeadlineOf(keys.DeadlineGraph, row.RetryAt, ex.ns, promise))
	case row.Status == reduction.StatusRunning && !r.sleeps(n):
		attempt := row.AttemptID(ex.h.ID)
		t.runExpirations(ex.ns, attempt)
		if a, ok := t.execution(ex.ns, attempt); ok && !a.h.Status.Terminal() {
			t.mustNot(ex, t.cancelled(a, reason))
		}
	}
	t.settleNode(ex, id.PromiseID(promise), recovery.PromiseRejectedCanceled, state.EncodeFailure(state.FailureCancelled, reason))
	row.Status, row.Signal, row.RetryAt, row.Ended = reduction.StatusPending, "", 0, t.now
	t.putRow(ex, n, row)
	delta, err := r.engine.Apply(reduction.Result{Node: r.name(n), Outcome: reduction.NodeRunCancelled{}})
	t.mustNot(ex, err)
	t.follow(ex, r, delta)
}

// leave ends the running attempts and open waits of a graph run that was cancelled, terminated or timed out.
func (t *txn) leave(ex *execution, reason string) {
	if ex.h.Kind != state.KindGraph {
		return
	}
	r := t.graph(ex)
	if len(r.unobserved) > 0 {
		t.endWave(ex, r)
	}
	for i := range r.rows {
		if s := r.rows[i].Status; s == reduction.StatusRunning || s == reduction.StatusWaiting {
			t.dropNode(ex, r, int32(i), reason)
		}
	}
}
