package engine

import "perdure/internal/mutation"

// heldBugs break what keeps a step's result that waits in the buffer from being lost, or from being acted upon too early.
var heldBugs = []mutation.Bug{
	{
		File: "durable/run.go", Rule: "held result: it is recorded before another step runs",
		From: `} else if !s.o.repeatable || !s.t.allRepeatable() {`, To: `} else if s.o.repeatable && !s.t.allRepeatable() {`,
		Tests: "TestLastStepAndEndAreOneCommit",
	},
	{
		File: "durable/held.go", Rule: "held result: a Repeatable step acts upon no other step's that is not recorded",
		From: `return len(t.buf.events) == t.held.lazy && t.arming() <= 0`, To: `return t.arming() <= 0`,
		Tests: "TestRepeatableBetweenOthers",
	},
	{
		File: "durable/held.go", Rule: "held result: the cluster knows of a clean-up before a Repeatable step runs",
		From: `return len(t.buf.events) == t.held.lazy && t.arming() <= 0`, To: `return len(t.buf.events) == t.held.lazy`,
		Tests: "TestRepeatableBetweenOthers",
	},
	{
		File: "durable/activation.go", Rule: "held result: a task that is given back has it",
		From: `	t.recordHeld()
`, To: ``,
		Tests: "TestHeldResultIsCommittedBeforeTheRelease",
	},
	{
		File: "durable/held.go", Rule: "held result: what WithIntent records is recorded at once",
		From: `return s.t.journal.op(s.n) == nil && !s.t.cancelAsked.Load()`, To: `return !s.t.cancelAsked.Load()`,
		Tests: "TestIntentIsNotHeld",
	},
	{
		File: "durable/commit.go", Rule: "held result: it is forgotten once it is recorded",
		From: `		t.stick(msg.Events)
		t.stepsRecorded(steps)
`, To: `		t.stick(msg.Events)
`,
		Tests: "TestStepAndWaitAreOneCommit",
	},
	{
		File: "durable/stream.go", Rule: "held: a commit that ended the task answers before a heartbeat calls the task lost",
		From: `w.loseUnasked(reply.GetLost())`, To: `w.loseAll(reply.GetLost())`, Tests: "TestEndedBeforeHeartbeat",
	},
	{
		File: "durable/stream.go", Rule: "held: a commit that ended the task answers before a Welcome calls the task lost",
		From: `w.loseUnasked(m.GetLost())`, To: `w.loseAll(m.GetLost())`, Tests: "TestEndedBeforeWelcome",
	},
}
