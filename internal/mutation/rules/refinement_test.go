package rules

import "perdure/internal/mutation"

// refinementBugs break what the refinement check of executions finds: what comes of a step elsewhere, or later.
var refinementBugs = []mutation.Bug{
	{
		File: "fsm/machine/sweep.go", Rule: "sweep: the section of a child that it deletes ends",
		From: "		t.leaveSection(ex)\n		t.dropHeartbeats(ex)\n	}\n	t.detach(ex)", To: "		t.dropHeartbeats(ex)\n	}\n	t.detach(ex)", Tests: "TestExecutionsWithEntities",
	},
	{
		File: "fsm/machine/entity_section.go", Rule: "entities: an answer to a former incarnation's call is not the new one's",
		From: "if !ok || p.Incarnation != incarnation || !state.OfSend(p)", To: "if !ok || !state.OfSend(p)", Tests: "TestExecutionsWithEntities",
	},
	{
		File: "fsm/machine/restart.go", Rule: "restart: a wait whose cancel is not kept is open again",
		From: "call.reopen = true\n", To: "call.reopen = false\n", Tests: "TestRestartBeforeCancelOfWait",
	},
	{
		File: "fsm/machine/cancel_operation.go", Rule: "restart: a wait for a promise that is open again asks again",
		From: "if state.OfAwait(p) {\n\t\tt.mustNot", To: "if state.OfAwait(p) && call.begun {\n\t\tt.mustNot", Tests: "TestRestartBeforeCancelOfWait",
	},
	{
		File: "fsm/machine/incarnation.go", Rule: "incarnation: one whose deadline has expired ends as it begins",
		From: "if !pending {", To: "if !pending && s.deadlineMS > t.now {", Tests: "TestChildBeginsAgainAfterItsDeadline",
	},
	{
		File: "fsm/machine/sweep.go", Rule: "sweep: it waits for clean-ups only with what they need",
		From: "{family: keys.Promise, passes: true}, {family: keys.Header}, {family: keys.Promise},", To: "{family: keys.Header}, {family: keys.Promise}, {family: keys.Promise},", Tests: "TestCleanupDoesNotKeepOthersOpen",
	},
	{
		File: "fsm/machine/incarnation.go", Rule: "incarnation: a child that begins again has no delay",
		From: "p.Incarnation, p.Target, p.DelayUntil = t.index, target, 0", To: "p.Incarnation, p.Target = t.index, target", Tests: "TestChildBegunAgainHasNoDelay",
	},
	{
		File: "fsm/machine/restart.go", Rule: "restart: the timeout of a wait is no signal",
		From: "ok && !isFailure(signal.Payload) {", To: "ok {", Tests: "TestExecutionRefinement TestRestartForgetsTimeouts",
	},
	{
		File: "fsm/machine/children.go", Rule: "restart: a former child does not answer for the one that begins",
		From: "	t.erasePromise(ns, objectID)\n	if !ok || p.State.Settled() {\n		return\n	}\n", To: "	defer t.erasePromise(ns, objectID)\n	if !ok || p.State.Settled() {\n		return\n	}\n",
		Tests: "TestRestartCancelsFormerChild",
	},
	{
		File: "fsm/machine/restart.go", Rule: "restart: a child that begins again keeps its retries and tags",
		From: "at.policy, at.retry, at.tags = former.Policy, former.Retry, former.Tags; former.OwnID", To: "at.policy = former.Policy; former.OwnID",
		Tests: "TestRestartKeepsChildOptions",
	},
	{
		File: "fsm/machine/continue.go", Rule: "children: an end reaches them before the id begins again",
		From: "	if h.ChildrenAt != 0 {", To: "	if h.ChildrenAt != 0 && h.ChildrenFrom > 1<<20 {", Tests: "TestNewIncarnationAfterEndReachesChildren",
	},
	{
		File: "fsm/machine/cleanup.go", Rule: "clean-up: only of the terminated execution there is none",
		From: "	if t.terminating == ex {", To: "	if t.terminating != nil {", Tests: "TestTerminateLeavesCleanupOfCaller",
	},
	{
		File: "fsm/machine/attempt.go", Rule: "children: the next attempt gets the input of the failed one",
		From: "input: t.firstEntry(ex).Input, request: ex.h.StartRequest,", To: "input: e.Error, request: ex.h.StartRequest,", Tests: "TestExecutionRefinement",
	},
	{
		File: "fsm/machine/attempt.go", Rule: "children: a failed attempt's signals are delivered again",
		From: "startInput: ex.h.StartInput, signals: signals, lastCommit", To: "startInput: ex.h.StartInput, signals: signals[:0], lastCommit", Tests: "TestChildRetry",
	},
	{
		File: "fsm/machine/attempt.go", Rule: "children: the server writes what an attempt of a running caller failed with",
		From: "inv.Retries < inv.Bound && caller.h.Status != journal.StatusCancelling {", To: "inv.Retries < inv.Bound && caller.h.Status == journal.StatusRunning {", Tests: "TestExecutionRefinement",
	},
	{
		File: "fsm/machine/continue.go", Rule: "continue-as-new: signals that were not received are carried over in their order",
		From: "		out = append(out, journal.SignalDelivered{Name: d.Name, Payload: payload})\n",
		To:   "		out = append([]journal.SignalDelivered{{Name: d.Name, Payload: payload}}, out...)\n", Tests: "TestExecutionRefinement",
	},
	{
		File: "fsm/machine/chain.go", Rule: "cancel: the grace lasts as long as its caller said",
		From: "ex.h.GraceAt == 0 || ex.h.GraceAt > t.now {", To: "ex.h.GraceAt == 0 || ex.h.GraceAt > t.now+50 {", Tests: "TestExecutionRefinement TestGraceOnTouch",
	},
	{
		File: "fsm/machine/children.go", Rule: "children: a cancel or an end is told to one in another place",
		From: "	end, ok := endingOf(child.Policy)\n	if !ok {", To: "	end, ok := endingOf(child.Policy)\n	if !ok || !end.terminate {", Tests: "TestExecutionRefinement",
	},
	{
		File: "fsm/machine/incarnation.go", Rule: "incarnations: a child's caller waits for the next incarnation, too",
		From: "Parent: h.Parent, ParentIncarnation: h.ParentIncarnation,\n		ParentPromise: h.ParentPromise, StartRequest: s.request", To: "Parent: h.Parent, ParentIncarnation: h.ParentIncarnation + 1,\n		ParentPromise: h.ParentPromise, StartRequest: s.request", Tests: "TestExecutionRefinement",
	},
	{
		File: "fsm/machine/notify.go", Rule: "promises: who asks for a pending one hears of its value",
		From: "		t.store(ns).AddListener(msg.ToId, from.address())\n		return nil\n	}\n	outcome", To: "		return nil\n	}\n	outcome", Tests: "TestExecutionRefinement",
	},
}
