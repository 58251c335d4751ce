package rules

import "perdure/internal/mutation"

// waitingBugs break the promises that functions make for the outside, and their waits for the promises of others.
var waitingBugs = []mutation.Bug{
	{
		File: "fsm/machine/promise_settle.go", Rule: "new promise: a client settles it",
		From: `(t.ownedByExecution(ns, p) && !state.OfNewPromise(p))`, To: `t.ownedByExecution(ns, p)`, Tests: "TestNewPromise",
	},
	{
		File: "fsm/machine/promise_await.go", Rule: "new promise: it times out",
		From: `timeout := t.deadline(w.TimeoutMs)`, To: `timeout := t.deadline(0)`, Tests: "TestNewPromise",
	},
	{
		File: "fsm/machine/promise_await.go", Rule: "awaited promise: one that is settled is answered at once",
		From: `if ok && !p.State.Settled() {`, To: `if ok {`, Tests: "TestAwaitPromise",
	},
	{
		File: "fsm/machine/promise_await.go", Rule: "awaited promise: the answer is its value",
		From: `		outcome = state.OutcomeOf(p)`, To: `		_ = state.OutcomeOf(p)`, Tests: "TestAwaitPromise",
	},
	{
		File: "fsm/machine/promise_await.go", Rule: "awaited promise: an answer is for the incarnation that asked",
		From: `asker{w.PromiseId, msg.FromIncarnation}`, To: `asker{w.PromiseId, msg.FromIncarnation + 1}`, Tests: "TestAwaitPromise",
	},
	{
		File: "fsm/machine/promise_await.go", Rule: "awaited promise: its end notifies the askers",
		From: `text, ok := strings.CutPrefix(address, askerScheme)`, To: `text, ok := strings.CutPrefix(address, askerScheme+"x")`,
		Tests: "TestAwaitPromise",
	},
}
