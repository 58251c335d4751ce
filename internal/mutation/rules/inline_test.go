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
		From: " || !sameTask(h.taskOf(task.Version, flags), task) {", To: " || h.taskOf(task.Version, flags).Target != task.Target {", Tests: "TestSetInlineRefuses",
	},
	{
		File: "fsm/state/inline.go", Rule: "inline: a page begins where it is asked to",
		From: "seq >= from && seq < to", To: "seq < to", Tests: "TestInlineReadsAsRows", Pkg: "fsm/machine",
	},
	{
		File: "fsm/state/inline.go", Rule: "inline: a header has as many entries as it says",
		From: "for range min(events, InlineEvents) {", To: "for len(d.b) > 0 && d.err == nil {", Tests: "TestInlineDamaged TestOpenDamaged",
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
		From: "for seq := range h.Events {\n\t\t\tt.remove(", To: "for seq := range h.Events - 1 {\n\t\t\tt.remove(", Tests: "TestInlineReadsAsRows TestInlineBounds",
	},
	{
		File: "fsm/machine/inline.go", Rule: "inline: the task's row goes",
		From: "\tt.remove(t.of(keys.Task, ns, h.ID))\n", To: "", Tests: "TestInlineReadsAsRows TestInlineBounds",
	},
	{
		File: "fsm/machine/inline.go", Rule: "inline: the rules find the task of what has ended",
		From: "\th, _ := s.t.headerOf(s.ns, objectID)\n\treturn h.InlineTask()", To: "\treturn recovery.Task{}, false", Tests: "TestRulesFindInlineTask",
	},
	{
		File: "fsm/machine/txn.go", Rule: "inline: an aborted command leaves no entries in memory",
		From: "ex.holder, ex.short = nil, shortOf(&ex.h)", To: "ex.holder = nil", Tests: "TestInlineDoesNotDependOnMemory",
	},
	{
		File: "fsm/machine/store.go", Rule: "inline: a task counts as new only with its promise",
		From: "w.fresh = born && s.t.m.feature >= state.LevelInline", To: "w.fresh = s.t.m.feature >= state.LevelInline", Tests: "TestInlineReadsAsRows",
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
		From: "in.journal && (h.Leaf || allRecords(&h))", To: "in.journal", Tests: "TestPurgeLeavesNothing TestInlineReadsAsRows",
	},
	{
		File: "fsm/machine/purge_many.go", Rule: "inline: a purge by the listing knows that there is no task",
		From: "inlined{end.Inline, end.InlinePromise}", To: "inlined{false, end.InlinePromise}", Tests: "TestPurgeManyByListing",
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
	{
		File: "fsm/state/inline.go", Rule: "inline: a promise that would read otherwise keeps its row",
		From: "ok && samePromise(made, *promise)", To: "ok && made.State == promise.State", Tests: "TestInlinePromise",
	},
	{
		File: "fsm/state/inline.go", Rule: "inline: the promise of an operation keeps its row",
		From: "if promise != nil && MayInlinePromise(h.ID) {", To: "if promise != nil {", Tests: "TestInlinePromise",
	},
	{
		File: "fsm/state/inline.go", Rule: "inline: a header whose promise does not follow from it is damaged",
		From: "case flags&inlinePromise != 0:\n", To: "case flags&inlinePromise != 0 && h.Events == 0:\n", Tests: "TestInlinePromiseDamaged",
	},
	{
		File: "fsm/state/inline.go", Rule: "inline: a promise has the deadline of its execution",
		From: "if h.DeadlineMS != 0 {\n\t\tp.TimeoutAt", To: "if h.DeadlineMS > 1<<60 {\n\t\tp.TimeoutAt", Tests: "TestInlinePromise",
	},
	{
		File: "fsm/state/listing.go", Rule: "inline: the listing says that the promise is inline",
		From: "case h.HasInlinePromise():", To: "case h.HasInlinePromise() && h.Events > 1<<40:", Tests: "TestInlinePromise",
	},
	{
		File: "fsm/state/read.go", Rule: "inline: a read of a promise finds it",
		From: "p, ok = h.InlinePromise()", To: "p, ok = h.InlinePromise()\n\tok = ok && p.Incarnation > 1<<40", Tests: "TestInlineReadsAsRows", Pkg: "fsm/machine",
	},
	{
		File: "fsm/machine/inline.go", Rule: "inline: below the level a promise has a row",
		From: "if t.m.feature < state.LevelPromise || !state.MayInlinePromise(ex.h.ID) {", To: "if !state.MayInlinePromise(ex.h.ID) {", Tests: "TestInlineReadsAsRows",
	},
	{
		File: "fsm/machine/inline.go", Rule: "inline: the promise's row goes",
		From: "\t\tt.remove(row)\n", To: "", Tests: "TestInlineReadsAsRows TestInlineBounds",
	},
	{
		File: "fsm/machine/inline.go", Rule: "inline: the rules find the promise of what has ended",
		From: "\th, _ := s.t.stored().Header(s.ns, objectID)\n\treturn h.InlinePromise()", To: "\treturn recovery.Promise{}, false", Tests: "TestRulesFindInlinePromise",
	},
	{
		File: "fsm/machine/inline.go", Rule: "inline: a promise is deleted from a header in memory",
		From: "\t\tex.h.DropInlinePromise()\n", To: "", Tests: "TestRulesFindInlinePromise",
	},
	{
		File: "fsm/machine/inline.go", Rule: "inline: without its promise an execution has no task",
		From: "!ok || !p.State.Settled() || p.Target == \"\" || state.OfClient(p) {", To: "ok && !p.State.Settled() {", Tests: "TestRulesFindInlinePromise TestRulesFindInlineTask",
	},
	{
		File: "fsm/machine/retry_graph.go", Rule: "inline: a promise that is deleted goes from the header",
		From: "if !s.dropInlinePromise(objectID) {", To: "if objectID != \"\" {", Tests: "TestRulesFindInlinePromise TestRestartHasOneTask",
	},
	{
		File: "fsm/machine/store.go", Rule: "inline: a promise counts as new only if there was none",
		From: "w.fresh = born && s.t.m.feature >= state.LevelPromise", To: "w.fresh = s.t.m.feature >= state.LevelPromise", Tests: "TestInlineReadsAsRows",
	},
	{
		File: "fsm/machine/store.go", Rule: "inline: the promise of a short execution is never stored",
		From: "w.fresh = born && s.t.m.feature >= state.LevelPromise", To: "w.fresh = false", Tests: "TestInlineIsNotStored",
	},
	{
		File: "fsm/machine/purge_many.go", Rule: "inline: a purge by the listing knows where the promise is",
		From: "inlined{end.Inline, end.InlinePromise}", To: "inlined{end.Inline, true}", Tests: "TestPurgeManyByListing",
	},
	{
		File: "fsm/machine/purge_many.go", Rule: "purges of many: more of them need a higher level",
		From: "\t\treturn state.LevelPromise\n", To: "\t\treturn 0\n", Tests: "TestPurgeManyLevel",
	},
	{
		File: "fsm/machine/absences.go", Rule: "absences: a promise inline in a restored header is no more absent",
		From: "case family == keys.Header && !w.removed:", To: "case family == keys.Header && w.removed:", Tests: "TestRestoredPromiseIsNotFree",
	},
	{
		File: "fsm/machine/absences.go", Rule: "absences: a filter has the promises that are inline",
		From: "[][]byte{{byte(keys.Promise)}, {byte(keys.Header)}}", To: "[][]byte{{byte(keys.Promise)}}", Tests: "TestInlinePromiseIsNotFree",
	},
	{
		File: "fsm/machine/absences.go", Rule: "absences: a promise that moves into its header is not removed",
		From: "a.removed-- //", To: "a.removed++ //", Tests: "TestInlinePromiseIsNotFree",
	},
	{
		File: "partition/retention/retention.go", Rule: "retention: while a member knows small purges of many only, they are small",
		From: "many.Purges[:min(len(many.Purges), machine.FewPurges)]", To: "many.Purges[:]", Tests: "TestPurgesOfMany",
	},
	{
		File: "fsm/query/promise_ids.go", Rule: "search: promises of both families come in one order",
		From: "\t\tslices.Sort(ids)\n", To: "\t\t_ = slices.Sort[[]string]\n", Tests: "TestPromisesInline", Pkg: "fsm/machine",
	},
	{
		File: "fsm/query/promise_ids.go", Rule: "search: none is passed over behind a piece",
		From: "if upTo != \"\" && objectID > upTo {", To: "if upTo != \"\" && objectID > upTo && after == \"\" {", Tests: "TestPromisesInline", Pkg: "fsm/machine",
	},
	{
		File: "fsm/query/export.go", Rule: "export: the promise that is inline is part of it",
		From: "family == keys.Promise && stage%2 == 0 && root.HasInlinePromise()", To: "family == keys.Promise && stage%2 == 1 && root.HasInlinePromise()", Tests: "TestImportHistory TestExportPages", Pkg: "fsm/machine",
	},
	{
		File: "fsm/audit/inline.go", Rule: "audit: a promise that is inline has no row",
		From: "if a.Has(keys.Of(keys.Promise, ns, h.ID)) {", To: "if a.Has(keys.Of(keys.Promise, ns, h.ID)) && h.Events == 0 {", Tests: "TestAuditFindsWhatIsPlanted", Pkg: "fsm/machine",
	},
	{
		File: "fsm/audit/inline.go", Rule: "audit: a promise that is inline is checked as others are",
		From: "a.promiseItself(ns, p)", To: "_ = p", Tests: "TestAuditFindsWhatIsPlanted", Pkg: "fsm/machine",
	},
}
