package rules

import (
	"time"

	"perdure/internal/mutation"
)

// versionBugs break the pinning of executions to versions of code, and what becomes of code that does not fit
// a journal.
var versionBugs = []mutation.Bug{
	{
		File: "fsm/machine/version.go", Rule: "versions: a child has its caller's digest only if workers of that serve its function",
		From: "callers != \"\" && known.Knows(callers) {", To: "callers != \"\" {", Tests: "TestDigestOfChildren",
	},
	{
		File: "fsm/machine/register.go", Rule: "versions: a worker that comes back changes no current digest",
		From: "req.Digest != \"\" && !known.Knows(req.Digest)", To: "req.Digest != \"\"", Tests: "TestDigestPins",
	},
	{
		File: "fsm/machine/execution.go", Rule: "versions: a pinned task waits in the queue of its digest",
		From: "Target: t.pinnedTarget(b.function, b.digest),", To: "Target: b.function,", Tests: "TestDigestPins",
	},
	{
		File: "fsm/machine/version.go", Rule: "versions: a worker without a digest gets all",
		From: "			digests = t.m.pinned[q]\n", To: "			digests = nil\n", Tests: "TestDigestPins",
	},
	{
		File: "fsm/machine/version.go", Rule: "versions: nothing is pinned below its level",
		From: "if t.m.feature < state.LevelFunctions || !state.Pinned(function)", To: "if !state.Pinned(function)", Tests: "TestDigestPinsByLevel",
	},
	{
		File: "fsm/machine/incarnation.go", Rule: "versions: the promise of an open execution moves to the new digest's queue",
		From: "p.Incarnation, p.Target, p.DelayUntil = t.index, target, 0", To: "p.Incarnation, p.DelayUntil = t.index, 0", Tests: "TestStuckCode TestDigestOfChildren",
	},
	{
		File: "fsm/machine/continue.go", Rule: "versions: a loop takes new code at its next turn",
		From: "digest: t.nextDigest(ex),", To: "digest: ex.h.Digest,", Tests: "TestDigestOfChildren",
	},
	{
		File: "fsm/machine/version.go", Rule: "stuck code: the same code does not get it again",
		From: "		if string(value) != code {", To: "		if len(value) > 0 {", Tests: "TestStuckCode",
	},
	{
		File: "fsm/machine/store.go", Rule: "stuck code: an execution that is stuck no more is not listed",
		From: "old.State == recovery.TaskHalted && task.State != recovery.TaskHalted", To: "false", Tests: "TestStuckCode",
	},
	{
		File: "fsm/machine/release.go", Rule: "stuck code: it is not retried by time",
		From: "if req.CodeMismatch && t.m.feature", To: "if false && t.m.feature", Tests: "TestStuckCode",
	},
	{
		File: "fsm/query/worker.go", Rule: "stuck code: a worker of other code asks for it",
		From: "		found = string(value) != code\n", To: "		found = string(value) == code\n", Tests: "TestStuckCode", Pkg: "fsm/machine",
	},
	{
		File: "durable/run.go", Rule: "replay check: it runs no step that the journal has begun",
		From: "		t.frontier(\"the code runs a step\")\n", To: "", Tests: "TestReplayCheckRunsNothing", Hangs: 10 * time.Second,
	},
	{
		File: "durable/replay_check.go", Rule: "replay check: code that goes beyond an ended journal differs",
		From: "	case *perdurev1.Event_ExecutionCompleted, *perdurev1.Event_ExecutionFailed:\n		t.check.err", To: "	case nil:\n		t.check.err", Tests: "TestReplayCheck",
	},
	{
		File: "partition/workers/session.go", Rule: "versions: the credit of a worker of another digest is not for the task",
		From: "(q.Digest == \"\" || len(s.Digests) == 0 || slices.Contains(s.Digests, q.Digest))", To: "true", Tests: "TestDigestsServed",
	},
}
