package rules

import "perdure/internal/mutation"

// historyBugs break the export and import of executions that have ended.
var historyBugs = []mutation.Bug{
	{
		File: "fsm/histories/record.go", Rule: "history: an open execution is not moved",
		From: "\tcase !h.Status.Terminal():\n\t\treturn nil, open(h.ID)", To: "\tcase h.ID == \"\":\n\t\treturn nil, open(h.ID)", Tests: "TestImportHistoryExists", Pkg: "fsm/machine",
	},
	{
		File: "fsm/histories/record.go", Rule: "history: what has had a former incarnation is not moved",
		From: "\tcase h.Generation > 0:", To: "\tcase h.Generation > 1:", Tests: "TestImportedHistoryIsOrdinary", Pkg: "fsm/machine",
	},
	{
		File: "fsm/histories/record.go", Rule: "history: what is being purged is not exported",
		From: "\tcase h.Purge != \"\":", To: "\tcase h.Purge == \"never\":", Tests: "TestImportHistoryExists", Pkg: "fsm/machine",
	},
	{
		File: "fsm/histories/record.go", Rule: "history: no client's promise is imported as a part of an execution",
		From: "; address || state.OfClient(p) {", To: "; address {", Tests: "TestImportHistoryRefused", Pkg: "fsm/machine",
	},
	{
		File: "fsm/histories/record.go", Rule: "history: no target of an import is an address",
		From: "; address || state.OfClient(p) {", To: "; address && state.OfClient(p) || !address && state.OfClient(p) {", Tests: "TestImportHistoryRefused", Pkg: "fsm/machine",
	},
	{
		File: "fsm/histories/record.go", Rule: "history: a child has its parent in the tree, a root has not",
		From: "(e.GetId() != tree) != Within(tree, e.GetParent())", To: "e.GetId() != tree && !Within(tree, e.GetParent())", Tests: "TestImportHistoryRefused", Pkg: "fsm/machine",
	},
	{
		File: "fsm/histories/tree.go", Rule: "history: a record is one of its tree",
		From: "\t\tif !Within(tree, objectID) {", To: "\t\tif objectID == \"\" {", Tests: "TestImportHistoryRefused", Pkg: "fsm/machine",
	},
	{
		File: "fsm/histories/tree.go", Rule: "history: a record is there once",
		From: "\t\t\tif seen[string(row.Key)] {", To: "\t\t\tif seen[string(row.Value)] {", Tests: "TestImportHistoryRefused", Pkg: "fsm/machine",
	},
	{
		File: "fsm/histories/tree.go", Rule: "history: a tree has its root",
		From: "\tif !executions[tree] {", To: "\tif len(rows) == 0 {", Tests: "TestImportHistoryRefused", Pkg: "fsm/machine",
	},
	{
		File: "fsm/histories/tree.go", Rule: "history: a journal has its execution",
		From: "rec.GetPromise() == nil && !executions[objectID]", To: "rec.GetPromise() == nil && !executions[tree]", Tests: "TestImportHistoryRefused", Pkg: "fsm/machine",
	},
	{
		File: "fsm/histories/tree.go", Rule: "history: what is imported is listed",
		From: "\t\t\trows = append(rows, listing(ns, h))\n", To: "\t\t\t_ = listing(ns, h)\n", Tests: "TestImportHistory", Pkg: "fsm/machine",
	},
	{
		File: "fsm/histories/tree.go", Rule: "history: an edge audits what it proposes",
		From: "if report := a.Report(); len(report.Violations) > 0 {", To: "if report := a.Report(); len(report.Violations) > 1 {", Tests: "TestImportHistoryRefused", Pkg: "fsm/machine",
	},
	{
		File: "fsm/histories/stored.go", Rule: "history: an id with another history keeps it",
		From: "!ok || err != nil || !proto.Equal(rec.GetPromise(), p)", To: "!ok || err != nil || rec == nil", Tests: "TestImportHistoryExists", Pkg: "fsm/machine",
	},
	{
		File: "fsm/histories/stored.go", Rule: "history: an execution is compared",
		From: "return err == nil && proto.Equal(have, rec)", To: "return err == nil && have != nil", Tests: "TestImportHistoryExists", Pkg: "fsm/machine",
	},
	{
		File: "fsm/histories/stored.go", Rule: "history: a journal is compared",
		From: "if !ok || !bytes.Equal(value, row.Value) {", To: "if !ok || bytes.Equal(row.Key, value) {", Tests: "TestImportHistoryExists", Pkg: "fsm/machine",
	},
	{
		File: "fsm/histories/stored.go", Rule: "history: children are compared in their own incarnations",
		From: "\t\tif of.ID != objectID {", To: "\t\tif of.ID == \"\" {", Tests: "TestImportHistory", Pkg: "fsm/machine",
	},
	{
		File: "fsm/histories/stored.go", Rule: "history: a promise that is named like an operation is not replaced",
		From: "\t\treturn false, free(r, ns, records)\n", To: "\t\treturn false, nil\n", Tests: "TestImportHistoryExists", Pkg: "fsm/machine",
	},
	{
		File: "fsm/machine/import_history.go", Rule: "history: nothing is stored that ends in the future",
		From: "if latest := histories.Latest(req.Records); latest > t.now {", To: "if latest := histories.Latest(req.Records); latest > t.now+1000 {", Tests: "TestImportHistoryRefused",
	},
	{
		File: "fsm/machine/import_history.go", Rule: "history: an import waits for a purge of its id",
		From: "ok && h.Purge != \"\" {", To: "ok && h.Purge == \"never\" {", Tests: "TestImportHistoryExists",
	},
	{
		File: "fsm/query/export.go", Rule: "history: a cursor stays in its tree",
		From: "bytes.Compare(from, lower) < 0 || bytes.Compare(from, upper) >= 0 ||", To: "upper == nil ||", Tests: "TestExportPages", Pkg: "fsm/machine",
	},
	{
		File: "fsm/query/export.go", Rule: "history: a page is bounded",
		From: "return e.size > 0 && e.size+len(key)+len(value) > PageBytes", To: "return e.size > 64*PageBytes+len(key)+len(value)", Tests: "TestExportPages", Pkg: "fsm/machine",
	},
	{
		File: "fsm/query/export.go", Rule: "history: a page begins where the last one ended",
		From: "\tif len(from) > 0 {\n\t\tlower = from\n", To: "\tif len(from) > 0 {\n\t\tlower = append(from, 0)\n", Tests: "TestExportPages", Pkg: "fsm/machine",
	},
	{
		File: "partition/quota/quota.go", Rule: "quota: an import uses bytes",
		From: ", *commandv1.Command_ImportHistory:", To: ":", Tests: "TestAdmit",
	},
}
