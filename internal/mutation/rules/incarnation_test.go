package rules

import "perdure/internal/mutation"

// incarnationBugs break what a new incarnation of an execution takes over from the former one, and what it must not.
var incarnationBugs = []mutation.Bug{
	{
		File: "fsm/machine/start.go", Rule: "start again: only a failed execution is replaced, if so asked",
		From: "ex.h.Status.Terminal() && ex.h.Status != journal.StatusCompleted", To: "ex.h.Status.Terminal() && ex.h.Status != journal.StatusNone",
		Tests: "TestStartAgain",
	},
	{
		File: "fsm/machine/start.go", Rule: "start again: an open execution is never replaced",
		From: "return ex.h.Status.Terminal()\n\tcase perdurev1.Reuse_REUSE_IF_FAILED", To: "return true\n\tcase perdurev1.Reuse_REUSE_IF_FAILED",
		Tests: "TestStartAgain",
	},
	{
		File: "fsm/machine/commands.go", Rule: "start again: the same request is answered, not run again",
		From: "r.level, r.stored = state.LevelFunctions, true", To: "r.level = state.LevelFunctions",
		Tests: "TestStartAgain",
	},
	{
		File: "fsm/machine/commit.go", Rule: "incarnation: a worker of the former one effects nothing",
		From: "if token.Incarnation != ex.h.Incarnation {", To: "if token.Incarnation == 0 {",
		Tests: "TestFormerWorker",
	},
	{
		File: "fsm/machine/continue.go", Rule: "incarnation: one entry begins at most one",
		From: "case h.Incarnation == t.index:", To: "case h.Incarnation == t.index+1:",
		Tests: "TestStartAgainRefused",
	},
	{
		File: "fsm/machine/continue.go", Rule: "continue as new: a repeated commit is answered",
		From: "!bytes.Equal(ex.h.LastCommit, cmd.GetRequest().GetId()) {\n\t\treturn nil", To: "bytes.Equal(ex.h.LastCommit, cmd.GetRequest().GetId()) {\n\t\treturn nil",
		Tests: "TestContinueAsNew",
	},
	{
		File: "fsm/machine/continue.go", Rule: "continue as new: signals that were not received are carried over",
		From: "startInput: startInput, signals: signals, lastCommit", To: "startInput: startInput, signals: signals[:0], lastCommit",
		Tests: "TestContinueAsNew",
	},
	{
		File: "fsm/machine/continue.go", Rule: "continue as new: the id is known by the input of its start",
		From: "request: ex.h.StartRequest,\n\t\tstartInput: startInput,", To: "request: ex.h.StartRequest,\n\t\tstartInput: nil,",
		Tests: "TestContinueAsNew",
	},
	{
		File: "fsm/machine/sweep.go", Rule: "sweep: the task waits for its end",
		From: "ex.h.Sweep, ex.h.SweepAt = append([]byte{byte(stage)}, from...), next", To: "ex.h.Sweep, ex.h.SweepAt = append([]byte{byte(stage)}, from...), next+1<<40",
		Tests: "TestSweep",
	},
	{
		File: "fsm/machine/sweep.go", Rule: "sweep: it leaves the promises of clients",
		From: "return false // a promise of a client", To: "return objectID[len(objectID)-1] == 'e' // a promise of a client",
		Tests: "TestSweepLeavesOthers",
	},
	{
		File: "fsm/machine/sweep.go", Rule: "sweep: operations that are kept stay",
		From: "uint32(number) >= ex.h.Kept", To: "(uint32(number) >= ex.h.Kept || ex.h.Kept > 0)",
		Tests: "TestRestartFromEvent",
	},
	{
		File: "fsm/machine/incarnation.go", Rule: "incarnation: it leaves the critical section",
		From: "t.leaveSection(old)\n", To: "",
		Tests: "TestIncarnationLeavesSection",
	},
	{
		File: "fsm/machine/restart.go", Rule: "restart: a cut within a wait is one before the wait",
		From: "if waits >= 0 {", To: "if waits > 1<<20 {",
		Tests: "TestRestartCut",
	},
	{
		File: "fsm/machine/restart.go", Rule: "retry: a child that failed starts again",
		From: "isDone && isFailure(done.Result)", To: "isDone && len(done.Result) == 0",
		Tests: "TestRetryFailed",
	},
	{
		File: "fsm/machine/restart.go", Rule: "restart: a child does not begin twice within one entry",
		From: "return ok && h.Incarnation == t.index\n", To: "return ok && h.Incarnation > t.index\n",
		Tests: "TestRestartNewChildrenInOneEntry",
	},
	{
		File: "fsm/machine/deliver.go", Rule: "restart: a child elsewhere does not begin twice within one entry",
		From: "if t.waitsForEntry(msg) {", To: "if t.waitsForEntry(msg) && msg.Seq == 0 {",
		Tests: "TestRestartNewChildrenInOneEntry",
	},
	{
		File: "fsm/machine/deliver.go", Rule: "restart: a former child's late result is dropped",
		From: "p.Incarnation != msg.ToIncarnation ||", To: "p.Incarnation < msg.ToIncarnation ||",
		Tests: "TestRestartNewChildrenLateResults",
	},
	{
		File: "fsm/machine/chain.go", Rule: "restart: operations that are kept bring their results",
		From: "!ex.h.Belongs(incarnation) {", To: "incarnation != ex.h.Incarnation {",
		Tests: "TestRestartFromEvent",
	},
}
