package engine

import "perdure/internal/mutation"

// leaseBugs break the leases of tasks: who extends them, how long they last, what their end means.
var leaseBugs = []mutation.Bug{
	{
		File: "fsm/machine/heartbeat.go", Rule: "lease: a heartbeat extends its own worker's leases only",
		From: `recovery.Heartbeat(t.store(token.Namespace), t.now, req.Worker,`, To: `recovery.Heartbeat(t.store(token.Namespace), t.now, func() string { task, _ := t.store(token.Namespace).Task(token.Id); return task.PID }(),`,
		Tests: "TestLease",
	},
	{
		File: "fsm/machine/heartbeat.go", Rule: "lease: who has lost a task learns it from the heartbeat",
		From: `reply.Lost = append(reply.Lost, token)`, To: `_ = token`, Tests: "TestLease",
	},
	{
		File: "recovery/inherit.go", Rule: "lease: an inherited one lasts from the new leader's clock on",
		From: `at := after(max(now, since), t.TTL)`, To: `at := after(now, t.TTL)`, Tests: "TestInheritLease",
	},
	{
		File: "recovery/inherit.go", Rule: "lease: one that has ended is not inherited",
		From: `t.LeaseAt <= now ||`, To: `t.LeaseAt == 0 ||`, Tests: "TestInheritLease",
	},
	{
		File: "fsm/machine/inherit.go", Rule: "lease: all of them are inherited, however many",
		From: `reply.Next = append([]byte(nil), key...)`, To: `_ = key`, Tests: "TestNewLeaderGivesLeasesTheirFullTime",
	},
	{
		File: "partition/leader.go", Rule: "lease: a new leader inherits them before it serves",
		From: `err = l.inheritLeases()`, To: `err = nil`, Tests: "TestLeasesAreInherited",
	},
	{
		File: "fsm/machine/commit.go", Rule: "lease: one that has run out commits nothing",
		From: `recovery.Fence(t.store(ns), t.now, `, To: `recovery.Fence(t.store(ns), 0, `, Tests: "TestStaleTokens TestLease",
	},
}
