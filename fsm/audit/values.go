package audit

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"

	"perdure/id"
	"perdure/journal"
	"perdure/recovery"

	commandv1 "perdure/api/command/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
)

// Values that are stored twice or follow from others, and the one function that checks each pair.
//
//	value                          stored in                                      check
//	identity of an object          its key, its value                             promise, task, header, entry (RuleMisplaced)
//	partition of an object         its id, the state that holds it                here
//	promise state                  promise, its task                              recovery.CheckPromise
//	target, incarnation            promise, task                                  recovery.CheckTask
//	function, incarnation,         header, promise, first journal entry           headerOfPromise, headerOfJournal
//	  digest, parent, tags, times
//	status, length                 header, fold of the journal                    headerOfJournal
//	end and result of a run        last journal entry, promise                    ending
//	task and journal inline        header, and no rows of them                    inline
//	closing time                   header, last entry, promise                    headerOfJournal, ending
//	answer to the last commit      header, status                                 headerOfPromise
//	wait                           journal, task, callbacks                       execution, callbacks, recovery.CheckTask
//	callback                       by awaited, by awaiter                         recovery.CheckCallback, CheckAwaitedBy
//	settled awaited promises       task's resumes, promises                       resumes
//	result of an operation         journal, its promise                           results
//	result of a send               journal, its promise, the answer under way     sendResult, sender
//	target of a send               promise, the signal under way                  sender
//	time of a timer                journal, promise                               operation, results
//	child's function, input,       parent's journal, child's header and journal   childOf
//	  digest
//	child's retries, tags          journal, child's header, proxy promise         retryOf, childElsewhere
//	payload of a signal            delivery, receipt, wait's promise              journal.Check, results
//	latched signal of a graph run  latch, journal                                 graphAudit.signals
//	node: status, attempt, retry   row, journal, promise, attempt's header        graphAudit.row
//	node: signal                   row, graph or the attempt's result             graphAudit.waitsFor
//	node: output, failure          row, journal, promise                          graphAudit.values
//	node: times                    row, journal                                   graphAudit.values
//	node: retained output          row of a later incarnation, the former's       graphAudit.read
//	entity's first scheduled signal head, delayed list, deadline index             entityHead, deadline
//	entity's task                  lists and lock, task, ready queue              entityTask, queued
//	client's call                  entity's queue, promise, deadline index        entityItem, clientCall
//	critical section               holder, promise, locks of this partition       holder
//	outputs, statuses              rows, Definition 1                             reduction.Recover, WellFormed
//	graph, input                   graph, journal, former incarnation's graph     graphRun
//	result of a graph run          journal, outputs of its sinks                  graphRun
//	listeners left to notify       notification, listeners, deadline index        notification, recovery.CheckPromise
//	deadline                       object, deadline index                         deadline, recovery.CheckPromise, CheckTask, grace, row
//	pending task                   task, ready queue                              queued, place
//	execution                      header, visibility index                       execution, listed
//	message number                 message, key, channel                          message, channel
//	bytes of an outbox             messages, channel                              outboxBytes
//	child's end, child's start     message, promises                              sender
//	stored reply                   reply, its age, count, forgotten               reply, replyAge, countReplies
//	time                           clock, entries, promises                       entries, promiseValue
//	feature level                  meta, graph runs                               storedGraph
//	all of it                      the replicas                                   checksum, Report.Content
//
// Not checked: the checksum against the state (it covers all past mutations; replicas compare it at equal
// indices), the content of a stored reply (an answer of the past), the two ends of a channel and a child in
// another partition (their states are never read together).

