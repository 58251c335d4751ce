package audit

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/id"
	"perdure/journal"
	"perdure/recovery"
)

// header checks the bytes of an execution's header, and the execution if it has no journal. Others are
// checked with their journals.
func (a *auditor) header(key, value []byte) {
	ns, more, _, ok := a.parts(key, 1)
	if !ok {
		return
	}
	a.report.Executions++
	objectID := more[0]
	h, err := state.DecodeHeader(bytes.Clone(value))
	switch {
	case err != nil:
		a.damaged(ns, objectID, key, err.Error())
		return
	case !bytes.Equal(key, keys.Of(keys.Header, ns, h.ID)):
		a.found(ns, objectID, RuleMisplaced, "its key has the header of %q", h.ID)
		return
	case !bytes.Equal(h.Encode(), value):
		a.damaged(ns, objectID, key, "the header is not written the one way there is")
	}
	if !h.Status.Terminal() {
		a.report.Open++
	}
	a.here(ns, h.ID)
	if h.HasEntries() {
		a.inHeader(ns, h)
		return
	}
	if a.Has(keys.JournalEntry(ns, h.ID, h.Incarnation, 0)) {
		return
	}
	empty, prefix := true, keys.JournalPrefix(ns, h.ID, h.Incarnation)
	a.Scan(prefix, keys.After(prefix), func(_, _ []byte) bool {
		empty = false
		return false
	})
	if empty {
		a.execution(ns, h, nil)
	}
}

// storedHeader reads a header; ok is false for a damaged one too, which header reports.
func (a *auditor) storedHeader(ns, objectID string) (state.Header, bool) {
	return readable(state.ReadHeader(a.From, ns, objectID))
}

// readable takes what is damaged for missing.
func readable[T any](v T, ok bool, err error) (T, bool) {
	if damage := (*state.CorruptError)(nil); err != nil && !errors.As(err, &damage) {
		panic(state.Fault{Err: err})
	}
	return v, ok
}

// execution checks that header, journal, promise, task and listing entry of one execution agree.
func (a *auditor) execution(ns string, h state.Header, entries []journal.Entry) {
	a.journal(ns, h.ID, entries)
	a.headerOfJournal(ns, h, entries)
	if class := classOfStatus(h.Status); class != 0 && !a.Has(keys.VisibilityOf(ns, class, h.CreatedMS, h.ID)) {
		a.found(ns, h.ID, RuleListing, "%s since %d, and not listed as that", h.Status, h.CreatedMS)
	}
	a.grace(ns, h)
	a.incarnation(ns, h)
	a.purge(ns, h)
	purging := a.belowPurge(ns, h)
	if !purging {
		a.cleanup(ns, h, entries)
	}
	p, ok := a.storedPromise(ns, h.ID)
	if !ok {
		a.found(ns, h.ID, RuleOrphanExecution, "an execution without a promise")
		return
	}
	a.headerOfPromise(ns, h, p)
	t, ok := a.storedTask(ns, h.ID)
	switch {
	case h.Kind == state.KindGraph:
		if ok {
			a.found(ns, h.ID, RuleOrphanExecution, "a graph run with a task")
		}
		if !purging {
			a.graphRun(ns, h, entries)
		}
	case !ok:
		a.found(ns, h.ID, RuleOrphanExecution, "an execution without a task")
	case (t.State == recovery.TaskSuspended) != (h.Status == journal.StatusBlocked):
		a.found(ns, h.ID, RuleSuspended, "the execution is %s, the task %s", h.Status, t.State)
	}
	switch {
	case !h.Status.Terminal() && p.State != recovery.PromisePending:
		a.found(ns, h.ID, RuleEnding, "the execution is %s, its promise %s", h.Status, p.State)
	case len(entries) > 0 && h.Status.Terminal():
		a.ending(ns, h, entries[len(entries)-1].Event, p)
	}
	replay, err := journal.NewReplay(id.PromiseID(h.ID), entries, journal.WithRetryBound(state.RetryBound))
	if err != nil {
		return // the journal is broken, and said to be
	}
	if h.Kind != state.KindGraph && !purging {
		a.results(ns, h, entries, replay)
	}
	if !h.Status.Terminal() && p.State == recovery.PromisePending {
		a.openExecution(ns, h, replay, p)
	}
}

