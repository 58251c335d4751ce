package engine

import (
	"time"

	"perdure/internal/mutation"
)

// cutBugs break what surrounds a cut: its checkpoints, and leaders that enter it.
var cutBugs = []mutation.Bug{
	{
		File: "fsm/raft.go", Rule: "cut: the checkpoint has the entry that enters it",
		From: ">= batchBytes || res.Cut != 0 {", To: ">= batchBytes {", Tests: "TestCheckpointIsTheStateOfItsIndex",
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