// entries checks the time of each journal entry, and that its values can be decoded.
func (a *auditor) entries(ns, objectID string, entries []journal.Entry) {
	last := int64(0)
	for _, e := range entries {
		bad := func(rule, format string, args ...any) {
			a.violation(Violation{Rule: rule, Namespace: ns, ID: objectID, Seq: e.Seq, HasSeq: true, Detail: fmt.Sprintf(format, args...)})
		}
		if e.Event == nil {
			continue // reported as damaged
		}
		if e.Time < last || e.Time > a.report.ClockMS {
			bad(RuleClock, "an entry of %d, after one of %d, and the clock is at %d", e.Time, last, a.report.ClockMS)
		}
		last = max(last, e.Time)
		outcome := func(what string, b []byte, failure bool) {
			if why := notOutcome(b, failure); why != "" {
				bad(RuleOutcome, "%s of %s is no outcome: %s", what, e.Event.Kind(), why)
			}
		}
		switch ev := e.Event.(type) {
		case journal.InvokeCompleted:
			outcome("the result", ev.Result, false)
		case journal.InvokeRetrying:
			outcome("the error", ev.Error, true)
		case journal.ExecutionFailed:
			outcome("the error", ev.Error, true)
		case journal.SignalDelivered:
			outcome("the payload", ev.Payload, false)
		case journal.SignalReceived:
			outcome("the payload", ev.Payload, false)
		}
	}
}

// notOutcome says why bytes are not the canonical encoding of an outcome, or, if failure, of a failure; "" if
// they are.
func notOutcome(b []byte, failure bool) string {
	o, err := recovery.DecodeOutcome(b)
	switch {
	case err != nil:
		return err.Error()
	case !bytes.Equal(recovery.AppendOutcome(nil, o), b):
		return "it is not written the one way there is"
	case failure && o.Failure == nil:
		return "it is a value, and must be a failure"
	}
	return ""
}

// promiseValue checks the value and the times of a promise.
func (a *auditor) promiseValue(ns string, p recovery.Promise) {
	if p.CreatedAt > a.report.ClockMS || p.SettledAt > a.report.ClockMS || p.Incarnation > a.newest {
		a.found(ns, p.ID, RuleClock, "made at %d in incarnation %d, settled at %d; the clock is at %d, the state at index %d",
			p.CreatedAt, p.Incarnation, p.SettledAt, a.report.ClockMS, a.newest)
	}
	why, executions := "", !state.OfClient(p) && p.Target != "" || state.OfGraph(p)
	switch p.State {
	case recovery.PromiseResolved:
		if len(p.Value) > 0 {
			why = notOutcome(p.Value, false)
		}
		if o, err := recovery.DecodeOutcome(p.Value); executions && err == nil && o.Failure != nil {
			why = "it is a failure, and must be a value"
		}
	case recovery.PromiseRejected:
		why = notOutcome(p.Value, executions)
	case recovery.PromiseRejectedCanceled:
		if len(p.Value) > 0 {
			why = notOutcome(p.Value, executions)
		}
	}
	if why != "" {
		a.found(ns, p.ID, RuleOutcome, "the value of a promise that is %s is no outcome: %s", p.State, why)
	}
}

// resumes checks that a task's resumes name only settled promises (and the task itself, after a cancel).
func (a *auditor) resumes(ns string, t recovery.Task) {
	for i, by := range t.Resumes {
		p, ok := a.storedPromise(ns, by)
		switch {
		case i > 0 && t.Resumes[i-1] >= by:
			a.found(ns, t.ID, RuleWait, "its resumes are not in order: %q", t.Resumes)
			return
		case by != t.ID && (!ok || !p.State.Settled()):
			a.found(ns, t.ID, RuleWait, "it was resumed by %q, which is not settled", by)
		}
	}
}

// awaitedOperation checks that an execution awaits operations of its own.
func (a *auditor) awaitedOperation(ns, awaited, awaiter string) {
	if _, journaled := a.storedHeader(ns, awaiter); !journaled {
		return
	}
	if _, direct := id.PromiseID(awaited).IsChildOf(id.PromiseID(awaiter)); !direct {
		a.found(ns, awaiter, RuleWait, "it has a callback on %q, which is no operation of its own", awaited)
	}
}

// waitCallbacks checks that a Blocked execution has a callback on each pending promise of its wait, if it needs one.
func (a *auditor) waitCallbacks(ns string, h state.Header, s *journal.State) {
	_, on, _, blocked := s.Wait()
	if !blocked || h.Status != journal.StatusBlocked || resumesWithoutRow(a.From) {
		return
	}
	for _, promise := range on {
		if s.Resolved(promise) || (objects{from: a.From, ns: ns}).HasCallback(string(promise), h.ID) {
			continue
		}
		if p, ok := a.storedPromise(ns, string(promise)); ok && p.State == recovery.PromisePending {
			a.found(ns, h.ID, RuleWait, "it waits for %q, and has no callback on it", promise)
		}
	}
}

