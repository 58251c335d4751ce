package rules

import "perdure/internal/mutation"

// inlineBugs break executions whose task and journal are inline in their headers.
var inlineBugs = []mutation.Bug{
	{
		File: "fsm/state/inline.go", Rule: "inline: an execution that took long has rows",
		From: "h.ClosedMS-h.CreatedMS <= InlineMS", To: "h.ClosedMS >= h.CreatedMS", Tests: "TestInlineBounds", Pkg: "fsm/machine",
	},
	{
		File: "fsm/state/inline.go", Rule: "inline: an execution with a clean-up has rows",
		From: "return h.CleanupMS == 0 && h.Kind == KindFunction", To: "return h.Kind == KindFunction", Tests: "TestInlineReadsAsRows TestInlineBounds", Pkg: "fsm/machine",
	},
	{
		File: "fsm/state/inline.go", Rule: "inline: a task that would read otherwise keeps its row",
		From: "if made, _ := h.InlineTask(); !sameTask(made, task) {", To: "if made, _ := h.InlineTask(); made.Target != task.Target {", Tests: "TestSetInlineRefuses",
	},
	{
		File: "fsm/state/inline.go", Rule: "inline: a page begins where it is asked to",
		From: "seq >= from && seq < to", To: "seq < to", Tests: "TestInlineReadsAsRows", Pkg: "fsm/machine",
	},
	{
		File: "fsm/state/inline.go", Rule: "inline: a header has as many entries as it says",
		From: "for range min(h.Events, InlineEvents) {", To: "for len(in.b) > 0 && in.err == nil {", Tests: "TestInlineDamaged",
	},
	{
		File: "fsm/state/read.go", Rule: "inline: a read of a task finds it",
		From: "t, ok = h.InlineTask()", To: "t, ok = h.InlineTask()\n\tok = ok && t.Version > 1", Tests: "TestInlineReadsAsRows", Pkg: "fsm/machine",
	},
	{
		File: "fsm/machine/inline.go", Rule: "inline: below the level everything has rows",
		From: "t.m.feature >= state.LevelInline && ex.h.MayInline()", To: "ex.h.MayInline()", Tests: "TestInlineReadsAsRows",
	},
	{
		File: "fsm/machine/inline.go", Rule: "inline: an ended execution whose journal does not fit is listed",
		From: "if !t.inline(ex) {", To: "if !t.inline(ex) && ex.h.Events == 0 {", Tests: "TestInlineBounds",
	},
	{
		File: "fsm/machine/inline.go", Rule: "inline: the rows go",
		From: "for seq := range h.Events {\n\t\tt.remove(", To: "for seq := range h.Events - 1 {\n\t\tt.remove(", Tests: "TestInlineReadsAsRows TestInlineBounds",
	},
	{
		File: "fsm/machine/inline.go", Rule: "inline: the task's row goes",
		From: "\tt.remove(t.of(keys.Task, ns, h.ID))\n", To: "", Tests: "TestInlineReadsAsRows TestInlineBounds",
	},
	{
		File: "fsm/machine/inline.go", Rule: "inline: the rules find the task of what has ended",
		From: "\th, _ := s.t.stored().Header(s.ns, objectID)\n\treturn h.InlineTask()", To: "\treturn recovery.Task{}, false", Tests: "TestRulesFindInlineTask",
	},
	{
		File: "fsm/machine/txn.go", Rule: "inline: an aborted command leaves no entries in memory",
		From: "ex.holder, ex.short = nil, shortJournal{}", To: "ex.holder = nil", Tests: "TestInlineDoesNotDependOnMemory",
	},
	{
		File: "fsm/machine/store.go", Rule: "inline: a task counts as new only with its promise",
		From: "w.fresh = born && s.t.m.feature", To: "w.fresh = s.t.m.feature", Tests: "TestInlineReadsAsRows",
	},
	{
		File: "fsm/machine/retry_graph.go", Rule: "inline: the task of a former incarnation goes with its promise",
		From: "(state.OfClient(p) || s.t.m.feature >= state.LevelInline)", To: "state.OfClient(p)", Tests: "TestRestartHasOneTask",
	},
	{
		File: "fsm/machine/store.go", Rule: "inline: the task of a short execution is never stored",
		From: "w.fresh = born && s.t.m.feature >= state.LevelInline", To: "w.fresh = false", Tests: "TestInlineIsNotStored",
	},
	{
		File: "fsm/machine/purge.go", Rule: "inline: what is below an execution that has called is purged",
		From: "inline && (h.Leaf || allRecords(&h))", To: "inline", Tests: "TestPurgeLeavesNothing TestInlineReadsAsRows",
	},
	{
		File: "fsm/machine/purge_many.go", Rule: "inline: a purge by the listing knows that there is no task",
		From: "}, end.Inline})", To: "}, false})", Tests: "TestPurgeManyByListing",
	},
	{
		File: "fsm/audit/inline.go", Rule: "audit: what is inline has no rows",
		From: "if a.Has(keys.Of(keys.Task, ns, h.ID)) {", To: "if a.Has(keys.Of(keys.Task, ns, h.ID)) && h.Events == 0 {", Tests: "TestAuditFindsWhatIsPlanted", Pkg: "fsm/machine",
	},
	{
		File: "fsm/query/export.go", Rule: "export: a page goes on within a journal",
		From: "if !bytes.Equal(key, first) {", To: "if len(key) > 0 {", Tests: "TestExportPages", Pkg: "fsm/machine",
	},
	{
		File: "fsm/query/export.go", Rule: "export: a page begins with the entry at which the last one ended",
		From: "\tseq, _, _ = keys.CutUint64(rest[8:])\n", To: "\tseq, _, _ = keys.CutUint64(rest[8:])\n\tseq++\n", Tests: "TestExportPages", Pkg: "fsm/machine",
	},
	{
		File: "fsm/query/export.go", Rule: "export: a cursor is checked",
		From: "exported[stage/2] == keys.Journal && !ofEntry", To: "exported[stage/2] == keys.Journal && !ofEntry && stage < 0", Tests: "TestExportPages", Pkg: "fsm/machine",
	},
	{
		File: "fsm/histories/stored.go", Rule: "import: what is inline exists",
		From: "if !ok && rec.GetEvent() != nil {", To: "if !ok && rec.GetEvent() == nil {", Tests: "TestImportHistory", Pkg: "fsm/machine",
	},
}