// headerOfJournal compares a header with the journal.
func (a *auditor) headerOfJournal(ns string, h state.Header, entries []journal.Entry) {
	bad := func(format string, args ...any) { a.found(ns, h.ID, RuleHeader, format, args...) }
	if status := journal.StatusOf(entries); status != h.Status {
		bad("the journal is %s, the header says %s", status, h.Status)
	}
	if uint64(len(entries)) != h.Events {
		bad("the journal has %d entries, the header says %d", len(entries), h.Events)
	}
	if i := slices.IndexFunc(entries, func(e journal.Entry) bool { return e.Event != nil && !state.IsRecord(e.Event) }); h.Leaf && i >= 0 {
		bad("the header says that the journal has only records, and entry %d is none", entries[i].Seq)
	}
	if len(entries) == 0 {
		return
	}
	if s, ok := entries[0].Event.(journal.ExecutionStarted); ok &&
		(s.ComponentDigest != h.Digest || string(s.Parent) != h.Parent || entries[0].Time != h.CreatedMS) {
		bad("the journal begins at %d with digest %q and parent %q, the header says %d, %q and %q",
			entries[0].Time, s.ComponentDigest, s.Parent, h.CreatedMS, h.Digest, h.Parent)
	}
	closed := int64(0)
	if last := entries[len(entries)-1]; h.Status.Terminal() {
		closed = last.Time
	}
	if closed != h.ClosedMS {
		bad("it is %s, ended at %d, the header says %d", h.Status, closed, h.ClosedMS)
	}
}

// headerOfPromise compares a header with the execution's own promise.
func (a *auditor) headerOfPromise(ns string, h state.Header, p recovery.Promise) {
	deadline := h.DeadlineMS
	if deadline == 0 {
		deadline = state.Never
	}
	target := state.Target(h.Function, h.Digest)
	switch {
	case h.Kind == state.KindGraph:
		target = ""
	case p.Target == h.Function:
		target = h.Function // pinned to no digest, or started before the state pinned any
	}
	if p.Target != target || state.OfGraph(p) != (h.Kind == state.KindGraph) || p.Incarnation != h.Incarnation || p.TimeoutAt != deadline || p.CreatedAt > h.CreatedMS && h.Former == 0 {
		a.found(ns, h.ID, RuleHeader, "the promise is of %q, incarnation %d, made at %d with deadline %d; the header has %q, %d, %d and %d",
			p.Target, p.Incarnation, p.CreatedAt, p.TimeoutAt, h.Function, h.Incarnation, h.CreatedMS, deadline)
	}
	if h.Incarnation > a.newest {
		a.found(ns, h.ID, RuleHeader, "it began at index %d, the state is at %d", h.Incarnation, a.newest)
	}
	tags := h.Tags
	if h.Kind == state.KindGraph {
		tags = state.WithGraphTag(tags)
		slices.SortFunc(tags, func(x, y recovery.Tag) int { return strings.Compare(x.Key, y.Key) })
	}
	if !slices.Equal(tags, p.Tags) {
		a.found(ns, h.ID, RuleHeader, "the promise has the tags %q, the header %q", p.Tags, tags)
	}
	if done := h.LastState == recovery.TaskFulfilled; len(h.LastCommit) > 0 && (!h.LastState.Valid() || done && !h.Status.Terminal()) {
		a.found(ns, h.ID, RuleHeader, "its last commit left the task %s, and it is %s", h.LastState, h.Status)
	}
	if h.Problem != "" && h.Releases == 0 {
		a.found(ns, h.ID, RuleHeader, "it was never given back, and says why: %q", h.Problem)
	}
	if h.FailedAttempts >= max(h.Retry.Attempts, 1) {
		a.found(ns, h.ID, RuleHeader, "%d attempts have failed before the present one, and it has %d", h.FailedAttempts, max(h.Retry.Attempts, 1))
	}
	if called := h.ParentPromise != ""; called != (h.Parent != "") || called != (h.ParentIncarnation != 0) {
		a.found(ns, h.ID, RuleHeader, "called by %q of incarnation %d for promise %q", h.Parent, h.ParentIncarnation, h.ParentPromise)
	}
}

