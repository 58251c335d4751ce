package machine

import (
	"math"
	"strconv"
	"strings"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/wire"
	"perdure/id"
	"perdure/journal"
	"perdure/recovery"
)

// ruleRestart is the rule of restarts.
const ruleRestart = "restart"

// history is a whole journal as a restart reads it.
type history struct {
	entries []journal.Entry
	// sizes are the entries' sizes as stored.
	sizes []int
}

// applyRestart begins a new incarnation of a function's execution, open or ended, with a prefix of its
// journal. It is idempotent by its stored reply.
func applyRestart(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	req, ns := cmd.GetRestart(), cmd.Namespace
	old, ok := t.execution(ns, req.Id)
	if !ok {
		return nil, wire.NotFound(ns, req.Id)
	}
	if task, _ := t.store(ns).Task(req.Id); req.From == perdurev1.RestartFrom_RESTART_FROM_FAILURE && req.ComponentDigest == "" && isStuck(old, task) {
		t.unhalt(ns, req.Id)
		return &commandv1.Reply{Kind: &commandv1.Reply_Restart{Restart: &perdurev1.RestartResponse{
			Incarnation: old.h.Incarnation, FormerIncarnation: old.h.Incarnation, KeptEvents: old.h.Events,
		}}}, nil
	}
	if err := t.mayBegin(old); err != nil {
		return nil, err
	}
	h := old.h
	past := t.readHistory(old)
	cut, refused := t.cutOf(old, past, req)
	if refused != nil {
		return nil, refused
	}
	s := succession{
		function: h.Function, digest: h.Digest, tags: h.Tags, request: h.StartRequest, startInput: h.StartInput,
		signals: past.signalsFrom(cut),
	}
	if req.ComponentDigest != "" {
		s.digest = req.ComponentDigest
	}
	if h.DeadlineMS != 0 {
		p, _ := t.store(ns).Promise(h.ID)
		s.deadlineMS = t.deadline(h.DeadlineMS - p.CreatedAt)
	}
	s.input = past.entries[0].Event.(journal.ExecutionStarted).Input
	var open []openCall
	if cut > 1 {
		s.prefix = past.entries[:cut:cut]
		open, s.kept, refused = t.openCalls(old, past, cut, req)
		if refused != nil {
			return nil, refused
		}
		if s.kept > 0 {
			s.attached = h.Incarnation
			if h.Attached != 0 {
				s.attached = h.Attached
			}
		}
	}
	if n, size := len(s.signals), signalBytes(s.signals); n > state.MaxCarriedSignals || size > state.MaxCarriedBytes {
		return nil, refuseRestart(old, "it received %d signals of %d bytes after the cut, at most %d and %d are delivered again",
			n, size, state.MaxCarriedSignals, state.MaxCarriedBytes)
	}
	ex := t.succeed(old, s)
	for _, call := range open {
		t.takeOver(ex, call)
	}
	t.signalArrived(ex)
	return &commandv1.Reply{Kind: &commandv1.Reply_Restart{Restart: &perdurev1.RestartResponse{
		Incarnation: ex.h.Incarnation, FormerIncarnation: h.Incarnation, KeptEvents: uint64(len(s.prefix)),
	}}}, nil
}

// isStuck reports whether an execution waits for code that fits its journal.
func isStuck(ex *execution, task recovery.Task) bool {
	return task.State == recovery.TaskHalted && !ex.h.Status.Terminal()
}

func refuseRestart(ex *execution, format string, args ...any) *api.Error {
	e := api.Errorf(perdurev1.Reason_REASON_RULE_BROKEN, format, args...)
	e.Message = "execution " + strconv.Quote(ex.h.ID) + " cannot restart: " + e.Message
	return e.With("namespace", ex.ns).With("id", ex.h.ID).With("rule", ruleRestart)
}

// readHistory reads an execution's whole journal.
func (t *txn) readHistory(ex *execution) (past history) {
	t.journalEntries(ex, 0, math.MaxUint64, func(key, value []byte) bool {
		entry, err := journal.DecodeEntry(append([]byte(nil), value...))
		if err != nil {
			state.PanicCorrupt("journal", key, err)
		}
		past.entries = append(past.entries, entry)
		past.sizes = append(past.sizes, len(value))
		return true
	})
	return past
}

