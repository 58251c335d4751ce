package rules

import "perdure/internal/mutation"

// openBugs break executions whose journals are in their headers while they are open.
var openBugs = []mutation.Bug{
	{
		File: "fsm/machine/open.go", Rule: "open: below the level a journal has rows",
		From: "seq == 0 && t.m.feature >= state.LevelOpen && h.MayBeOpen()", To: "seq == 0 && h.MayBeOpen()", Tests: "TestOpenBeginsWithTheJournal",
	},
	{
		File: "fsm/machine/open.go", Rule: "open: a journal that has rows keeps them",
		From: "seq == 0 && t.m.feature", To: "t.m.feature", Tests: "TestOpenBeginsWithTheJournal TestOpenReadsAsRows TestOpenBounds",
	},
	{
		File: "fsm/machine/open.go", Rule: "open: a journal that becomes too long gets the rows of all its entries",
		From: "\t\tt.spill(ex)\n\t}\n\tt.putFresh", To: "\t\tex.h.Open = nil\n\t}\n\tt.putFresh", Tests: "TestOpenReadsAsRows TestOpenBounds",
	},
	{
		File: "fsm/machine/open.go", Rule: "open: the header no longer has what has rows",
		From: "ex.h.Open, ex.dirty = nil, true", To: "ex.dirty = true", Tests: "TestOpenReadsAsRows TestOpenBounds",
	},
	{
		File: "fsm/machine/open.go", Rule: "open: a refused command leaves the journal in memory whole",
		From: "return shortJournal{bytes: slices.Clip(h.Open), entries: h.Events}", To: "return shortJournal{}", Tests: "TestOpenReadsAsRows",
	},
	{
		File: "fsm/machine/execution.go", Rule: "open: an execution that ends with a clean-up gets rows",
		From: "\t\tt.spill(ex)\n\t\tt.listEnd(ex)\n", To: "\t\tt.listEnd(ex)\n", Tests: "TestOpenReadsAsRows",
	},
	{
		File: "fsm/state/open.go", Rule: "open: a graph run and a later incarnation have rows",
		From: "return h.Kind == KindFunction && h.Generation == 0", To: "return true", Tests: "TestOpenDamaged",
	},
	{
		File: "fsm/state/open.go", Rule: "open: the journal of an old execution is small",
		From: "bytes <= InlineBytes && nowMS-h.CreatedMS <= InlineMS", To: "bytes <= InlineBytes", Tests: "TestOpenFits",
	},
	{
		File: "fsm/state/open.go", Rule: "open: a header of an ended execution has no open journal",
		From: "case h.Status.Terminal() || !h.MayBeOpen()", To: "case !h.MayBeOpen()", Tests: "TestOpenDamaged",
	},
	{
		File: "fsm/state/inline.go", Rule: "open: an execution that has slept long becomes inline",
		From: "(len(h.Open) > 0 || h.ClosedMS-h.CreatedMS <= InlineMS)", To: "h.ClosedMS-h.CreatedMS <= InlineMS", Tests: "TestOpenBeginsWithTheJournal", Pkg: "fsm/machine",
	},
	{
		File: "fsm/state/inline.go", Rule: "open: what has become inline is not there twice",
		From: "\th.Open = nil\n\treturn true\n", To: "\treturn true\n", Tests: "TestOpenReadsAsRows", Pkg: "fsm/machine",
	},
	{
		File: "fsm/state/inline.go", Rule: "open: a read finds the journal in the header",
		From: "return h.Inline != \"\" || len(h.Open) > 0", To: "return h.Inline != \"\"", Tests: "TestOpenReadsAsRows", Pkg: "fsm/machine",
	},
	{
		File: "fsm/audit/inline.go", Rule: "audit: a journal in a header has no rows",
		From: "a.Scan(prefix, keys.After(prefix), func(_, _ []byte) bool {", To: "a.Scan(prefix, prefix, func(_, _ []byte) bool {", Tests: "TestRulesFindOpen", Pkg: "fsm/machine",
	},
}
