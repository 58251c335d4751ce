package rules

import "perdure/internal/mutation"

// waitingBugs break the promises that functions make for the outside, and their waits for the promises of others.
var waitingBugs = []mutation.Bug{
	{
		File: "fsm/wire/token.go", Rule: "promise: a token names the promise of its incarnation",
		From: "incarnation == 0 || incarnation >= p.Incarnation {", To: "incarnation >= 0 {", Pkg: "fsm/machine", Tests: "TestTokenOfFormerIncarnation",
	},
	{
		File: "fsm/wire/token.go", Rule: "promise: a promise that a restart keeps has the tokens of both",
		From: "incarnation == 0 || incarnation >= p.Incarnation {", To: "incarnation == 0 || incarnation == p.Incarnation {", Pkg: "fsm/machine", Tests: "TestTokenOfFormerIncarnation",
	},
	{
		File: "fsm/machine/promise_settle.go", Rule: "new promise: a client settles it",
		From: `(t.ownedByExecution(ns, p) && !state.OfNewPromise(p))`, To: `t.ownedByExecution(ns, p)`, Tests: "TestNewPromise",
	},
	{
		File: "fsm/machine/promise_settle.go", Rule: "new promise: one with a secret is settled by its token alone",
		From: "!state.HasSecret(p, nil) && !state.HasSecret(p, req.Secret)", To: "!state.HasSecret(p, nil) && len(req.Secret) == 0", Tests: "TestPromiseSecret",
	},
	{
		File: "fsm/state/outcome.go", Rule: "new promise: readers do not see its secret", Pkg: "fsm/machine",
		From: "return hex.EncodeToString(sum[:16])", To: "return string(secret) + hex.EncodeToString(sum[:0])", Tests: "TestPromiseSecret",
	},
	{
		File: "fsm/machine/promise_await.go", Rule: "new promise: it times out",
		From: `timeout := t.deadline(w.TimeoutMs)`, To: `timeout := t.deadline(0)`, Tests: "TestNewPromise",
	},
	{
		File: "fsm/machine/notify.go", Rule: "awaited promise: one that is settled is answered at once",
		From: "	if !p.State.Settled() {\n		t.store", To: "	if p.ID != \"\" {\n		t.store", Tests: "TestAwaitPromise",
	},
	{
		File: "fsm/machine/notify.go", Rule: "awaited promise: the answer is its value",
		From: "	outcome := state.OutcomeOf(p)\n", To: "	outcome := state.OutcomeOf(recovery.Promise{State: recovery.PromiseResolved})\n", Tests: "TestAwaitPromise",
	},
	{
		File: "fsm/machine/notify.go", Rule: "awaited promise: an answer is for the incarnation that asked",
		From: `asker{w.PromiseId, msg.FromIncarnation}`, To: `asker{w.PromiseId, msg.FromIncarnation + 1}`, Tests: "TestAwaitPromise",
	},
	{
		File: "fsm/machine/notify.go", Rule: "listeners: the settlement notifies a bounded number",
		From: "		if len(next) == most {", To: "		if len(next) == 1<<30 {", Tests: "TestListenersByBytes",
	},
	{
		File: "fsm/machine/notify.go", Rule: "listeners: an entry notifies no more than its bytes",
		From: "n := min(b.listeners, b.bytes/max(size, 1))", To: "n := b.listeners", Tests: "TestListenersByBytes",
	},
	{
		File: "fsm/machine/notify.go", Rule: "listeners: one gets its value however large that is",
		From: "if n < 1 && !b.begun {", To: "if n < 1 && b.listeners < 0 {", Tests: "TestListenersByBytes",
	},
	{
		File: "fsm/machine/notify.go", Rule: "listeners: what is left is notified by the next tick",
		From: "		t.notifyLater(ns, p.ID, rest)\n", To: "", Tests: "TestListenersByBytes",
	},
	{
		File: "fsm/machine/notify.go", Rule: "listeners: none is notified twice",
		From: "		t.remove(keys.Of(keys.Listener, ns, p.ID, address))\n", To: "		_ = address\n", Tests: "TestListenersByBytes",
	},
	{
		File: "fsm/machine/notify.go", Rule: "listeners: those registered meanwhile are notified, too",
		From: `if rest == "" && from != "" {`, To: `if rest == "" && from == "-" {`, Tests: "TestListenersInParts",
	},
	{
		File: "fsm/machine/notify.go", Rule: "listeners: the askers for a settled promise count",
		From: "	t.m.notified.take(1, len(outcome))\n", To: "", Tests: "TestAskersInParts",
	},
	{
		File: "fsm/machine/continue.go", Rule: "listeners: a new incarnation waits until all have the former value",
		From: "	if t.notifying(ex.ns, h.ID) {", To: "	if t.notifying(ex.ns, h.Parent) {", Tests: "TestNewIncarnationAfterNotification",
	},
	{
		File: "fsm/machine/deliver.go", Rule: "listeners: a child elsewhere begins again when all have its former result",
		From: "old.h.Incarnation == t.index || t.notifying(msg.Namespace, msg.ToId) && !t.released(msg.Namespace, msg.ToId, nil)", To: "old.h.Incarnation == t.index",
		Tests: "TestChildAgainAfterNotification",
	},
	{
		File: "fsm/machine/restart.go", Rule: "listeners: a child begins again when all have its former result",
		From: "t.notifying(old.ns, string(promise)) || t.notifying(old.ns, child.ID)", To: "t.notifying(old.ns, child.ID)", Tests: "TestChildAgainAfterNotification",
	},
	{
		File: "fsm/machine/retry_graph.go", Rule: "listeners: a run is retried when all have the results of its nodes",
		From: "if t.notifyingOperations(ns, h.ID) {", To: "if t.notifyingOperations(ns, h.Parent) {", Tests: "TestRetryGraphAfterNotification",
	},
	{
		File: "fsm/machine/sweep.go", Rule: "listeners: a sweep deletes an execution when all that wait for it have an answer",
		From: "if !t.released(ex.ns, objectID, erased) || !t.reached", To: "if !t.reached", Tests: "TestSweepAfterNotification",
	},
	{
		File: "fsm/machine/sweep.go", Rule: "listeners: a sweep deletes a promise when all that wait for it have an answer",
		From: "				if !t.released(ex.ns, objectID, erased) {\n					return key, false\n				}\n				t.endSwept(", To: "				t.endSwept(", Tests: "TestSweepAfterNotification",
	},
	{
		File: "fsm/machine/purge.go", Rule: "listeners: a purge deletes what is below when all that wait for it have an answer",
		From: "deletes && !t.released(ex.ns, idOfKey(key), erased) {", To: "deletes && idOfKey(key) == \"\" {", Tests: "TestPurgeAfterNotification",
	},
	{
		File: "fsm/machine/purge.go", Rule: "listeners: a promise is purged when all have its value",
		From: "	if t.notifying(ns, req.Id) {", To: "	if t.notifying(ns, \"\") {", Tests: "TestPurgeAfterNotification",
	},
	{
		File: "fsm/machine/promise_await.go", Rule: "awaited promise: its end notifies the askers",
		From: `text, ok := strings.CutPrefix(address, askerScheme)`, To: `text, ok := strings.CutPrefix(address, askerScheme+"x")`,
		Tests: "TestAwaitPromise",
	},
	{
		File: "fsm/machine/attempt.go", Rule: "attempt: one that nobody has acquired has not begun",
		From: `if ok && !inv.Completed && inv.Open == 0 && caller`, To: `if ok && !inv.Completed && inv.Open == 0 && inv.Retries == 0 && caller`, Tests: "TestChildRetry",
	},
	{
		File: "fsm/machine/attempt.go", Rule: "attempt: the policy says how many there are",
		From: `if attempt >= ex.h.Retry.Attempts ||`, To: `if attempt > ex.h.Retry.Attempts ||`, Tests: "TestChildRetryBound",
	},
	{
		File: "fsm/machine/attempt.go", Rule: "attempt: a failure that says so is final",
		From: `err != nil || o.Failure != nil && o.Failure.NonRetryable {`, To: `err != nil || o.Failure == nil {`, Tests: "TestChildRetryEnds",
	},
	{
		File: "fsm/machine/attempt.go", Rule: "attempt: none begins while the caller is cancelling",
		From: `if here && caller.h.Status == journal.StatusCancelling {`, To: `if here && caller.h.Status.Terminal() {`, Tests: "TestChildRetryEnds",
	},
	{
		File: "fsm/machine/attempt.go", Rule: "attempt: the next one gets the signals",
		From: `signals: signals, lastCommit: request,`, To: `signals: signals[:0], lastCommit: request,`, Tests: "TestChildRetry",
	},
	{
		File: "fsm/machine/sweep.go", Rule: "attempt: the next one begins after its pause",
		From: `if ex.h.RetryAt > t.now {`, To: `if ex.h.RetryAt < 0 {`, Tests: "TestChildRetry",
	},
	{
		File: "fsm/machine/attempt.go", Rule: "attempt: what a message says is for one incarnation of the caller",
		From: `p.Incarnation != msg.ToIncarnation || p.Target`, To: `p.Target`, Tests: "TestChildAttemptMessages",
	},
	{
		File: "fsm/machine/incarnation.go", Rule: "attempt: what the failing commit started goes with it",
		From: `if young.born && young != ex {`, To: `if young.born && young == ex {`, Tests: "TestChildRetrySweeps",
	},
	{
		File: "fsm/machine/signal_future.go", Rule: "signal future: one that is there ends it at once",
		From: `if _, _, buffered := c.ex.j.NextReceipt(e.Function); buffered {`, To: `if _, _, buffered := c.ex.j.NextReceipt(e.Function); !buffered && c.over {`, Tests: "TestSignalFuture",
	},
	{
		File: "fsm/machine/signal.go", Rule: "signal future: a delivery ends it",
		From: `		t.signalArrived(ex)`, To: `		_ = t.signalArrived`, Tests: "TestSignalFuture",
	},
	{
		File: "fsm/machine/signal_future.go", Rule: "signal future: another name's delivery does not end it",
		From: `!ok || !buffered {`, To: `!ok || buffered && !ok {`, Tests: "TestSignalFuture",
	},
	{
		File: "fsm/machine/restart.go", Rule: "signal future: a signal that is delivered again ends it",
		From: `	t.signalArrived(ex)`, To: `	_ = t.signalArrived`, Tests: "TestRestartSignalFuture",
	},
	{
		File: "fsm/machine/chain.go", Rule: "cancel: a cancelled timer does not fire",
		From: `if !fired && p.State != recovery.PromiseRejectedCanceled {`, To: `if !fired {`, Tests: "TestCancelOperation",
	},
	{
		File: "fsm/machine/cancel_operation.go", Rule: "cancel: only what is open is cancelled",
		From: `ok && !p.State.Settled() && t.mayCancel(ex, p) {`, To: `ok && t.mayCancel(ex, p) {`, Tests: "TestCancelOperation",
	},
	{
		File: "fsm/machine/cancel_operation.go", Rule: "cancel: no wait for a cancelled timer",
		From: `ok && p.State == recovery.PromiseRejectedCanceled {
			return api`, To: `ok && p.State == recovery.PromiseRejectedTimedout {
			return api`, Tests: "TestCancelOperation",
	},
	{
		File: "fsm/machine/restart.go", Rule: "cancel: a restart before it starts the timer again",
		From: `if !cancelled[promise] {`, To: `if cancelled[promise] {`, Tests: "TestRestartCancelledTimer",
	},
	{
		File: "durable/go_step.go", Rule: "background step: one attempt runs at a time",
		From: `if s.running || s.begin.After(t.w.clock.Now()) || b.running() >= maxBackground {`, To: `if s.begin.After(t.w.clock.Now()) || b.running() >= maxBackground {`, Tests: "TestGoStepRunsOnce",
	},
}