// signalsFrom lists the signals that came at or after an entry, without the timeouts of waits.
func (p history) signalsFrom(cut int) (out []journal.SignalDelivered) {
	for _, e := range p.entries[cut:] {
		if signal, ok := e.Event.(journal.SignalDelivered); ok && !isFailure(signal.Payload) {
			out = append(out, signal)
		}
	}
	return out
}

func signalBytes(signals []journal.SignalDelivered) (n int) {
	for _, s := range signals {
		n += len(s.Name) + len(s.Payload)
	}
	return n
}

// cutOf returns how many entries a restart keeps. The retained ones end while the execution runs: a cut within a
// wait moves back to the wait's beginning.
func (t *txn) cutOf(old *execution, past history, req *perdurev1.RestartRequest) (int, *api.Error) {
	var cut int
	switch req.From {
	case perdurev1.RestartFrom_RESTART_FROM_START:
		return 1, nil
	case perdurev1.RestartFrom_RESTART_FROM_EVENT:
		if req.Event < 1 || req.Event > uint64(len(past.entries)) {
			return 0, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "event %d of execution %q is not in 1 to %d", req.Event, old.h.ID, len(past.entries)).
				With("namespace", old.ns).With("id", old.h.ID)
		}
		cut = int(req.Event)
	case perdurev1.RestartFrom_RESTART_FROM_FAILURE:
		task, _ := t.store(old.ns).Task(old.h.ID)
		switch {
		case isStuck(old, task), req.ComponentDigest != "" && !old.h.Status.Terminal():
			cut = len(past.entries) // all of it, for code of this digest
		case old.h.Status != journal.StatusFailed:
			return 0, refuseRestart(old, "it has not failed, it is %s", strings.ToLower(old.h.Status.String()))
		default:
			cut = past.failure()
		}
	default:
		return 0, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "an unknown way to restart: %d", req.From).
			With("namespace", old.ns).With("id", old.h.ID)
	}
	waits, size := -1, 0
	for i, e := range past.entries[:cut] {
		switch e.Event.(type) {
		case journal.ExecutionAwaiting:
			waits = i
		case journal.ExecutionResumed:
			waits = -1
		case journal.CancelRequested, journal.ExecutionCompleted, journal.ExecutionFailed, journal.ExecutionCancelled:
			return 0, refuseRestart(old, "entry %d is %s, and a restart can keep only entries before it", i, e.Event.Kind())
		}
	}
	if waits >= 0 {
		cut = waits
	}
	if at, inside := t.section(old, past.entries[:cut]); inside {
		return 0, refuseRestart(old, "it is cut inside the critical section that begins with entry %d", at)
	}
	for _, n := range past.sizes[:cut] {
		size += n
	}
	if cut > state.MaxKeptEvents || size > state.MaxKeptBytes {
		return 0, refuseRestart(old, "the restart would keep %d entries of %d bytes, at most %d and %d", cut, size, state.MaxKeptEvents, state.MaxKeptBytes)
	}
	return cut, nil
}

// section returns the entry that begins a critical section, if the entries end inside one: the new incarnation does not
// hold its locks.
func (t *txn) section(old *execution, entries []journal.Entry) (at int, inside bool) {
	for i, e := range entries {
		s, ok := e.Event.(journal.InvokeScheduled)
		if !ok || s.Invoke != journal.InvokeSend {
			continue
		}
		p, ok := t.store(old.ns).Promise(string(s.Promise))
		switch {
		case ok && state.OfEntity(p) && p.Tags[0].Value == state.OfLocks:
			at, inside = i, true
		case namedUnlock(s):
			inside = false
		}
	}
	return at, inside
}

// failure is the entry where the operation that failed last begins; the execution's end if none has failed.
func (p history) failure() int {
	var failed id.PromiseID
	for _, e := range p.entries {
		switch e := e.Event.(type) {
		case journal.InvokeCompleted:
			if isFailure(e.Result) {
				failed = e.Promise
			}
		case journal.SignalReceived:
			if isFailure(e.Payload) {
				failed = e.Promise
			}
		}
	}
	for i, e := range p.entries {
		switch e := e.Event.(type) {
		case journal.InvokeScheduled:
			if e.Promise == failed {
				return i
			}
		case journal.ExecutionAwaiting:
			if e.Wait == journal.AwaitSignal && e.On[0] == failed {
				return i
			}
		}
	}
	return len(p.entries) - 1
}

