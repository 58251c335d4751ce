package engine

import (
	"time"

	"perdure/internal/mutation"
)

// channelBugs break the channels between partitions: what the shipper sends and removes, what the receiver applies.
var channelBugs = []mutation.Bug{
	{
		File: "partition/group/ship.go", Rule: "shipper: no message is skipped",
		From: `Source: r.id, Epoch: epoch, Messages: msgs}`, To: `Source: r.id, Epoch: epoch, Messages: msgs[min(1, len(msgs)-1):]}`, Tests: "TestShipping",
	},
	{
		File: "partition/group/backlog.go", Rule: "hold back: signals to a full backlog wait at their source",
		From: `full := s.full[destination][state.Ref{Namespace: cmd.Namespace, ID: entityID}]`, To: `full := s.full[destination][state.Ref{ID: entityID}]`,
		Tests: "TestHoldBack", Hangs: 20 * time.Second,
	},
	{
		File: "partition/group/backlog.go", Rule: "hold back: it ends when the backlog is full no more",
		From: "delete(s.full[destination], state.Ref{Namespace: e.Namespace, ID: e.Id})", To: "_ = e",
		Tests: "TestHoldBack", Hangs: 20 * time.Second,
	},
	{
		File: "partition/group/backlog.go", Rule: "hold back: a critical section's signals pass",
		From: "refused == nil || s.inSection(cmd)", To: "refused == nil", Tests: "TestHoldBack",
	},
	{
		File: "partition/group/backlog.go", Rule: "hold back: an outbox is bounded",
		From: "return ch.Last - acked.Last", To: "return acked.Last", Tests: "TestHoldBackOfLongOutbox",
	},
	{
		File: "partition/group/backlog.go", Rule: "hold back: an outbox is bounded in bytes",
		From: "n > 0 && ch.Bytes >= outboxBytes", To: "n > outboxBound && ch.Bytes >= outboxBytes", Tests: "TestHoldBackOfLargeOutbox",
	},
	{
		File: "partition/group/backlog.go", Rule: "hold back: bytes that are acknowledged hold nobody back",
		From: "n > 0 && ch.Bytes >= outboxBytes", To: "ch.Bytes >= outboxBytes", Tests: "TestHoldBackOfLargeOutbox",
	},
	{
		File: "fsm/machine/outbox.go", Rule: "channel: messages of a lower feature level are counted, too",
		From: "n += uint64(len(value))", To: "n = uint64(len(value))", Tests: "TestOutboxBytes",
	},
	{
		File: "fsm/machine/trim.go", Rule: "channel: a trim takes the bytes of its messages off",
		From: "ch.Bytes -= min(size, ch.Bytes)", To: "ch.Bytes -= min(size, ch.Bytes-1)", Tests: "TestOutboxBytes",
	},
	{
		File: "partition/group/backlog.go", Rule: "hold back: entities that signal wait like functions",
		From: "range cmd.GetCommitEntity().GetSignals() {", To: "range cmd.GetCommitEntity().GetSignals()[:0] {", Tests: "TestHoldBack", Hangs: 20 * time.Second,
	},
	{
		File: "partition/group/backlog.go", Rule: "hold back: calls wait like signals",
		From: "to = w.EntityCall.GetId()", To: "to = w.EntityCall.GetOperation()", Tests: "TestHoldBack", Hangs: 20 * time.Second,
	},
	{
		File: "partition/group/backlog.go", Rule: "hold back: a new leader counts the whole outbox",
		From: "return ch.Last - first + 1", To: "return ch.Last - first", Tests: "TestUnacknowledgedOfNewLeadership",
	},
	{
		File: "partition/group/backlog.go", Rule: "hold back: every full entity is asked about in turn",
		From: "from := turn % pages * maxAsked", To: "from := min(turn, 1) % pages * maxAsked", Tests: "TestPagesOfQuestions",
	},
	{
		File: "partition/group/ship.go", Rule: "shipper: what could not be delivered is not acknowledged",
		From:  `return false, fmt.Errorf("%d messages, %d bytes: %w", len(msgs), bytes, err)`,
		To:    "s.acknowledged(destination, state.Channel{Epoch: epoch, Last: msgs[len(msgs)-1].Seq + 0*uint64(len(fmt.Sprint(err)))}, 0)\n\t\treturn true, nil",
		Tests: "TestShipping",
	},
	{
		File: "partition/group/ship.go", Rule: "shipper: nothing beyond the acknowledgement is removed",
		From: `Last: reply.GetDeliver().GetThrough()}`, To: `Last: max(reply.GetDeliver().GetThrough(), msgs[len(msgs)-1].Seq)}`, Tests: "TestShipping",
	},
	{
		File: "partition/group/ship.go", Rule: "shipper: what was acknowledged is not shipped again while its trim is under way",
		From: `after := s.acked[destination]`, To: `after := s.acked[destination+1<<20]`, Tests: "TestShipping",
	},
	{
		File: "partition/group/ship.go", Rule: "shipper: what is acknowledged while a trim runs is trimmed, too",
		From: `if through == trimmed {`, To: `if through == trimmed || trimmed.Epoch != 0 {`, Tests: "TestShipping",
	},
	{
		File: "partition/group/ship.go", Rule: "shipper: what was not delivered is tried again",
		From: "err := s.ship(destination, &size)\n\t\tif err == nil {", To: "err := s.ship(destination, &size)\n\t\tif err == nil || s.l.ctx.Err() == nil {", Tests: "TestShipping",
	},
	{
		File: "partition/group/ship.go", Rule: "shipper: what comes while a destination is served is not forgotten",
		From: "if s.pending[destination] {\n\t\tdelete(s.pending, destination)\n\t\treturn false\n\t}", To: "delete(s.pending, destination)",
		Tests: "TestStalled",
	},
	{
		File: "partition/group/leader.go", Rule: "shipper: the next leader ships what it finds",
		From: `l.ship.wake(outgoing)`, To: `_ = outgoing`, Tests: "TestOutboxOutlivesItsLeader",
	},
	{
		File: "fsm/machine/trim.go", Pkg: "partition/group", Rule: "channel: a trim removes what was acknowledged and no more",
		From: `req.Through+1)`, To: `req.Through+2)`, Tests: "TestShipping",
	},
	{
		File: "fsm/machine/deliver.go", Rule: "channel: what was applied is remembered",
		From: `t.put(key, ch.Encode())`, To: `_ = key`, Tests: "TestChannelEpoch",
	},
	{
		File: "fsm/machine/deliver.go", Rule: "channel: a gap is refused",
		From: `if msg.Seq != ch.Last+1 {`, To: `if msg.Seq <= ch.Last {`, Tests: "TestSpreadDelivery",
	},
	{
		File: "fsm/machine/deliver.go", Rule: "channel: nothing is acknowledged that was not applied",
		From:  "if err := t.receive(msg); err != nil {\n\t\t\treturn nil, ruleError(msg.Namespace, err)\n\t\t}\n\t\tch.Last = msg.Seq",
		To:    "ch.Last = msg.Seq\n\t\tif msg.Seq == req.Messages[len(req.Messages)-1].Seq && len(req.Messages) > 1 {\n\t\t\tcontinue\n\t\t}\n\t\tif err := t.receive(msg); err != nil {\n\t\t\treturn nil, ruleError(msg.Namespace, err)\n\t\t}",
		Tests: "TestSpreadDelivery",
	},
	{
		File: "fsm/directory/level.go", Rule: "feature level: a new cluster's is the one that every founder knows",
		From: `level = min(level, m.FeatureLevel)`, To: `level = max(level, m.FeatureLevel)`, Tests: "TestLevels",
	},
	{
		File: "fsm/directory/level.go", Rule: "feature level: it is raised only when every member knows it",
		From: "if why := Lacking(d.Members, level); why != \"\" {", To: `if why := Lacking(d.Members, 0); why != "" {`, Tests: "TestLevels",
	},
	{
		File: "partition/group/level.go", Rule: "feature level: no command passes the gate below its level",
		From: "if need <= have {\n\t\treturn nil", To: "if need <= have+100 {\n\t\treturn nil", Tests: "TestGate",
	},
	{
		File: "partition/cluster/level.go", Pkg: "partition", Rule: "feature level: a program that does not know the cluster's level halts",
		From: `dir.FeatureLevel > known {`, To: `dir.FeatureLevel > known+100 {`, Tests: "TestClusterUpgrade", Hangs: 30 * time.Second,
	},
	{
		File: "partition/group/leader.go", Pkg: "partition", Rule: "feature level: nothing is proposed that a member does not know",
		From: `level >= state.LevelLeases {`, To: `level+100 >= state.LevelLeases {`, Tests: "TestOlderMembersGoOn", Hangs: 30 * time.Second,
	},
	{
		File: "partition/group/leader.go", Pkg: "partition", Rule: "feature level: a leader follows the cluster's level",
		From: `l.raiseLevels()`, To: `_ = l`, Tests: "TestFeatureLevelAlone", Hangs: 30 * time.Second,
	},
	{
		File: "fsm/machine/outbox.go", Rule: "channel: the numbers of an epoch go on after a trim",
		From: "ch := t.channel(key)\n", To: "ch := state.Channel{}\n", Tests: "TestSpreadDelivery",
	},
}