// results checks the results in an execution's journal against the promises and children of its operations.
// It skips a graph run, whose operations are checked as nodes.
func (a *auditor) results(ns string, h state.Header, entries []journal.Entry, replay *journal.Replay) {
	awaited := map[id.PromiseID]bool{}
	for _, e := range entries {
		if w, ok := e.Event.(journal.ExecutionAwaiting); ok && w.Wait == journal.AwaitSignal {
			awaited[w.On[0]] = true
		}
	}
	for n := range replay.State().NextChild() {
		r, ok := replay.Lookup(id.PromiseID(h.ID).Child(n))
		if !ok {
			continue
		}
		child := r.Call == journal.KindInvokeScheduled && r.Invoke == journal.InvokeFunction
		if r.Call == journal.KindInvokeScheduled && (r.Invoke == journal.InvokeSend || r.Invoke == journal.InvokeSignal) {
			a.sendResult(ns, h, r)
			continue
		}
		if !child && r.Call != journal.KindTimerScheduled && !awaited[r.Promise] {
			continue // it has no promise
		}
		bad := func(format string, args ...any) {
			a.found(ns, h.ID, RuleResult, "%q: %s", r.Promise, fmt.Sprintf(format, args...))
		}
		p, ok := a.storedPromise(ns, string(r.Promise))
		if !ok {
			bad("the journal has %s, and there is no promise of it", r.Call)
			continue
		}
		if child {
			a.childOf(ns, h, r)
			a.childElsewhere(ns, h, r, p)
		}
		switch {
		case r.Call == journal.KindTimerScheduled && (!p.Timer || p.TimeoutAt != r.FireAt):
			bad("the journal has a timer for %d, its promise has deadline %d (a timer: %t)", r.FireAt, p.TimeoutAt, p.Timer)
		case !r.Resolved:
		case !p.State.Settled():
			bad("the journal has its result, and its promise is %s", p.State)
		case r.Call == journal.KindTimerScheduled:
			if p.State != recovery.PromiseResolved {
				bad("the timer has fired, and its promise is %s", p.State)
			}
		case child && !bytes.Equal(r.Result, state.OutcomeOf(p)):
			bad("the journal has a result of %d bytes, its promise, %s, another of %d", len(r.Result), p.State, len(state.OutcomeOf(p)))
		case awaited[r.Promise] && p.State == recovery.PromiseResolved && !bytes.Equal(r.Result, p.Value):
			bad("the journal has a signal of %d bytes, its promise another of %d", len(r.Result), len(p.Value))
		case awaited[r.Promise] && p.State == recovery.PromiseRejectedTimedout && !failedBy(r.Result, state.FailureTimeout):
			bad("the journal has a signal of %d bytes, and the wait for it timed out", len(r.Result))
		}
	}
}

// sendResult checks the recorded result of a send: a target's partition can give it, and it is that of the
// send's promise, if another partition has answered. operation checks an open send.
func (a *auditor) sendResult(ns string, h state.Header, r journal.Recorded) {
	p, ok := a.storedPromise(ns, string(r.Promise))
	if r.Resolved && !sendOutcome(r.Result) && !(p.State == recovery.PromiseRejectedCanceled && failedBy(r.Result, state.FailureCancelled)) && !cancelOutcome(r) && !state.OfEntity(p) && !state.OfNewPromise(p) && !state.OfAwait(p) {
		a.found(ns, h.ID, RuleResult, "%q: the journal has a result of %d bytes, which no send has", r.Promise, len(r.Result))
	}
	if why := entityOperation(h, r, p); why != "" {
		a.found(ns, h.ID, RuleOperation, "%s", why)
	}
	switch {
	case !ok && !r.Resolved:
		a.found(ns, h.ID, RuleResult, "%q: the journal has an open send, and there is no promise of it", r.Promise)
	case !ok, !r.Resolved:
		// Answered in the commit that sent it, or still open.
	case !state.OfSend(p) || !p.State.Settled():
		a.found(ns, h.ID, RuleResult, "%q: the journal has the result of a send, and its promise is %s, for %q", r.Promise, p.State, p.Param)
	case !bytes.Equal(r.Result, state.OutcomeOf(p)):
		a.found(ns, h.ID, RuleResult, "%q: the journal has a result of %d bytes, its promise, %s, another of %d",
			r.Promise, len(r.Result), p.State, len(state.OutcomeOf(p)))
	}
}

