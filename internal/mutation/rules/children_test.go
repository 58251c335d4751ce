package rules

import "perdure/internal/mutation"

// childrenBugs break where children start and how they end with their parents.
var childrenBugs = []mutation.Bug{
	{
		File: "fsm/machine/execution.go", Rule: "children: the end of a parent reaches them",
		From: "	t.reachChildren(ex)\n", To: "", Tests: "TestClosePolicies",
	},
	{
		File: "fsm/machine/cancel.go", Rule: "children: a cancel reaches them",
		From: "	t.reachChildren(ex)\n", To: "", Tests: "TestClosePolicies",
	},
	{
		File: "fsm/machine/children.go", Rule: "children: what one command did not reach is reached by the next",
		From: "			t.reachFrom(ex, n)\n			return\n", To: "			return\n", Tests: "TestCancelReachesAllChildren",
	},
	{
		File: "fsm/machine/children.go", Rule: "children: one command reaches a bounded number",
		From: "if left--; left < 0 {", To: "if left < 0 {", Tests: "TestCancelReachesAllChildren",
	},
	{
		File: "fsm/machine/children.go", Rule: "children: an abandoned one is not cancelled with its parent",
		From: "return end, policy != state.CloseAbandon", To: "return end, true", Tests: "TestClosePolicies",
	},
	{
		File: "fsm/machine/children.go", Rule: "children: one without a policy runs on after its parent has completed",
		From: "return end, h.Status == journal.StatusCancelled", To: "return end, true", Tests: "TestClosePolicies",
	},
	{
		File: "fsm/machine/children.go", Rule: "children: a terminated parent terminates",
		From: "end.terminate = h.Terminated\n", To: "", Tests: "TestClosePolicies",
	},
	{
		File: "fsm/machine/children.go", Rule: "children: a delayed one is cancelled at once",
		From: "case p.DelayUntil > t.now:", To: "case p.DelayUntil > t.now && end.terminate:", Tests: "TestChildDelay",
	},
	{
		File: "fsm/machine/sweep.go", Rule: "children: a new incarnation ends those with a policy",
		From: "t.endSwept(ex.ns, objectID)", To: "t.erasePromise(ex.ns, objectID)", Tests: "TestClosePolicyContinueAsNew",
	},
	{
		File: "fsm/machine/deliver.go", Rule: "children: one with an id of its own is replaced only for a restart",
		From: "ok && w.Again && old", To: "ok && old", Tests: "TestChildOwnIDAfterContinueAsNew",
	},
	{
		File: "fsm/machine/start_detached.go", Rule: "children: a detached start of a taken id is a conflict",
		From: "return conflict(refused.Message), nil", To: "return done, nil", Tests: "TestDetachedStart",
	},
	{
		File: "fsm/machine/signal.go", Rule: "signal with start: an open execution is not started again",
		From: "case !ok || replaces(start.Reuse, ex):", To: "case !ok || replaces(start.Reuse, ex) || start.Reuse != 0:", Tests: "TestSignalWithStart",
	},
	{
		File: "fsm/machine/signal.go", Rule: "signal with start: the signal is for the function that it would start",
		From: "case ex.h.Function != start.Function && !ex.h.Status.Terminal():", To: "case ex.h.Function == \"\":", Tests: "TestSignalWithStart",
	},
	{
		File: "fsm/machine/signal_call.go", Rule: "signal: one to an ended execution is counted",
		From: "		t.fx.Undelivered++\n		return nil, state.EncodeFailure(state.FailureTargetFinished", To: "		return nil, state.EncodeFailure(state.FailureTargetFinished", Tests: "TestUndeliveredCounted",
	},
	{
		File: "durable/future.go", Rule: "clean-up: a future of the cancelled function is refused",
		From: "case f.ofCleanup() != t.cleaning():", To: "case f.ofCleanup() && !t.cleaning():", Tests: "TestCleanupRefusesFuturesOfTheFunction",
	},
}
