package engine

import "perdure/internal/mutation"

// backupBugs break how backups are made, checked, continued and deleted.
var backupBugs = []mutation.Bug{
	{
		File: "backup/fetch.go", Rule: "backup: the bytes of a file have its hash",
		From: "got != f.SHA256 {", To: "len(got) != len(f.SHA256) {", Tests: "TestDamage",
	},
	{
		File: "backup/fetch.go", Rule: "backup: a file has no byte more than was copied",
		From: "io.LimitReader(r, f.Size+1)", To: "io.LimitReader(r, f.Size)", Tests: "TestDamage",
	},
	{
		File: "backup/manifest.go", Rule: "backup: a manifest has its hash",
		From: "if !bytes.Equal(again, b) {", To: "if !bytes.Equal(again, b) && len(again) != len(b) {", Tests: "TestDamage",
	},
	{
		File: "backup/manifest.go", Rule: "backup: a name of a file leads into no other directory",
		From: "name[0] != '.' && ", To: "", Tests: "TestDeltaManifest",
	},
	{
		File: "backup/copy.go", Rule: "backup: a file of a known name and size is hashed before it is reused",
		From: "if known || c.ask {", To: "if file.SHA256 = c.known[key]; known && c.stored(file) {\n\t\treturn file, nil\n\t}\n\tif known || c.ask {", Tests: "TestCreate",
	},
	{
		File: "backup/copy.go", Rule: "backup: a replica at another index is not the cut's",
		From: "if s.Index != at.Index {", To: "if s.Index > at.Index+1<<60 {", Tests: "TestOtherIndex",
	},
	{
		File: "backup/copy.go", Rule: "backup: a read that continues does so where it was",
		From: "c.source.Read(ctx, cut.Number, at, f.Name, n)", To: "c.source.Read(ctx, cut.Number, at, f.Name, n*0)", Tests: "TestReplicaHiccups",
	},
	{
		File: "backup/create.go", Rule: "backup: each file is in the store when the manifest is written",
		From: "if size, ok := here[f.Object()]; !ok || size != f.Size {", To: "if size, ok := here[f.Object()]; ok && size != f.Size {", Tests: "TestDeletedMeanwhile",
	},
	{
		File: "backup/create.go", Rule: "backup: a create that lost its partial writes no manifest",
		From: "\tif !exists {\n\t\treturn &BusyError{fmt.Sprintf(\"another", To: "\tif !exists && now.Ended {\n\t\treturn &BusyError{fmt.Sprintf(\"another", Tests: "TestDeletedMeanwhile",
	},
	{
		File: "backup/create.go", Rule: "backup: the partial of another cluster is not continued",
		From: "|| p.Cut.Number != 0 && p.Cut.Cluster != cluster {", To: "{", Tests: "TestResumeNot",
	},
	{
		File: "backup/partial.go", Rule: "backup: the partial of a create that runs is left to it",
		From: "now.Sub(p.Updated) > abandonedAfter", To: "now.Sub(p.Updated) > 0", Tests: "TestResumeNot",
	},
	{
		File: "backup/process.go", Rule: "backup: a process of another machine may run",
		From: "|| p.Host != here.Host {", To: "|| here.Host == \"\" {", Tests: "TestResumeAfterKill",
	},
	{
		File: "backup/delete.go", Rule: "backup: a file that a backup has is not deleted as unused",
		From: "for _, f := range s.all() {", To: "for _, f := range s.Files {", Tests: "TestDeltas",
	},
	{
		File: "backup/delete.go", Rule: "backup: no file is deleted while a backup is being made",
		From: "if len(begun) > 0 {", To: "if len(begun) > 1<<20 {", Tests: "TestCollectRefused",
	},
	{
		File: "backup/copy.go", Rule: "delta: the base is in the store",
		From: "if !c.stored(f) {\n\t\t\treturn State{}, false", To: "if !c.stored(f) && f.Size < 0 {\n\t\t\treturn State{}, false", Tests: "TestNoDelta",
	},
	{
		File: "backup/copy.go", Rule: "delta: a node alone has no name, and may be another one",
		From: "|| cut.Cluster == \"\" ", To: "", Tests: "TestNoDeltaOfNodeAlone",
	},
	{
		File: "backup/copy.go", Rule: "delta: it follows those of the last backup",
		From: "append(slices.Clone(base.Deltas), Delta{", To: "append(slices.Clone(base.Deltas[:0]), Delta{", Tests: "TestDeltas",
	},
	{
		File: "backup/create.go", Rule: "delta: the nodes keep the state of the last backup alone",
		From: "if c.last != nil && c.last.Cut != c.part.Cut.Number {", To: "if c.last != nil && c.last.Cut == c.part.Cut.Number {", Tests: "TestDeltas",
	},
	{
		File: "backup/verify.go", Rule: "delta: each is checked",
		From: "for _, f := range s.all() {", To: "for _, f := range s.Files {", Tests: "TestDeltaDamage",
	},
	{
		File: "backup/manifest.go", Rule: "delta: each continues the one before",
		From: "|| i > 0 && s.Deltas[i-1].To != d.From {", To: "{", Tests: "TestDeltaManifest",
	},
	{
		File: "fsm/delta.go", Rule: "delta: it has what was deleted",
		From: "err = remove(a.Key())", To: "err = nil", Tests: "TestDeltaMakesTheLaterCheckpoint",
	},
	{
		File: "fsm/delta.go", Rule: "delta: it has what was changed",
		From: "case order > 0 || !bytes.Equal(a.Value(), b.Value()):", To: "case order > 0:", Tests: "TestDeltaMakesTheLaterCheckpoint",
	},
	{
		File: "fsm/delta.go", Rule: "delta: it is added to the state that it leads from",
		From: "if err := at(from); err != nil {", To: "if err := at(from); err != nil && from == 0 {", Tests: "TestDeltaMakesTheLaterCheckpoint",
	},
	{
		File: "fsm/delta.go", Rule: "delta: a damaged table ends it",
		From: "closed := at[i].Close(); closed != nil {", To: "closed := at[i].Close(); closed != nil && i > 1 {", Tests: "TestDeltaOfDamage",
	},
	{
		File: "fsm/delta.go", Rule: "delta: its name leads into no other directory",
		From: "strings.Trim(rest, \"-0123456789\") == \"\"", To: "rest != \"\"", Tests: "TestDeltaNames",
	},
}
