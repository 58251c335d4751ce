package rules

import "perdure/internal/mutation"

// restoreBugs break the restore of a backup: the transformation of rows, and the machine's import.
var restoreBugs = []mutation.Bug{
	{
		File: "fsm/restore/restore.go", Rule: "restore: a message that was received is dropped",
		From: "if r.channels[r.source][dst].Delivered(at) {", To: "if at.Last == 0 {", Tests: "TestMessagesOfARestore",
	},
	{
		File: "fsm/restore/restore.go", Rule: "restore: the messages of a channel are numbered from 1",
		From: "msg.Seq, msg.Cut = end.Last, 0", To: "msg.Seq, msg.Cut = at.Last, 0", Tests: "TestMessagesOfARestore",
	},
	{
		File: "fsm/restore/restore.go", Rule: "restore: cuts of the new cluster begin at 0",
		From: "msg.Seq, msg.Cut = end.Last, 0", To: "msg.Seq = end.Last", Tests: "TestMessagesOfARestore",
	},
	{
		File: "fsm/restore/restore.go", Rule: "restore: states are of one cut",
		From: "if err := c.Check(); err != nil {", To: "if err := c.Check(); err != nil && src == dst {", Tests: "TestMessagesOfARestore",
	},
	{
		File: "fsm/restore/restore.go", Rule: "restore: a lease has ended",
		From: "t.LeaseAt = leaseEnded", To: "t.LeaseAt = max(t.LeaseAt, leaseEnded)", Tests: "TestLeasesOfARestore",
	},
	{
		File: "fsm/restore/restore.go", Rule: "restore: what a worker of the old cluster holds is stale",
		From: "t.Version++", To: "t.Version += 0", Tests: "TestLeasesOfARestore",
	},
	{
		File: "fsm/restore/restore.go", Rule: "restore: only leases end",
		From: "if kind == keys.DeadlineLease {", To: "if kind <= keys.DeadlineLease {", Tests: "TestLeasesOfARestore",
	},
	{
		File: "fsm/restore/restore.go", Rule: "restore: incarnations of an earlier restore count",
		From: "p.base = max(p.base, of[0]+of[1])", To: "p.base = max(p.base, of[0])", Tests: "TestOwnValuesOfARestore",
	},
	{
		File: "fsm/restore/restore.go", Rule: "restore: the clock is that of the latest partition",
		From: "p.clock = max(p.clock, int64(of[2]))", To: "p.clock = int64(of[2]) * int64(min(n, 0))", Tests: "TestOwnValuesOfARestore",
	},
	{
		File: "fsm/restore/restore.go", Rule: "restore: forgotten replies stay forgotten",
		From: "|| at < r.evicted[n] {", To: "{", Tests: "TestOwnValuesOfARestore",
	},
	{
		File: "fsm/restore/restore.go", Rule: "restore: replies go where their requests may come",
		From: "if !r.shares(r.source, n) ||", To: "if r.source != n ||", Tests: "TestOwnValuesOfARestore",
	},
	{
		File: "fsm/restore/restore.go", Rule: "restore: half a restore is no state",
		From: "err != nil || importing != 0 {", To: "err != nil || importing == 1 {", Tests: "TestOwnValuesOfARestore",
	},
	{
		File: "fsm/machine/import.go", Rule: "import: the partition is empty",
		From: "	if found == nil {\n		return nil\n	}\n	return api", To: "	if found == nil || len(found) > 0 {\n		return nil\n	}\n	return api", Tests: "TestImportRefusals",
	},
	{
		File: "fsm/machine/import.go", Rule: "import: rows belong to the partition",
		From: "if err == nil && !anywhere && home != m.cfg.Partition {", To: "if err == nil && anywhere && home != m.cfg.Partition {", Tests: "TestImportRefusals",
	},
	{
		File: "fsm/machine/import.go", Rule: "import: the rows of a partition are of one restore",
		From: "	case m.importing != 0:\n", To: "	case m.importing != 0 && restored == 0:\n", Tests: "TestImportRefusals",
	},
	{
		File: "fsm/machine/import.go", Rule: "import: a restored partition serves when it is whole",
		From: "	return wire.Restoring(m.cfg.Partition)\n", To: "	return nil\n", Tests: "TestImportRefusals",
	},
	{
		File: "fsm/machine/import.go", Rule: "import: a restore that has ended is not repeated",
		From: "done := req.Restore != 0 && req.Restore == m.restored && m.importing == 0", To: "done := req.Restore == 0 && m.restored == 0", Tests: "TestImportRefusals",
	},
	{
		File: "fsm/machine/import.go", Rule: "import: digests of attached workers stay current",
		From: "digests = restore.Merge(digests, known)", To: "digests = restore.Merge(known, digests)", Tests: "TestImportRefusals",
	},
	{
		File: "fsm/machine/txn.go", Rule: "import: incarnations are above those of the backup",
		From: "index+t.m.base, t.m.clock", To: "index, t.m.clock", Tests: "TestImportRefusals",
	},
	{
		File: "fsm/machine/import.go", Rule: "import: so are those that its own messages start",
		From: "t.index += max(req.Base, m.base) - m.base", To: "t.index += 0", Tests: "TestImportOwnMessages",
	},
	{
		File: "fsm/machine/import.go", Rule: "import: own messages are applied before it serves",
		From: "	if left {\n		return reply(true)\n	}\n", To: "	if left && err != nil {\n		return reply(true)\n	}\n", Tests: "TestImportOwnMessages",
	},
	{
		File: "fsm/query/query.go", Rule: "import: no query of half a state is answered",
		From: "if x.Importing {", To: "if x.Importing && err != nil {", Tests: "TestImportRefusals", Pkg: "fsm/machine",
	},
	{
		File: "fsm/pending.go", Rule: "import: nor by a read without a snapshot",
		From: "m.Clock(), m.Importing()}", To: "m.Clock(), false}", Tests: "TestSteadyWhileImporting",
	},
}