// grace checks that exactly the cancelling executions have a grace, and that it is in the deadline index.
func (a *auditor) grace(ns string, h state.Header) {
	if (h.GraceAt != 0) != (h.Status == journal.StatusCancelling) {
		a.found(ns, h.ID, RuleHeader, "it is %s and has a grace until %d", h.Status, h.GraceAt)
	}
	if h.ChildrenFrom != 0 && h.ChildrenAt == 0 || h.ChildrenAt != 0 && h.Status != journal.StatusCancelling && !h.Status.Terminal() {
		a.found(ns, h.ID, RuleHeader, "it is %s, and its children from %d on are reached at %d", h.Status, h.ChildrenFrom, h.ChildrenAt)
	}
	if h.ChildrenAt != 0 && !a.Has(keys.DeadlineOf(keys.DeadlineChildren, h.ChildrenAt, ns, h.ID)) {
		a.found(ns, h.ID, RuleDeadline, "its children are reached at %d, which is not in the index", h.ChildrenAt)
	}
	if h.HeartbeatAt != 0 && (h.Status.Terminal() || h.Kind == state.KindGraph) {
		a.found(ns, h.ID, RuleHeartbeat, "it is %s, and its header has a heartbeat at %d", h.Status, h.HeartbeatAt)
	}
	if h.Terminated && h.Status != journal.StatusCancelled {
		a.found(ns, h.ID, RuleHeader, "it was terminated, and is %s", h.Status)
	}
	if h.ClosePolicy != state.CloseFollow && h.ParentPromise != h.ID {
		a.found(ns, h.ID, RuleHeader, "it has close policy %d, and no parent in this partition", h.ClosePolicy)
	}
	if h.GraceAt != 0 && !a.Has(keys.DeadlineOf(keys.DeadlineGrace, h.GraceAt, ns, h.ID)) {
		a.found(ns, h.ID, RuleDeadline, "its grace until %d is not in the index", h.GraceAt)
	}
}

// ending is the ending table: what the end of a journal makes of the promise.
func (a *auditor) ending(ns string, h state.Header, last journal.Event, p recovery.Promise) {
	var want []byte
	fits := false
	switch e := last.(type) {
	case journal.ExecutionCompleted:
		fits = p.State == recovery.PromiseResolved
		want = recovery.AppendOutcome(nil, recovery.Outcome{Data: e.Result})
	case journal.ExecutionFailed:
		fits = p.State == recovery.PromiseRejected
		want = e.Error
	case journal.ExecutionCancelled:
		switch p.State {
		case recovery.PromiseRejectedCanceled:
			fits = true
			want = state.EncodeFailure(state.FailureCancelled, e.Reason)
		case recovery.PromiseRejectedTimedout:
			fits = e.Reason == "timed out"
		}
	default:
		return // the header is wrong, and said to be
	}
	switch {
	case !fits:
		a.found(ns, h.ID, RuleEnding, "the journal ends with %s, the promise is %s", last.Kind(), p.State)
	case p.State == recovery.PromiseRejectedTimedout && p.SettledAt > h.ClosedMS, p.State != recovery.PromiseRejectedTimedout && p.SettledAt != h.ClosedMS:
		a.found(ns, h.ID, RuleEnding, "it was closed at %d, its promise settled at %d", h.ClosedMS, p.SettledAt)
	case !bytes.Equal(want, p.Value):
		a.found(ns, h.ID, RuleEnding, "the journal ends with %s of %d bytes, the promise has another value of %d", last.Kind(), len(want), len(p.Value))
	}
}

// openExecution checks an execution that has not ended: its waits and its operations.
func (a *auditor) openExecution(ns string, h state.Header, replay *journal.Replay, p recovery.Promise) {
	s := replay.State()
	if s.WaitSatisfied() && p.Live(a.report.ClockMS) {
		a.found(ns, h.ID, RuleWaitResumed, "it is Blocked, and its wait is satisfied")
	}
	for n := range s.NextChild() {
		if r, ok := replay.Lookup(id.PromiseID(h.ID).Child(n)); ok && h.Kind != state.KindGraph {
			a.operation(ns, h, r)
		}
	}
	a.openSteps(ns, h, s)
	a.strangers(ns, h, replay)
	if h.Kind == state.KindGraph {
		return
	}
	for _, promise := range s.OpenSignals() {
		p, _ := a.storedPromise(ns, string(promise))
		if _, _, buffered := s.NextReceipt(string(p.Param)); buffered {
			a.found(ns, h.ID, RuleStuck, "%q waits for a signal %q, and there is one", promise, p.Param)
		}
	}
	a.waitCallbacks(ns, h, s)
	if why := a.wakeless(ns, h, s, p); why != "" {
		a.found(ns, h.ID, RuleStuck, "%s", why)
	}
}

