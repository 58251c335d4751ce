package engine

import "perdure/internal/mutation"

// routerBugs break the way of a command to its partition's leader, and its caller's answer.
var routerBugs = []mutation.Bug{
	{
		File: "partition/router.go", Rule: "router: a refusal does not replace an unknown outcome",
		From: "\treturn a.unknown\n}", To: "\treturn e\n}", Tests: "TestUnknownOutcomeStays",
	},
	{
		File: "partition/router.go", Rule: "router: an unknown outcome is remembered",
		From: `tries.unknown = e`, To: `_ = e`, Tests: "TestUnknownOutcomeStays",
	},
	{
		File: "partition/router.go", Rule: "router: a caller is not left waiting where no leader is known",
		From: "case leaderless.IsZero():", To: "default:", Tests: "TestNoLeaderKnown",
	},
	{
		File: "partition/router.go", Rule: "router: a leader that is known again is waited for",
		From: "case to.Addr != \"\":\n\t\t\t\tleaderless = time.Time{}\n", To: "case to.Addr != \"\":\n", Tests: "TestNoLeaderKnown",
	},
	{
		File: "partition/router.go", Rule: "router: what does harm twice is not sent again",
		From: `if !again || ctx.Err() != nil {`, To: `if ctx.Err() != nil {`, Tests: "TestOnlyTheRepeatableIsRepeated",
	},
	{
		File: "partition/router.go", Rule: "router: a command without a request id is repeatable only by name",
		From: "\t\treturn true\n\t}\n\treturn false\n}\n\n// Query reads", To: "\t\treturn true\n\t}\n\treturn cmd.Id != \"\"\n}\n\n// Query reads", Tests: "TestOnlyTheRepeatableIsRepeated",
	},
	{
		File: "partition/router.go", Rule: "router: a lost answer leaves the outcome unknown",
		From: `e = refusal.Unknown(partition, "another node was asked`, To: `e = refusal.TryLater(partition, "another node was asked`, Tests: "TestLostAnswersAreUnknown",
	},
	{
		File: "partition/router.go", Rule: "router: a retry says that it is one",
		From: `sent.Request.AgeMs += `, To: `_ = `, Tests: "TestRetriesAreMarked",
	},
	{
		File: "partition/router.go", Rule: "router: a command goes to the partition that owns its id",
		From: "return state.PartitionOf(namespace, id, uint32(len(r.slots)))\n}\n\n// Of", To: "return (state.PartitionOf(namespace, id, uint32(len(r.slots))) + 1) % uint32(len(r.slots))\n}\n\n// Of", Tests: "TestPartitionOfIsTheMachines",
	},
	{
		File: "partition/refusal/refusal.go", Pkg: "partition", Rule: "proposal: what was in the log when leadership was lost may be applied",
		From: `case errors.Is(err, raft.ErrNotLeader):`, To: `case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipLost):`, Tests: "TestRaftErrors",
	},
	{
		File: "partition/group/propose.go", Rule: "proposal: it is made under no later leadership",
		From: `case p.lead != lead:`, To: `case false:`, Tests: "TestNoProposalOutlivesItsLeadership",
	},
	{
		File: "partition/group/propose.go", Rule: "proposal: a caller that is back at once counts once",
		From: "l := landing{f.lane, len(f.proposals), r.pending.lenOf(small), r.clock.Now().Sub(f.started)}\n\tr.resolve(f, err)",
		To:   "r.resolve(f, err)\n\tl := landing{f.lane, len(f.proposals), r.pending.lenOf(small), r.clock.Now().Sub(f.started)}", Tests: "TestCallerBackAtOnceCountsOnce",
	},
	{
		File: "partition/group/begin.go", Rule: "proposal: a caller that stops waiting does not know",
		From: `return w.outcome(refusal.Unknown(r.id, "the caller stopped waiting (`, To: `return w.outcome(refusal.TryLater(r.id, "the caller stopped waiting (`, Tests: "TestCancelledCallerAsksAgain",
	},
	{
		File: "fsm/machine/replies.go", Rule: "proposal: the refusal of a retry binds what is still under way",
		From: "if cmd.GetRequest().GetAgeMs() == 0 {\n\t\treturn false\n\t}", To: "if cmd.GetRequest().GetAgeMs() < 1<<40 {\n\t\treturn false\n\t}",
		Tests: "TestRefusedRetryBindsTheFirstAttempt",
	},
	{
		File: "partition/group/pending.go", Rule: "proposal: an entry that the log may have is not reported as dropped",
		From: `p.waiting > 0 || p.launched || p.finished() {`, To: `p.waiting > 0 || p.finished() {`, Tests: "TestCancelledCallerAsksAgain",
	},
}