func isFailure(result []byte) bool {
	o, err := recovery.DecodeOutcome(result)
	return err == nil && o.Failure != nil
}

// openCall is an operation that is open at a restart's cut.
type openCall struct {
	promise id.PromiseID
	invoke  journal.InvokeScheduled // of an invocation
	started bool
	// begun: an attempt of it began after the cut.
	begun bool
	// result ends it in the new journal at once; nil leaves it open.
	result journal.Event
	// again starts the child again. cancelled: the kept entries have cancelled it.
	again, cancelled bool
	// rearm starts the timer again, for this time; 0 does not.
	rearm int64
	// reopen waits again for the signal or the promise: the former incarnation cancelled the wait after the cut.
	reopen bool
}

// openCalls lists the operations that are open at a cut and whose results the server brings, and returns how
// many child numbers the retained entries have taken.
func (t *txn) openCalls(old *execution, past history, cut int, req *perdurev1.RestartRequest) (out []openCall, kept uint32, refused *api.Error) {
	replay, err := journal.NewReplay(id.PromiseID(old.h.ID), past.entries[:cut], retryBound)
	t.mustNot(old, err)
	later, begun := map[id.PromiseID]journal.Event{}, map[id.PromiseID]bool{}
	for _, e := range past.entries[cut:] {
		switch ev := e.Event.(type) {
		case journal.InvokeCompleted:
			later[ev.Promise] = ev
		case journal.InvokeStarted:
			begun[ev.Promise] = true
		case journal.TimerFired:
			later[ev.Promise] = ev
		}
	}
	cancelled := cancelledIn(past.entries[:cut])
	kept = replay.State().NextChild()
	again := 0
	for n := range kept {
		promise := id.PromiseID(old.h.ID).Child(n)
		r, ok := replay.Lookup(promise)
		if !ok || r.Resolved {
			continue
		}
		call := openCall{promise: promise, result: later[promise], begun: begun[promise]}
		switch {
		case r.Call == journal.KindTimerScheduled:
		case r.Call != journal.KindInvokeScheduled || state.RunsLocally(r.Invoke):
			continue // the worker runs a step again
		default:
			info, _ := replay.State().Invoke(promise)
			call.started = info.Started
			call.invoke = journal.InvokeScheduled{Promise: promise, Invoke: r.Invoke, Function: r.Function, Input: r.Input, RetryPolicy: r.RetryPolicy}
		}
		p, ok := t.store(old.ns).Promise(string(promise))
		if r.Call == journal.KindTimerScheduled && call.result == nil && ok && p.State == recovery.PromiseRejectedCanceled {
			if !cancelled[promise] {
				out = append(out, openCall{promise: promise, rearm: max(r.FireAt, 1)})
			}
			continue
		}
		if ok && p.State == recovery.PromiseRejectedCanceled && !cancelled[promise] && (state.OfSignal(p) || state.OfAwait(p)) {
			call.reopen = true
			out = append(out, call)
			continue
		}
		if call.result == nil && ok && p.State.Settled() {
			call.result = settledEvent(r, p)
		}
		if r.Invoke == journal.InvokeFunction && r.Call == journal.KindInvokeScheduled {
			done, isDone := call.result.(journal.InvokeCompleted)
			call.again = !ok || req.NewChildren ||
				req.From == perdurev1.RestartFrom_RESTART_FROM_FAILURE && old.h.Status == journal.StatusFailed && isDone && isFailure(done.Result)
		}
		if call.again {
			call.cancelled = cancelled[promise]
			if h, ok := t.headerOf(old.ns, string(promise)); ok && t.cleanupOpen(old.ns, &h) {
				return nil, 0, refuseRestart(old, "its child %q would start again and is being cleaned up after: %q has not ended", promise, h.CleanupID())
			}
			if child, _ := state.ChildOf(p); t.notifying(old.ns, string(promise)) || t.notifying(old.ns, child.ID) {
				return nil, 0, errNotifying(old.ns, string(promise))
			}
			if t.childBeganNow(old.ns, promise, p) {
				return nil, 0, beganNow(old)
			}
			call.result = nil
			if again++; again > state.MaxNewChildren {
				return nil, 0, refuseRestart(old, "more than %d children would start again", state.MaxNewChildren)
			}
		}
		if !ok && !call.again && call.result == nil {
			return nil, 0, refuseRestart(old, "operation %q is open at the cut, and its promise is missing", promise)
		}
		out = append(out, call)
	}
	return out, kept, nil
}

