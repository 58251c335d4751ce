package rules

import "perdure/internal/mutation"

// cutBugs break the rules of a consistent cut.
var cutBugs = []mutation.Bug{
	{
		File: "cut/cut.go", Rule: "cut: a partition applies nothing of a later cut",
		From: "return sent <= have }", To: "return sent <= have+1 }", Tests: "TestEnter",
	},
	{
		File: "cut/cut.go", Rule: "cut: a partition applies what is of an earlier cut",
		From: "return sent <= have }", To: "return sent == have }", Tests: "TestEnter",
	},
	{
		File: "fsm/machine/deliver.go", Rule: "cut: a later cut's message is not applied",
		From: "if !t.admits(msg.Cut) {", To: "if !t.admits(min(msg.Cut, 0)) {", Tests: "TestMessageOfALaterCutWaits",
	},
	{
		File: "fsm/machine/trim.go", Rule: "cut: a later cut's acknowledgement trims nothing",
		From: "if !t.admits(req.Cut) {", To: "if !t.admits(min(req.Cut, 0)) {", Tests: "TestAcknowledgementOfALaterCutWaits",
	},
	{
		File: "fsm/machine/outbox.go", Rule: "cut: a message carries its sender's",
		From: "ch.Last, uint64(t.m.cut)", To: "ch.Last, 0", Tests: "TestCutIsEnteredBehindTheEntry",
	},
	{
		File: "fsm/machine/deliver.go", Rule: "cut: an acknowledgement carries the receiver's",
		From: "Cut: uint64(t.m.cut)}}", To: "Cut: 0}}", Tests: "TestMessageOfALaterCutWaits TestAcknowledgementOfALaterCutWaits",
	},
	{
		File: "fsm/machine/enter_cut.go", Rule: "cut: the checkpoint is the state behind the entry, not one inside it",
		From: "t.m.entering = now", To: "t.m.entering, t.m.cut = now, now", Tests: "TestCutIsEnteredBehindTheEntry TestMessageOfALaterCutWaits",
	},
	{
		File: "fsm/machine/enter_cut.go", Rule: "cut: the partition enters it with one entry",
		From: "m.cut, m.entering = m.entering, 0", To: "m.cut = m.entering", Tests: "TestCutIsEnteredOnce",
	},
	{
		File: "fsm/machine/enter_cut.go", Rule: "cut: an entry enters one cut",
		From: "if now == 0 {", To: "if now >= 0 {", Tests: "TestCutIsEnteredOnce",
	},
	{
		File: "cut/cut.go", Rule: "cut: it is entered once",
		From: "if asked > have {", To: "if asked >= have {", Tests: "TestEnter",
	},
	{
		File: "cut/cut.go", Rule: "cut: it never goes back",
		From: "if asked > have {", To: "if asked != have {", Tests: "TestEnter",
	},
	{
		File: "cut/cut.go", Rule: "cut: a new one is one that no partition is in",
		From: "partitions...) + 1", To: "partitions...)", Tests: "TestRequired",
	},
	{
		File: "cut/cut.go", Rule: "cut: the latest of what was sent is required",
		From: "have = max(have, n)", To: "have = max(have, min(n, 1))", Tests: "TestRequired",
	},
	{
		File: "cut/cut.go", Rule: "cut: a message that was received is not delivered again",
		From: "!after(message, c.Received)", To: "after(c.Received, message)", Tests: "TestChannel",
	},
	{
		File: "cut/cut.go", Rule: "cut: a channel that received what was not sent is named",
		From: "case after(c.Received, c.Sent):", To: "case after(c.Received, c.Sent) && c.Received.Epoch == c.Sent.Epoch:", Tests: "TestChannel",
	},
	{
		File: "cut/cut.go", Rule: "cut: a channel that has lost messages is named",
		From: "c.First.Last > c.Received.Last+1:", To: "c.First.Last > c.Received.Last+2:", Tests: "TestChannel",
	},
	{
		File: "cut/cut.go", Rule: "cut: a restored channel's epoch is above both ends'",
		From: "max(c.Sent.Epoch, c.Received.Epoch) + 1", To: "c.Sent.Epoch + 1", Tests: "TestChannel",
	},
}
