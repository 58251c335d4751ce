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