// operation checks that an operation without a result has a pending promise that will bring one.
func (a *auditor) operation(ns string, h state.Header, r journal.Recorded) {
	if r.Resolved {
		return
	}
	p, ok := a.storedPromise(ns, string(r.Promise))
	pending := ok && p.State == recovery.PromisePending
	bad := func(what string) {
		found := "missing"
		if ok {
			found = p.State.String()
		}
		a.found(ns, h.ID, RuleOperation, "%s %q is open, and its promise is %s: target %q, timer %t, deadline %d, incarnation %d",
			what, r.Promise, found, p.Target, p.Timer, p.TimeoutAt, p.Incarnation)
	}
	switch {
	case r.Call == journal.KindTimerScheduled && ok && p.State == recovery.PromiseRejectedCanceled:
		// The execution has cancelled it.
	case r.Call == journal.KindTimerScheduled:
		if !pending || !p.Timer || p.TimeoutAt != r.FireAt || !h.Belongs(p.Incarnation) {
			bad("timer")
		}
	case r.Call == journal.KindInvokeScheduled && r.Invoke == journal.InvokeFunction:
		switch child, here := a.storedHeader(ns, string(r.Promise)); {
		case ok && !pending && r.Open == 0 && h.Status == journal.StatusCancelling:
			// It ended before a worker began it, and nothing begins while its caller is cancelling.
		case !pending:
			bad("child")
		case here && h.Attached == 0 && h.Status != journal.StatusCancelling && r.Retries != child.FailedAttempts:
			a.found(ns, h.ID, RuleOperation, "child %q has failed %d times, the journal has %d", r.Promise, child.FailedAttempts, r.Retries)
		case p.Target == "" && (!p.External || !h.Belongs(p.Incarnation)):
			bad("child elsewhere")
		case p.Target != "" && (!here || child.ParentPromise != string(r.Promise) || !h.Belongs(child.ParentIncarnation)):
			bad("child of another caller")
		}
	case r.Call == journal.KindInvokeScheduled && r.Invoke == journal.InvokeSignal:
		if !pending || !state.OfSignal(p) || string(p.Param) != r.Function || !h.Belongs(p.Incarnation) || r.Open != 1 {
			bad("wait for a signal")
		}
	case r.Call == journal.KindInvokeScheduled && r.Invoke == journal.InvokeSend:
		if !pending || !state.OfSend(p) || !h.Belongs(p.Incarnation) || r.Open != 1 {
			bad("send")
		} else if state.OfNewPromise(p) && !state.HasSecret(p, r.Input) {
			bad("promise of another secret")
		}
	case r.Call == journal.KindExecutionAwaiting && h.Status == journal.StatusBlocked:
		if !pending || !p.External || p.Incarnation != h.Incarnation {
			bad("signal wait")
		}
	}
}

// strangers checks the promises named like operations of an execution: the journal lists each, and one whose
// result it records is settled.
func (a *auditor) strangers(ns string, h state.Header, replay *journal.Replay) {
	prefix := operations(ns, h.ID)
	a.Scan(prefix, keys.After(prefix), func(_, value []byte) bool {
		p, err := recovery.DecodePromise(value)
		if err != nil {
			return true
		}
		n, direct := id.PromiseID(p.ID).IsChildOf(id.PromiseID(h.ID))
		if !direct || p.Target == "" && p.Incarnation != h.Incarnation || n >= state.FirstCleanup && p.Incarnation != h.Incarnation {
			return true
		}
		switch r, ok := replay.Lookup(id.PromiseID(p.ID)); {
		case !ok && h.SweepAt != 0:
		case !ok || !hasPromise(r) && h.Kind != state.KindGraph:
			a.found(ns, p.ID, RuleOperation, "the promise of an operation that the journal of %q does not know", h.ID)
		case r.Resolved && p.State == recovery.PromisePending:
			a.found(ns, p.ID, RuleOperation, "a pending promise, whose result the journal of %q has", h.ID)
		}
		return true
	})
}

// hasPromise reports whether an operation has a promise in addition to its journal entries. A send has one if
// another partition answers it.
func hasPromise(r journal.Recorded) bool {
	switch r.Call {
	case journal.KindTimerScheduled, journal.KindExecutionAwaiting, journal.KindSignalReceived:
		return true
	case journal.KindInvokeScheduled:
		return r.Invoke == journal.InvokeFunction || r.Invoke == journal.InvokeSend || r.Invoke == journal.InvokeSignal
	}
	return false
}
