package rules

import "perdure/internal/mutation"

// resonateBugs break the checks of the Resonate protocol: what is refused before it reaches a partition.
var resonateBugs = []mutation.Bug{
	{
		File: "resonate/address.go", Rule: "resonate: an id is below its origin tag",
		From: `case s != origin && !strings.HasPrefix(s, origin+":"):`, To: `case s == "":`, Tests: "TestBadRequests",
	},
	{
		File: "resonate/address.go", Rule: "resonate: an id is below its branch and parent",
		From: "ok && !below(s, ancestor) {", To: "ok && !below(ancestor, ancestor) {", Tests: "TestBadRequests",
	},
	{
		File: "resonate/address.go", Rule: "resonate: a prefix tag has no dot",
		From: `strings.Contains(tags[tagPrefix], ".")`, To: `strings.Contains(tags[tagPrefix], "..")`, Tests: "TestBadRequests",
	},
	{
		File: "resonate/address.go", Rule: "resonate: a delay needs a target",
		From: "case !targeted:", To: "case p.ID == \"\":", Tests: "TestBadRequests",
	},
	{
		File: "resonate/address.go", Rule: "resonate: a delay ends before the deadline",
		From: "case until >= p.TimeoutAt:", To: "case until > p.TimeoutAt:", Tests: "TestBadRequests",
	},
	{
		File: "resonate/address.go", Rule: "resonate: a promise of the scope global may be awaited",
		From: ` || p.Tags[tagScope] == "global"`, To: "", Tests: "TestExecution",
	},
	{
		File: "resonate/address.go", Rule: "resonate: nobody settles a promise as timed out",
		From: `s.State != "rejected_canceled"`, To: `s.State != "rejected_canceled" && s.State != "rejected_timedout"`, Tests: "TestBadRequests",
	},
	{
		File: "resonate/operation.go", Rule: "resonate: a promise does not await itself",
		From: "case c.awaited == c.awaiter:", To: "case c.awaited == \"\":", Tests: "TestBadRequests",
	},
	{
		File: "resonate/operation.go", Rule: "resonate: a wait is of one origin",
		From: "case s.ids.origin(c.awaited) != s.ids.origin(c.awaiter):", To: "case c.awaited == \"\":", Tests: "TestBadRequests",
	},
	{
		File: "resonate/operation.go", Rule: "resonate: a task that is created acquired has no delay",
		From: "case delayed:", To: "case delayed && l.PID == \"\":", Tests: "TestBadRequests",
	},
	{
		File: "resonate/operation.go", Rule: "resonate: a fulfilment settles the task's own promise",
		From: "case req.ID != ref.ID:", To: "case req.ID == \"\":", Tests: "TestBadRequests",
	},
	{
		File: "resonate/operation.go", Rule: "resonate: a fence is not on its own task",
		From: "if id == ref.ID {", To: "if id == \"\" {", Tests: "TestBadRequests",
	},
}