// cancelOutcome reports whether a result is that of a cancel of another operation: one byte, which says
// whether that was open.
func cancelOutcome(r journal.Recorded) bool {
	o, err := recovery.DecodeOutcome(r.Result)
	return r.Function == "cancel" && err == nil && o.Failure == nil && len(o.Data) == 1 && o.Data[0] <= 1
}

// sendOutcome reports whether bytes are a result that a send can have.
func sendOutcome(outcome []byte) bool {
	o, err := recovery.DecodeOutcome(outcome)
	switch {
	case err != nil:
		return false
	case o.Failure != nil:
		return o.Failure.Type == state.FailureTargetNotFound || o.Failure.Type == state.FailureTargetFinished || o.Failure.Type == state.FailureConflict
	}
	return len(o.Data) == 0
}

// failedBy reports whether bytes are a failure of a given type.
func failedBy(outcome []byte, kind string) bool {
	o, err := recovery.DecodeOutcome(outcome)
	return err == nil && o.Failure != nil && o.Failure.Type == kind
}

// childOf checks that a child in this partition was started with the values in its parent's journal.
func (a *auditor) childOf(ns string, parent state.Header, r journal.Recorded) {
	child, ok := a.storedHeader(ns, string(r.Promise))
	if !ok {
		return // it is in another partition, or operation reports that it is missing
	}
	a.startedWith(ns, child, parent, r)
	if child.ParentPromise != string(r.Promise) {
		a.found(ns, child.ID, RuleInput, "it is a child of %q, and is to settle %q", parent.ID, child.ParentPromise)
	}
	a.retryOf(ns, child.ID, child.Retry, r)
}

// retryOf checks that a child has as many attempts as the policy in its parent's journal allows, or no retries by the
// server at all.
func (a *auditor) retryOf(ns, objectID string, retry state.Retry, r journal.Recorded) {
	if bound := state.RetryBound(r.RetryPolicy) + 1; retry != (state.Retry{}) && int(retry.Attempts) != bound {
		a.found(ns, objectID, RuleInput, "child %q has %d attempts, its policy %q allows %d", r.Promise, retry.Attempts, r.RetryPolicy, bound)
	}
}

// childElsewhere checks the proxy promise of a child with a root id of its own, and the child if it is in this partition.
// States below feature level 6 have proxy promises without a mark.
func (a *auditor) childElsewhere(ns string, parent state.Header, r journal.Recorded, p recovery.Promise) {
	if p.Target != "" || len(p.Tags) == 0 {
		return
	}
	c, ok := state.ChildOf(p)
	if !ok {
		a.found(ns, parent.ID, RuleInput, "the promise of its child %q names no child: %q", r.Promise, p.Tags)
		return
	}
	a.retryOf(ns, parent.ID, c.Retry, r)
	child, ok := a.storedHeader(ns, c.ID)
	if !ok || child.ParentPromise != p.ID || child.ParentIncarnation != p.Incarnation || child.Parent != parent.ID {
		return // it is in another partition, or the id is another execution's
	}
	a.startedWith(ns, child, parent, r)
	if child.Retry != c.Retry || child.Former == 0 && !slices.Equal(child.Tags, c.Tags) {
		a.found(ns, child.ID, RuleInput, "it has the retries %+v and the tags %q, its promise %q the retries %+v and the tags %q",
			child.Retry, child.Tags, p.ID, c.Retry, c.Tags)
	}
}

