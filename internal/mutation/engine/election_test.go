package engine

import "perdure/internal/mutation"

// electionBugs undo what package election decides.
var electionBugs = []mutation.Bug{
	{
		File: "partition/election/candidate.go", Rule: "election: of two that do not hear each other one campaigns first",
		From: `slices.Min(append(slices.Clone(unreachable), me.server)) == me.server`, To: `slices.Min(append(slices.Clone(unreachable), me.server)) != ""`, Tests: "TestPreferredOnce",
	},
	{
		File: "partition/election/candidate.go", Rule: "election: the candidate with more of the log is preferred",
		From: `return p.lastIndex > o.lastIndex`, To: `return p.lastIndex < o.lastIndex`, Tests: "TestPosition TestPreferred",
	},
	{
		File: "partition/election/candidate.go", Rule: "election: no server campaigns while another election is under way",
		From: `if o.state == raft.Leader.String() || o.state == raft.Candidate.String() && try == 0 {`, To: `if o.state == raft.Leader.String() {`,
		Tests: "TestPreferred",
	},
	{
		File: "partition/election/candidate.go", Rule: "election: half of the voters is no majority",
		From: `return 2*agree > voters`, To: `return 2*agree >= voters`, Tests: "TestMajoritySilent",
	},
	{
		File: "partition/election/candidate.go", Rule: "election: a transfer target lacks next to nothing",
		From: `st.LastIndex+maxTargetLag >= led.LastIndex`, To: `st.LastIndex+maxTargetLag > 0`, Tests: "TestMayLead",
	},
	{
		File: "partition/election/liveness.go", Rule: "election: a node that was held up does not report a leader's silence of that time",
		From: `return min(silent, now.Sub(s.since))`, To: `return silent`, Tests: "TestWitnessed",
	},
	{
		File: "partition/election/balance.go", Rule: "election: an operator's choice holds",
		From: ` && !b.isPinned(p.Partition, now) {`, To: ` {`, Tests: "TestBalance",
	},
	{
		File: "partition/election/transfer.go", Rule: "election: a failed transfer is not repeated at once",
		From: `if began.Before(until) {`, To: `if until.Before(time.Time{}) {`, Tests: "TestRetryLater",
	},
	{
		File: "partition/election/failover.go", Pkg: "partition", Rule: "election: a candidate whose campaign failed concedes before it campaigns again",
		From: `if c.state == raft.Candidate.String() {`, To: `if c.state == raft.Leader.String() {`, Tests: "TestSplitVote",
	},
}
