package rules

import "perdure/internal/mutation"

// cleanupBugs break the clean-ups of cancelled executions, in the machine and in the SDK.
var cleanupBugs = []mutation.Bug{
	{
		File: "fsm/machine/execution.go", Rule: "clean-up: it starts in the apply that ends the execution",
		From: "	defer t.startCleanup(ex)\n", To: "", Tests: "TestCleanupStarts",
	},
	{
		File: "fsm/machine/cleanup.go", Rule: "clean-up: a terminated execution gets none",
		From: "	if t.terminating == ex {", To: "	if t.terminating != nil && ex.h.CleanupMS < 0 {", Tests: "TestCleanupStarts",
	},
	{
		File: "fsm/machine/cleanup.go", Rule: "clean-up: only a cancelled execution gets one",
		From: "ex.h.Status != journal.StatusCancelled || ex.h.CleanupMS == 0", To: "ex.h.CleanupMS == 0", Tests: "TestCleanupStarts",
	},
	{
		File: "fsm/machine/cleanup.go", Rule: "clean-up: nothing is registered after the cancel request",
		From: "case c.req.CleanupMs == 0, h.Status != journal.StatusRunning:", To: "case c.req.CleanupMs == 0:", Tests: "TestCleanupBounded",
	},
	{
		File: "fsm/machine/cleanup.go", Rule: "clean-up: it ends at its bound",
		From: "deadlineMS: t.deadline(ex.h.CleanupMS),", To: "deadlineMS: 0 * t.deadline(ex.h.CleanupMS),", Tests: "TestCleanupStarts TestCleanupBounded",
	},
	{
		File: "fsm/machine/cleanup.go", Rule: "clean-up: a worker that knows none does not get it",
		From: "function: state.FunctionCleanup + ex.h.Function,", To: "function: ex.h.Function,", Tests: "TestCleanupStarts",
	},
	{
		File: "fsm/machine/cancel.go", Rule: "cancel: the caller's reason is kept",
		From: "	t.noteReason(ex, reason)\n", To: "", Tests: "TestCancelReasonKept",
	},
	{
		File: "fsm/machine/continue.go", Rule: "clean-up: its journal stays while it runs",
		From: "if t.cleanupOpen(ex.ns, h) {", To: "if false {", Tests: "TestCleanupBeforeRestart",
	},
	{
		File: "fsm/machine/continue.go", Rule: "clean-up: it does not continue as new",
		From: "case ex.h.IsCleanup():", To: "case ex.h.IsCleanup() && ex.h.Generation > 0:", Tests: "TestCleanupBounded",
	},
	{
		File: "fsm/machine/sweep.go", Rule: "clean-up: it outlives the incarnation of its execution's parent",
		From: "			case !t.beingCleanedUp(ex, objectID):\n", To: "			default:\n", Tests: "TestCleanupOutlivesParentsIncarnation",
	},
	{
		File: "fsm/machine/sweep.go", Rule: "clean-up: its journal stays until it ends",
		From: "				return key, true\n", To: "				continue\n", Tests: "TestCleanupOutlivesParentsIncarnation",
	},
	{
		File: "fsm/machine/execution.go", Rule: "clean-up: its end lets the next incarnation begin",
		From: "		t.cleanedUp(ex)\n", To: "", Tests: "TestCleanupOutlivesParentsIncarnation",
	},
	{
		File: "fsm/machine/restart.go", Rule: "clean-up: its execution does not start again while it runs",
		From: "ok && t.cleanupOpen(old.ns, &h) {", To: "ok && h.CleanupMS < 0 {", Tests: "TestCleanupBeforeChildStartsAgain",
	},
	{
		File: "fsm/machine/deliver.go", Rule: "clean-up: an execution with an id of its own does not start again while it runs",
		From: " && !t.cleanupOpen(ns, &old.h) {", To: " {", Tests: "TestCleanupBeforeChildStartsAgain",
	},
	{
		File: "durable/continue.go", Rule: "continue as new: what is refused is refused at every replay",
		From: "	if t.section != nil {\n		return entityError(\"a critical section does not continue as new\")", To: "	if t.section != nil && int(t.next) == len(t.journal.ops) {\n		return entityError(\"a critical section does not continue as new\")", Tests: "TestRefusedContinueAsNewIsReplayed",
	},
	{
		File: "durable/cleanup.go", Rule: "clean-up: last things are undone first",
		From: "t.cleanups.stack[len(t.cleanups.stack)-1])", To: "t.cleanups.stack[0])", Tests: "TestSagaUndoneAfterError",
	},
	{
		File: "durable/cleanup.go", Rule: "clean-up: what a cancel interrupts runs again",
		From: "	if t.cleanups.interrupted {\n		return ErrCancelled\n	}\n	t.unregister(c)", To: "	t.unregister(c)", Tests: "TestSagaInterruptedUndo",
	},
	{
		File: "durable/commit.go", Rule: "clean-up: the cluster knows of it before a step runs",
		From: "len(t.buf.events) == 0 && t.arming() <= 0", To: "len(t.buf.events) == 0", Tests: "TestCleanupKnownBeforeStep",
	},
	{
		File: "durable/saga.go", Rule: "saga: a step that was refused is not undone",
		From: "errors.As(err, &failure) && failure.NonRetryable:", To: "errors.As(err, &failure) && false:", Tests: "TestSagaRollback",
	},
	{
		File: "durable/saga.go", Rule: "saga: the beginning of a step is recorded before it runs",
		From: "append(opts[:len(opts):len(opts)], WithIntent())...)", To: "opts...)", Tests: "TestSagaSurvivesCrashes",
	},
	{
		File: "durable/codec.go", Rule: "codec: raw bytes pass it",
		From: "	if !plain(c) {\n		return nil, false\n	}\n", To: "", Tests: "TestCodecOfRawBytes",
	},
	{
		File: "durable/codec.go", Rule: "codec: failures pass it",
		From: "if plain(c) || f.GetType() == TypeSuspended {", To: "if plain(c) || true {", Tests: "TestNothingInClear", Pkg: "embed",
	},
	{
		File: "durable/codec.go", Rule: "codec: problems of a function stay with the worker",
		From: "	if plain(c) || errors.As(err, &mismatch)", To: "	if true || errors.As(err, &mismatch)", Tests: "TestNothingInClear", Pkg: "embed",
	},
}
