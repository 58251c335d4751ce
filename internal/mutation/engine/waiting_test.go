package engine

import (
	"time"

	"perdure/internal/mutation"
)

// hang is how long a planted bug may block its tests.
const hang = 20 * time.Second

// waitingBugs break what a durable function waits for: steps beside it, join sets, timers.
var waitingBugs = []mutation.Bug{
	{
		File: "durable/history.go", Rule: "await: a wait that was due is recorded, and over at once",
		From: "if cancelling || missing != len(own) {", To: "if cancelling || missing >= 0 {", Tests: "TestAbsorb",
	},
	{
		File: "durable/future.go", Rule: "select: the first in the journal wins, at replay too",
		From: `(first < 0 || rec.doneSeq < seq)`, To: `(first < 0 || rec.doneSeq > seq)`, Tests: "TestWaitingReplaysFromEveryPrefix TestAwaitAnyIsStable",
	},
	{
		File: "durable/go_step.go", Rule: "background step: a wait does not end the activation while it runs",
		From: `	for len(b.open) > 0 {`, To: `	for len(b.open) > 100 {`, Tests: "TestGoStepRetries TestWaitingReplaysFromEveryPrefix", Hangs: hang,
	},
	{
		File: "durable/go_step.go", Rule: "background step: its policy's retries are recorded",
		From: `			s.attempt++
`, To: ``, Tests: "TestGoStepRetries", Hangs: hang,
	},
	{
		File: "durable/go_step.go", Rule: "background step: what else is awaited is noticed while it runs",
		From: `				t.refresh()
`, To: ``, Tests: "TestSelectBesideARunningStep", Hangs: hang,
	},
	{
		File: "durable/run.go", Rule: "step: no attempt follows the end of the total time",
		From: `return s.o.total > 0 && !s.t.w.clock`, To: `return s.o.total < 0 && !s.t.w.clock`, Tests: "TestTotalTimeout", Hangs: hang,
	},
	{
		File: "durable/run.go", Rule: "step: failures of the types named are final",
		From: `slices.Contains(s.o.final, f.GetType())`, To: `slices.Contains(s.o.final, f.GetMessage())`, Tests: "TestWaitingReplaysFromEveryPrefix",
	},
	{
		File: "durable/joinset.go", Rule: "join set: at replay the recorded order of results is the order",
		From: `n := taken[s.count]`, To: `n := taken[0]`, Tests: "TestWaitingReplaysFromEveryPrefix", Hangs: hang,
	},
	{
		File: "durable/joinset.go", Rule: "join set: a future is in one set at most",
		From: `case t.joined[f.n]:`, To: `case t.joined[f.n] && s.closed:`, Tests: "TestJoinSetRules",
	},
	{
		File: "durable/joinset.go", Rule: "join set: it takes no members after the first result",
		From: `case s.closed || s.count > 0:`, To: `case s.closed:`, Tests: "TestJoinSetRules",
	},
	{
		File: "durable/joinset.go", Rule: "join set: a wait for many members names their set",
		From: `open > maxNamed &&`, To: `open < 0 &&`, Tests: "TestJoinSetOfMany",
	},
	{
		File: "durable/joinset.go", Rule: "join set: the member that a wait names has no result",
		From: `		s.lowest++
`, To: `		break
`, Tests: "TestJoinSetOfMany", Hangs: hang,
	},
	{
		File: "durable/entity.go", Rule: "entity: an operation that fails leaves the value as it found it",
		From: "exists, value, stale, ec.signals = out.Exists, out.Value, true, nil", To: "ec.signals = nil", Tests: "TestOperationThatPanics",
	},
	{
		File: "durable/entity.go", Rule: "entity: a commit has as many results as fit",
		From: "if len(out.Results) > 0 && used.exceeds(", To: "if len(out.Results) > 64 && used.exceeds(", Tests: "TestBatchFitsIntoCommit",
	},
	{
		File: "durable/entity.go", Rule: "entity: an operation that sends too much fails alone",
		From: "err == nil && own.exceeds(", To: "err != nil && own.exceeds(", Tests: "TestBatchFitsIntoCommit",
	},
	{
		File: "rpc/work_calls.go", Rule: "edge: the events of a commit are bounded",
		From: "n > id.MaxCommitItems {", To: "n > id.MaxCommitItems && n < 0 {", Tests: "TestCommitRefused",
	},
	{
		File: "durable/entity.go", Rule: "entity: an operation that panics fails",
		From: "if p := recover(); p != nil {", To: "if p := any(nil); p != nil {", Tests: "TestOperationThatPanics",
	},
	{
		File: "durable/entity.go", Rule: "entity: the signals of an operation that fails are not sent",
		From: "exists, value, stale, ec.signals = out.Exists, out.Value, true, nil", To: "exists, value, stale = out.Exists, out.Value, true", Tests: "TestOperationThatPanics",
	},
}