// childBeganNow reports whether a child in this partition has begun in this entry, so that it cannot begin
// again in it. p is the promise by which the parent has it.
func (t *txn) childBeganNow(ns string, promise id.PromiseID, p recovery.Promise) bool {
	childID := string(promise)
	if elsewhere, ok := state.ChildOf(p); ok {
		childID = elsewhere.ID
	}
	if state.PartitionOf(ns, childID, t.m.cfg.Partitions) != t.m.cfg.Partition {
		return false
	}
	h, ok := t.headerOf(ns, childID)
	return ok && h.Incarnation == t.index
}

// settledEvent is the entry that records a settled promise as the result of an open operation.
func settledEvent(r journal.Recorded, p recovery.Promise) journal.Event {
	if r.Call == journal.KindTimerScheduled {
		return journal.TimerFired{Promise: r.Promise}
	}
	return journal.InvokeCompleted{Promise: r.Promise, Result: state.OutcomeOf(p), Attempt: max(r.Open, 1)}
}

// takeOver continues an open operation in a new incarnation: it records the result that came after the cut,
// starts a child again, or leaves the operation open.
func (t *txn) takeOver(ex *execution, call openCall) {
	if call.rearm != 0 {
		t.rearm(ex, call.promise, call.rearm)
		return
	}
	if call.reopen {
		t.waitAgain(ex, call)
		return
	}
	if done, ok := call.result.(journal.InvokeCompleted); ok {
		t.invocationEnded(ex, call.promise, done.Result)
		return
	}
	switch {
	case call.invoke.Invoke == journal.InvokeFunction && call.begun && !call.again:
		t.attemptBegun(ex, call.promise)
	case call.invoke.Invoke != 0 && call.invoke.Invoke != journal.InvokeFunction && !call.started:
		t.must(ex, journal.InvokeStarted{Promise: call.promise, Attempt: 1})
	}
	if call.result != nil {
		t.must(ex, call.result)
		return
	}
	if call.again {
		t.startChildAgain(ex, call)
		if p, ok := t.store(ex.ns).Promise(string(call.promise)); ok && call.cancelled && !p.State.Settled() {
			t.mustNot(ex, t.cancelPromise(ex, p))
		}
	}
}

// startChildAgain begins a new incarnation of a child for a new incarnation of its parent. A spread child
// gets another root id; the former one runs on without a caller, unless its close policy says otherwise. One
// with an id of its own is replaced.
func (t *txn) startChildAgain(ex *execution, call openCall) {
	s, childID := t.store(ex.ns), string(call.promise)
	if child, ok := t.execution(ex.ns, childID); ok {
		deadline := int64(0)
		if p, ok := s.Promise(childID); ok && child.h.DeadlineMS != 0 {
			deadline = t.deadline(child.h.DeadlineMS - p.CreatedAt)
		}
		t.succeed(child, succession{
			function: call.invoke.Function, digest: t.digest(ex.ns, call.invoke.Function, ex.h.Digest), input: call.invoke.Input, tags: child.h.Tags,
			deadlineMS: deadline, parentIncarnation: ex.h.Incarnation,
		})
		return
	}
	at := placement{spread: true}
	if p, ok := s.Promise(childID); ok {
		if p.TimeoutAt != state.Never {
			at.deadlineMS = t.now + (p.TimeoutAt - p.CreatedAt)
		}
		former, _ := state.ChildOf(p)
		if at.policy, at.retry, at.tags = former.Policy, former.Retry, former.Tags; former.OwnID {
			at.ownID, at.spread = former.ID, false
			t.erasePromise(ex.ns, childID)
		} else {
			t.endSwept(ex.ns, childID)
		}
	}
	t.mustNot(ex, t.startElsewhere(ex, call.invoke, at, true))
}