// startedWith compares an execution with the invocation that its parent's journal has of it.
func (a *auditor) startedWith(ns string, child, parent state.Header, r journal.Recorded) {
	b, _ := a.Entry(ns, &child, 0)
	e, err := journal.DecodeEntry(b)
	if err != nil {
		return // reported with its own journal
	}
	input := []byte(nil)
	if s, ok := e.Event.(journal.ExecutionStarted); ok {
		input = s.Input
	}
	if child.Function != r.Function || !a.mayHave(ns, child, parent) || child.Parent != parent.ID ||
		!parent.Belongs(child.ParentIncarnation) || !startedWith(child, input, r.Input) {
		a.found(ns, child.ID, RuleInput, "it runs %q of digest %q with %d bytes of input for %q of incarnation %d; that has %q, digest %q, %d bytes, incarnation %d",
			child.Function, child.Digest, len(input), child.Parent, child.ParentIncarnation, r.Function, parent.Digest, len(r.Input), parent.Incarnation)
	}
}

// mayHave reports whether a child may have its digest: that of its parent when it began, or one of its own function.
func (a *auditor) mayHave(ns string, child, parent state.Header) bool {
	if child.Digest == parent.Digest || child.Digest == "" || child.Former != 0 || child.ParentIncarnation != parent.Incarnation {
		return true
	}
	value, _ := a.Get(keys.Of(keys.Function, ns, child.Function))
	known, err := state.DecodeDigests(value)
	return err != nil || known.Knows(child.Digest) || len(known) == state.MaxDigests
}

// startedWith compares the input in a child's journal, or in the header of one that continued as new, with that in
// its parent's journal.
func startedWith(child state.Header, input, asked []byte) bool {
	if len(child.StartInput) > 0 {
		sum := sha256.Sum256(asked)
		return bytes.Equal(child.StartInput, sum[:])
	}
	return bytes.Equal(input, asked)
}

