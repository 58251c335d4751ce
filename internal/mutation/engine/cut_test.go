package engine

import (
	"time"

	"perdure/internal/mutation"
)

// cutBugs break what surrounds a cut: its checkpoints, and leaders that enter it.
var cutBugs = []mutation.Bug{
	{
		File: "fsm/raft.go", Rule: "cut: the checkpoint has the entry that enters it",
		From: "< pendingBytes && res.Cut == 0 {", To: "< pendingBytes {", Tests: "TestCheckpointIsTheStateOfItsIndex",
	},
	{
		File: "fsm/raft.go", Rule: "cut: the checkpoint has no entry behind the one that enters it",
		From: "\t\t\ts.checkpoint(res.Cut)", To: "\t\t\tdefer s.checkpoint(res.Cut)", Tests: "TestCheckpointIsTheStateOfItsIndex",
	},
	{
		File: "fsm/cuts.go", Rule: "cut: the checkpoint has what memory holds",
		From: "if err := s.flush(db); err != nil { // there", To: "if err := s.failed(); err != nil { // there", Tests: "TestCheckpointIsTheStateOfItsIndex",
	},
	{
		File: "fsm/cuts.go", Rule: "cut: a power loss leaves a whole checkpoint or none",
		From: "part := whole + fsync.TmpSuffix\n", To: "part := files.PathJoin(CutsDir(s.dir), fmt.Sprintf(\"%d-%d\", c.Cut, c.Index))\n",
		Tests: "TestPowerLossLeavesWholeCheckpoints",
	},
	{
		File: "fsm/cuts.go", Rule: "cut: two checkpoints are kept",
		From: "all[:max(len(all)-keep, 0)]", To: "all[:max(len(all)-keep-1, 0)]", Tests: "TestCheckpointIsTheStateOfItsIndex",
	},
	{
		File: "fsm/cuts.go", Rule: "cut: a low disk gets no checkpoint",
		From: "if s.opts.Spare != nil {", To: "if s.opts.Spare != nil && s.closed {", Tests: "TestFailedCheckpoint",
	},
	{
		File: "partition/diskspace.go", Rule: "cut: checkpoints go before the disk is low",
		From: "if w.n.disk.Scarce() {", To: "if w.n.disk.Level() != disk.OK {", Tests: "TestScarceDiskDropsCheckpoints", Hangs: 20 * time.Second,
	},
	{
		File: "partition/group/cut.go", Rule: "cut: the oldest checkpoint goes first",
		From: "c = all[0]\n", To: "c = all[len(all)-1]\n", Tests: "TestScarceDiskDropsCheckpoints", Pkg: "partition", Hangs: 20 * time.Second,
	},
	{
		File: "partition/group/open.go", Rule: "cut: none makes a checkpoint that would be removed at once",
		From: "return r.disk.CheckSpare(bytes)", To: "return r.disk.Check(bytes, disk.Low)", Tests: "TestScarceDiskDropsCheckpoints", Pkg: "partition",
	},
	{
		File: "partition/disk/guard.go", Rule: "cut: space for checkpoints is scarce before the disk is low",
		From: "return g.mark(Low) + g.reserve }", To: "return g.mark(Low) }", Tests: "TestScarce",
	},
	{
		File: "fsm/delta.go", Rule: "delta: it asks for space while nothing has changed",
		From: "if bounds.Spare != nil {", To: "if bounds.Spare != nil && rows == 1 {", Tests: "TestDeltaAsksForSpace",
	},
	{
		File: "partition/group/inbound.go", Rule: "cut: a shipment's is entered before the shipment",
		From: "latestCut(fresh.GetDeliver().Messages)", To: "latestCut(nil)", Tests: "TestShipmentEntersItsCut",
	},
	{
		File: "partition/group/inbound.go", Rule: "cut: a repeated shipment's acknowledgement carries it",
		From: "Through: through, Cut: in}", To: "Through: through, Cut: min(in, 0)}", Tests: "TestShipmentEntersItsCut",
	},
	{
		File: "partition/group/ship.go", Rule: "cut: an acknowledgement's is entered before the trim",
		From: "err := r.commands.enterCut(s.l.ctx, in)", To: "err := r.commands.enterCut(s.l.ctx, min(in, 0))", Tests: "TestTrimEntersItsCut", Hangs: 20 * time.Second,
	},
}
