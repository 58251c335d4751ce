package rules

import "perdure/internal/mutation"

// joinSetBugs break waits that name a join set instead of its members.
var joinSetBugs = []mutation.Bug{
	{
		File: "journal/child.go", Rule: "wait for a join set: each of its members ends it",
		From: `|| s.waitKind == AwaitJoinSet && c.submitted && c.set == s.waitSet {`, To: `{`, Tests: "TestExecutionAwaitingJoinSet",
	},
	{
		File: "journal/child.go", Rule: "wait for a join set: a member of another set does not end it",
		From: `&& c.set == s.waitSet {`, To: `{`, Tests: "TestExecutionAwaitingJoinSet",
	},
	{
		File: "journal/event_join_set_awaited.go", Rule: "wait for a join set: a consumed result does not satisfy it",
		From: `	set.ready--
`, To: ``, Tests: "TestExecutionAwaitingJoinSet",
	},
	{
		File: "journal/event_join_set_submitted.go", Rule: "wait for a join set: a result from before the submission satisfies it",
		From: `	if c.resolved {`, To: `	if !c.resolved {`, Tests: "TestExecutionAwaitingJoinSet",
	},
	{
		File: "fsm/machine/commands.go", Rule: "wait for a join set: no leader proposes it below its feature level",
		From: `== perdurev1.AwaitKind_AWAIT_KIND_JOIN_SET {`, To: `== perdurev1.AwaitKind_AWAIT_KIND_UNSPECIFIED {`, Tests: "TestJoinSetWaitLevel",
	},
}