// sender checks a message in the outbox against the objects that sent it.
func (a *auditor) sender(msg *commandv1.Message) {
	bad := func(format string, args ...any) {
		a.found(msg.Namespace, msg.FromId, RuleMessage, "message %d for %q: %s", msg.Seq, msg.ToId, fmt.Sprintf(format, args...))
	}
	switch w := msg.Kind.(type) {
	case *commandv1.Message_ChildDone:
		if msg.FromIncarnation == 0 {
			return // the answer to a start that was refused
		}
		h, there := a.storedHeader(msg.Namespace, msg.FromId)
		p, ok := a.storedPromise(msg.Namespace, msg.FromId)
		if there && h.Incarnation != msg.FromIncarnation {
			return // it was retried since
		}
		value, err := wire.DecodeOutcome(w.ChildDone.GetOutcome())
		switch {
		case !there || !ok || !p.State.Settled():
			bad("it reports the end of a child that has not ended here")
		case h.ParentPromise != msg.ToId || h.ParentIncarnation != msg.ToIncarnation:
			bad("it is for incarnation %d, the child's parent is %q, incarnation %d", msg.ToIncarnation, h.ParentPromise, h.ParentIncarnation)
		case err != nil || !bytes.Equal(value, canonical(state.OutcomeOf(p))):
			bad("it has a result of %d bytes, the child's promise another of %d", len(value), len(state.OutcomeOf(p)))
		}
	case *commandv1.Message_StartChild:
		p, ok := a.storedPromise(msg.Namespace, w.StartChild.GetPromiseId())
		h, there := a.storedHeader(msg.Namespace, msg.FromId)
		if there && h.Incarnation != msg.FromIncarnation {
			return
		}
		if !there && a.erased(msg.Namespace, msg.FromId) {
			return
		}
		root := id.SpreadRoot(h.Digest, h.ID, w.StartChild.GetIdempotencyKey())
		if child, ok := state.ChildOf(p); ok && (child.OwnID || child.ID != root) {
			root = child.ID
			if !child.OwnID {
				bad("it starts the spread child of %q, whose promise names %q", w.StartChild.GetPromiseId(), child.ID)
			}
		}
		switch {
		case !there || !ok || p.Incarnation != msg.FromIncarnation || !p.External:
			bad("it starts a child for %q, and there is no such promise", w.StartChild.GetPromiseId())
		case root != msg.ToId || w.StartChild.GetComponentDigest() != h.Digest:
			bad("it starts a child of digest %q, its sender's is %q and names the child %q", w.StartChild.GetComponentDigest(), h.Digest, root)
		}
	case *commandv1.Message_EndChild:
		p, ok := a.storedPromise(msg.Namespace, w.EndChild.GetPromiseId())
		if child, elsewhere := state.ChildOf(p); ok && p.Incarnation == msg.FromIncarnation && (!elsewhere || child.ID != msg.ToId) {
			bad("it ends the child %q of %q, whose promise names %q", msg.ToId, w.EndChild.GetPromiseId(), child.ID)
		}
	case *commandv1.Message_SignalCall:
		p, ok := a.storedPromise(msg.Namespace, w.SignalCall.GetPromiseId())
		h, there := a.storedHeader(msg.Namespace, msg.FromId)
		if there && h.Incarnation != msg.FromIncarnation || !there && a.erased(msg.Namespace, msg.FromId) {
			return
		}
		_, own := id.PromiseID(w.SignalCall.GetPromiseId()).IsChildOf(id.PromiseID(msg.FromId))
		switch {
		case !there || !ok || !own || p.Incarnation != msg.FromIncarnation || !state.OfSend(p):
			bad("it is a signal whose answer settles %q, and there is no such send", w.SignalCall.GetPromiseId())
		case string(p.Param) != msg.ToId || w.SignalCall.GetSignal().GetId() != msg.ToId:
			bad("it is a signal for %q, and the send %q is to %q", w.SignalCall.GetSignal().GetId(), p.ID, p.Param)
		}
	case *commandv1.Message_StartCall:
		p, ok := a.storedPromise(msg.Namespace, w.StartCall.GetPromiseId())
		h, there := a.storedHeader(msg.Namespace, msg.FromId)
		if there && h.Incarnation != msg.FromIncarnation || !there && a.erased(msg.Namespace, msg.FromId) {
			return
		}
		if !there || !ok || p.Incarnation != msg.FromIncarnation || !state.OfSend(p) || string(p.Param) != msg.ToId || w.StartCall.GetStart().GetId() != msg.ToId {
			bad("it is a start of %q whose answer settles %q, and there is no such send", msg.ToId, w.StartCall.GetPromiseId())
		}
	case *commandv1.Message_AwaitPromise:
		p, ok := a.storedPromise(msg.Namespace, w.AwaitPromise.GetPromiseId())
		h, there := a.storedHeader(msg.Namespace, msg.FromId)
		if there && h.Incarnation != msg.FromIncarnation || !there && a.erased(msg.Namespace, msg.FromId) {
			return
		}
		if !there || !ok || !state.OfAwait(p) || p.Incarnation != msg.FromIncarnation || string(p.Param) != msg.ToId {
			bad("it asks for the value of %q on behalf of %q, and there is no such operation", msg.ToId, w.AwaitPromise.GetPromiseId())
		}
	case *commandv1.Message_PromiseDone:
		if _, err := wire.DecodeOutcome(w.PromiseDone.GetOutcome()); err != nil {
			bad("it answers a wait for a promise by what is no value: %v", err)
		}
	case *commandv1.Message_Entity:
		a.entitySender(msg, w.Entity, bad)
	case *commandv1.Message_SignalDone:
		value, err := wire.DecodeOutcome(w.SignalDone.GetOutcome())
		_, there := a.storedHeader(msg.Namespace, msg.FromId)
		switch {
		case err != nil || !sendOutcome(value):
			bad("it answers a signal with a result of %d bytes, which no send has", len(value))
		case w.SignalDone.GetOutcome().GetFailure() == nil && !there:
			bad("it says that a signal was delivered to an execution that is not there")
		}
	}
}

// canonical returns the canonical encoding of an outcome in the API's form.
func canonical(outcome []byte) []byte {
	b, err := wire.DecodeOutcome(wire.EncodeOutcome(outcome))
	if err != nil {
		return nil
	}
	return b
}
