package mutation

// machineBugs break what the machine adds to the rules: the commit guard, stored replies, the deadline
// index, the queues of pending tasks, the ending table, channels between partitions.
var machineBugs = []bug{
	{
		file: "fsm/machine/commit.go", rule: "commit: the worker knows which child ids are taken",
		from: `have != req.NextChild {`, to: `have < req.NextChild {`, tests: "TestCommitGuard",
	},
	{
		file: "fsm/machine/commit.go", rule: "commit: the token is the present one",
		from: "Version: token.Version}); err != nil {\n\t\treturn ex, stale(err.Error())", to: "Version: token.Version}); err != nil && token.Version > 1<<40 {\n\t\treturn ex, stale(err.Error())",
		tests: "TestStaleTokens",
	},
	{
		file: "fsm/machine/commit.go", rule: "commit: nothing follows what ends the turn",
		from: `		if c.over {`, to: `		if c.over && c.state == recovery.TaskFulfilled {`, tests: "TestMalformedWait",
	},
	{
		file: "fsm/machine/commit.go", rule: "commit: a repeated one is not applied again",
		from: `bytes.Equal(ex.h.LastCommit, cmd.GetRequest().GetId()) {`, to: `bytes.Equal(ex.h.LastCommit, nil) {`,
		tests: "TestCommitRepeated",
	},
	{
		file: "fsm/machine/commit.go", rule: "commit: a child's result is the server's to write",
		from: `ok && !runsLocally(inv.Kind) {`, to: `ok && inv.Kind == 0 {`, tests: "TestCommitRefused",
	},
	{
		file: "fsm/machine/commit.go", rule: "cancel: only the open attempt's result is still recorded",
		from: `known && inv.Open == done.Attempt && runsLocally(inv.Kind) {`, to: `known && runsLocally(inv.Kind) {`,
		tests: "TestCommitWhileCancelling",
	},
	{
		file: "fsm/machine/txn.go", rule: "a refused command leaves nothing in memory",
		from: "ex.h, ex.dirty, ex.touched, ex.born = ex.before, false, false, false", to: "ex.dirty, ex.touched, ex.born = false, false, false",
		tests: "TestCommitRefused",
	},
	{
		file: "fsm/machine/replies.go", rule: "stored reply: the same request is answered, not run again",
		from: `return stored, true, nil`, to: `_ = stored`, tests: "TestSignalRepeated",
	},
	{
		file: "fsm/machine/replies.go", rule: "stored reply: a retry after its answer expired is told so",
		from: `t.now-age-clockSlackMS <= t.m.evicted {`, to: `t.now-age-clockSlackMS < 0 {`, tests: "TestExpiredReplies",
	},
	{
		file: "fsm/machine/machine.go", rule: "an entry is applied once",
		from: `if index <= m.applied {`, to: `if index < m.applied {`, tests: "TestAppliedOnce",
	},
	{
		file: "fsm/machine/machine.go", rule: "time: the machine's clock never runs backwards",
		from: `m.clock = max(m.clock, entry.TimeMs, 1)`, to: `m.clock = max(entry.TimeMs, 1)`, tests: "TestReplicasAgree",
	},
	{
		file: "fsm/machine/machine.go", rule: "time: it is never 0, which means that something is not",
		from: `m.clock = max(m.clock, entry.TimeMs, 1)`, to: `m.clock = max(m.clock, entry.TimeMs)`, tests: "TestEndingAtTimeZero",
	},
	{
		file: "fsm/machine/machine.go", rule: "time: what is due on an object comes before its command",
		from: `t.carryOutDue(cmd.Namespace, cmd.Id)`, to: ``, tests: "TestEndings",
	},
	{
		file: "fsm/machine/store.go", rule: "deadline index: a deadline goes with what it was of",
		from: `if oldArmed && !(newArmed && newAt == oldAt && old.State == task.State) {`, to: `if oldArmed && !(newArmed && newAt >= oldAt) {`, tests: "TestLease",
	},
	{
		file: "fsm/machine/store.go", rule: "deadline index: a settled promise has none",
		from: `s.t.remove(due)`, to: `_ = due`, tests: "TestPromiseDeadline",
	},
	{
		file: "fsm/machine/store.go", rule: "ready queue: who is taken leaves it",
		from: `s.t.remove(place)`, to: `_ = place`, tests: "TestAssign",
	},
	{
		file: "fsm/machine/assign.go", rule: "ready queue: no more than there is room for",
		from: `return all[:min(len(all), room)]`, to: `return all`, tests: "TestAssign",
	},
	{
		file: "fsm/machine/assign.go", rule: "ready queue: what is due on a task comes before it is handed out",
		from: `t.carryOutDue(o.Namespace, w.id)`, to: ``, tests: "TestAssignCarriesOutWhatIsDue",
	},
	{
		file: "fsm/machine/tick.go", rule: "tick: the limit is for all kinds together",
		from: `limit-done) {`, to: `limit) {`, tests: "TestTickLimit",
	},
	{
		file: "fsm/machine/chain.go", rule: "ending: a deadline in Cancelling needs no second request",
		from: "if ex.h.Status != journal.StatusCancelling {\n\t\t\tt.must(ex, journal.CancelRequested{Reason: \"timed out\"})\n\t\t}",
		to:   `t.must(ex, journal.CancelRequested{Reason: "timed out"})`, tests: "TestEndings",
	},
	{
		file: "fsm/machine/commit.go", rule: "ending: a failed execution rejects its promise",
		from: `c.t.finish(c.ex, recovery.PromiseRejected, e.Error)`, to: `c.t.finish(c.ex, recovery.PromiseResolved, e.Error)`, tests: "TestEndings",
	},
	{
		file: "fsm/machine/chain.go", rule: "ending: a terminated execution's promise is canceled",
		from: `t.finish(ex, recovery.PromiseRejectedCanceled, failureBytes(FailureCancelled, reason))`,
		to:   `t.finish(ex, recovery.PromiseRejected, failureBytes(FailureCancelled, reason))`, tests: "TestEndings",
	},
	{
		file: "fsm/machine/chain.go", rule: "cancel: the grace ends at its last millisecond",
		from: `ex.h.GraceAt > t.now {`, to: `ex.h.GraceAt >= t.now {`, tests: "TestGrace",
	},
	{
		file: "fsm/machine/chain.go", rule: "chain: an awaiter is woken when its wait is satisfied, not before",
		from: `|| !ex.j.WaitSatisfied() {`, to: `{`, tests: "TestWaits",
	},
	{
		file: "fsm/machine/signal.go", rule: "signal: one that comes after the wait's deadline is for the next wait",
		from: `t.timeout(ex.ns, wait)`, to: `_ = wait`, tests: "TestSignalPastDeadline",
	},
	{
		file: "fsm/machine/deliver.go", rule: "channel: a message is applied once",
		from: "if msg.Seq <= through {\n\t\t\tcontinue", to: "if msg.Seq < through {\n\t\t\tcontinue", tests: "TestSpreadDelivery",
	},
	{
		file: "fsm/machine/txn.go", rule: "deadline index: a search goes back for what was added before its place",
		from: `t.m.due.lower(w.key)`, to: `_ = w.key`, tests: "TestDeadlineBeforeTheSearch",
	},
	{
		file: "fsm/machine/due.go", rule: "deadline index: a leader's search goes back for what it is told of",
		from: `s.from[kind] = min(s.from[kind], added)`, to: `_ = kind`, tests: "TestDueSearch",
	},
	{
		file: "fsm/machine/outbox.go", rule: "channel: the outbox is read from its first message on",
		from: `for there-gone > 1 {`, to: `for there-gone > 2 {`, tests: "TestOutboxFront",
	},
}
