package rules

import "perdure/internal/mutation"

// machineBugs break what the machine adds to the rules: the commit guard, stored replies, the deadline
// index, the queues of pending tasks, the ending table, channels between partitions.
var machineBugs = []mutation.Bug{
	{
		File: "fsm/machine/commit.go", Rule: "commit: the worker knows which child ids are taken",
		From: `have != req.NextChild {`, To: `have < req.NextChild {`, Tests: "TestCommitGuard",
	},
	{
		File: "fsm/machine/first.go", Rule: "first task: one with more than its start is read from the state",
		From: "if h.Events != 1 || ", To: "if h.Events == 0 || ", Tests: "TestFirstTask",
	},
	{
		File: "fsm/machine/waited.go", Rule: "task after a wait: it has nothing that was rolled back",
		From: "e.Seq != w.next() || ", To: "", Tests: "TestFirstTask",
	},
	{
		File: "fsm/machine/waited.go", Rule: "task after a wait: large entries do not wait in a worker's queue",
		From: "w.bytes+n > waitedBytes", To: "n > waitedBytes", Tests: "TestFirstTask",
	},
	{
		File: "fsm/machine/waited.go", Rule: "task after a wait: it does not share memory with commands",
		From: "of.Result = bytes.Clone(of.Result)", To: "_ = bytes.Clone(of.Result)", Tests: "TestAfterWaitKeepsItsPayloads",
	},
	{
		File: "fsm/machine/first.go", Rule: "task after a wait: a worker that lacks more reads it",
		From: "if from < f.waited.from || ", To: "if ", Tests: "TestTaskAfterWait",
	},
	{
		File: "fsm/machine/first.go", Rule: "task after a wait: a worker that has a short journal whole reads it",
		From: "if from >= f.short.entries {", To: "if from > f.short.entries {", Tests: "TestTaskAfterWait",
	},
	{
		File: "fsm/machine/inline.go", Rule: "task after a wait: a journal of which a part is in memory is read",
		From: "s.entries > 0 && s.entries == h.Events", To: "s.entries > 0", Tests: "TestFirstTask",
	},
	{
		File: "fsm/machine/ahead.go", Rule: "read ahead: a part of a journal is not taken for all of it",
		From: "delete(c.ahead, incarnation) // not all of it", To: "_ = incarnation", Tests: "TestManyWakesAreReadAhead",
	},
	{
		File: "fsm/machine/ahead.go", Rule: "read ahead: a row that is there is not taken for an absent one",
		From: "found[i] = true", To: "found[i] = false", Tests: "TestManyWakesAreReadAhead",
	},
	{
		File: "fsm/machine/ahead.go", Rule: "read ahead: no journal outlives its command",
		From: "{ clear(c.ahead) }", To: "{}", Tests: "TestManyWakesAreReadAhead",
	},
	{
		File: "fsm/machine/ahead.go", Rule: "read ahead: a journal of many entries is not",
		From: "entries > aheadEntries || ", To: "", Tests: "TestReadAheadIsBounded",
	},
	{
		File: "fsm/machine/ahead.go", Rule: "read ahead: a journal of many bytes is not",
		From: " || size > aheadBytes", To: "", Tests: "TestReadAheadIsBounded",
	},
	{
		File: "fsm/machine/ahead.go", Rule: "read ahead: tasks are read in pieces",
		From: "done%aheadMost != 0", To: "done%aheadLeast != 0", Tests: "TestManyTasksAreReadAhead",
	},
	{
		File: "fsm/machine/ahead.go", Rule: "read ahead: a journal is not added to what was read ahead before",
		From: "	clear(c.ahead)\n	found :=", To: "	found :=", Tests: "TestReadAheadIsBounded",
	},
	{
		File: "fsm/machine/ahead.go", Rule: "read ahead: an error of the disk stops the replica",
		From: "panic(state.Fault{Err: err})", To: "return", Tests: "TestFailedReadAhead",
	},
	{
		File: "fsm/machine/reads.go", Rule: "read ahead: a part of a journal begins at its entry",
		From: "bytes.Compare(row.Key, lower) >= 0 && ", To: "", Tests: "TestReadAheadIsBounded",
	},
	{
		File: "fsm/machine/reads.go", Rule: "places of a queue: a write of one drops those in memory",
		From: "delete(c.queues, string(queueOf(w.key)))", To: "delete(c.queues, string(w.key))", Tests: "TestQueuesAreAsBelow",
	},
	{
		File: "fsm/machine/places.go", Rule: "places of a queue: those before the first in memory are read",
		From: "return bytes.Compare(lower, p.from) >= 0 && (", To: "return (", Tests: "TestQueuesAreAsBelow",
	},
	{
		File: "fsm/machine/places.go", Rule: "places of a queue: those behind the last in memory are read",
		From: "	if p.whole {\n		return nil\n	}\n	return c.below.Scan(", To: "	if true {\n		return nil\n	}\n	return c.below.Scan(", Tests: "TestQueuesAreAsBelow",
	},
	{
		File: "fsm/machine/places.go", Rule: "places of a queue: few queues are in memory",
		From: "len(c.queues) >= mostQueues", To: "len(c.queues) > 2*mostQueues", Tests: "TestQueuesAreBounded",
	},
	{
		File: "fsm/machine/first.go", Rule: "first task: a clean-up's needs what it cleans up",
		From: "h.IsCleanup() || ", To: "", Tests: "TestFirstTask",
	},
	{
		File: "fsm/machine/first.go", Rule: "first task: a large input does not wait in a worker's queue",
		From: "kept = len(started.Input) <= firstBytes;", To: "kept = len(started.Input) <= firstBytes<<1;", Tests: "TestFirstTask",
	},
	{
		File: "fsm/machine/first.go", Rule: "first task: it does not share memory with its command",
		From: "started.Input = bytes.Clone(started.Input)", To: "_ = bytes.Clone(started.Input)", Tests: "TestFirstTaskKeepsItsInput",
	},
	{
		File: "fsm/machine/store.go", Rule: "last accesses: a promise that is read again may have a task by now",
		From: "former.born = false //", To: "_ = former //", Tests: "TestTaskAfterOtherAccesses",
	},
	{
		File: "fsm/machine/store.go", Rule: "last accesses: a promise that another one follows may have a task when it is read again",
		From: "t.formerPromise.born = false //", To: "_ = t.formerPromise //", Tests: "TestTaskAfterOtherAccesses",
	},
	{
		File: "fsm/machine/store.go", Rule: "last accesses: a promise is known as it was written last",
		From: "if last := &t.promise; last.p.ID != p.p.ID || last.ns != p.ns {", To: "if last := &t.promise; t.formerPromise.p.ID == \"\" {", Tests: "TestLastTwoAreThoseWritten",
	},
	{
		File: "fsm/machine/store.go", Rule: "last accesses: all promises are forgotten",
		From: "t.promise, t.formerPromise = lastPromise{}, lastPromise{}", To: "t.promise = lastPromise{}", Tests: "TestLastTwoAreThoseWritten",
	},
	{
		File: "fsm/machine/execution.go", Rule: "cache: an execution that is put under an id is found under it",
		From: "c.lose(ex) // it", To: "// it", Tests: "TestExecutionsFoundLast",
	},
	{
		File: "fsm/machine/execution.go", Rule: "cache: an execution that was dropped is not found",
		From: "\tc.lose(ex)\n", To: "", Tests: "TestExecutionsFoundLast",
	},
	{
		File: "fsm/machine/assign.go", Rule: "queue: tasks of the state are not overlooked because the entry has others",
		From: "if len(places) == n {", To: "if len(places) > 0 {", Tests: "TestQueueOverStateAndEntry",
	},
	{
		File: "fsm/machine/absences.go", Rule: "absences: a filter that is being made has what is written meanwhile",
		From: "if a.next != nil && !a.next.has(hash) {\n\t\ta.next.add(hash)\n\t}\n", To: "", Tests: "TestAbsencesHaveWhatIsWrittenMeanwhile",
	},
	{
		File: "fsm/machine/absences.go", Rule: "absences: an id that a promise has is not free", Pkg: "fsm",
		From: "return m.reads.absences.none(keys.Of(keys.Promise, namespace, id))", To: "return true", Tests: "TestFree",
	},
	{
		File: "fsm/machine/absences.go", Rule: "absences: what is written is no more absent",
		From: "if a.whole != nil && !a.whole.has(hash) {\n\t\ta.whole.add(hash)\n\t}\n", To: "", Tests: "TestAbsent",
	},
	{
		File: "fsm/machine/absences.go", Rule: "absences: a piece begins with the key at which the last one ended",
		From: "a.from, ended = bytes.Clone(key), false", To: "a.from, ended = append(bytes.Clone(key), 0), false", Tests: "TestAbsent",
	},
	{
		File: "fsm/machine/machine.go", Rule: "absences: entries read nothing for the filter", Pkg: "fsm",
		From: "	m.reportReady(&res.Effects)\n", To: "	if _, err := m.Learn(); err != nil {\n\t\treturn nil, err\n\t}\n\tm.reportReady(&res.Effects)\n", Tests: "TestLearn",
	},
	{
		File: "fsm/pending.go", Rule: "absences: a store learns",
		From: "more, err = s.machine.Learn(); err != nil", To: "err != nil", Tests: "TestLearn",
	},
	{
		File: "fsm/machine/absences.go", Rule: "absences: a filter that begins has what is not stored yet",
		From: "m.reads.absences.step(m.batch)", To: "m.reads.absences.step(m.reads)", Tests: "TestAbsencesHaveWhatIsNotStored",
	},
	{
		File: "fsm/machine/txn.go", Rule: "absences: each write of a promise is noted",
		From: "\t\t\tt.m.reads.absences.write(w)\n", To: "", Tests: "TestReplicasAgree",
	},
	{
		File: "fsm/machine/presence.go", Rule: "presence: only a set without keys saves the read of a key",
		From: "case m.present.none(prefix):\n", To: "case true:\n", Tests: "TestEmptySetsAreEmpty",
	},
	{
		File: "fsm/machine/txn.go", Rule: "places: one that stands for the retry timer has no other",
		From: "t.remove(t.deadlineOf(keys.DeadlineRetry, task.RetryAt, ns, e.ID))", To: "_ = keys.DeadlineRetry", Tests: "TestPlaceStandsForRetryTimer",
	},
	{
		File: "fsm/machine/txn.go", Rule: "places: before the level at which they stand for the retry timer, each task has one",
		From: "if t.m.feature >= state.LevelFunctions {\n\t\t\tvalue", To: "if true {\n\t\t\tvalue", Tests: "TestPlaceStandsForRetryTimer",
	},
	{
		File: "fsm/machine/store.go", Rule: "places: the timer beside a place of a former level goes with it",
		From: "if oldArmed && !same && !timed {", To: "if oldArmed && !same && !timed && old.State != recovery.TaskPending {", Tests: "TestPlaceStandsForRetryTimer",
	},
	{
		File: "fsm/machine/assign.go", Rule: "places: an assignment knows which of them have a timer beside them",
		From: "timed: state.RetryInPlace(value)", To: "timed: true", Tests: "TestPlaceStandsForRetryTimer",
	},
	{
		File: "fsm/machine/assign.go", Rule: "places: an assignment deletes no timer that is not there",
		From: "timed: state.RetryInPlace(value)", To: "timed: value == nil", Tests: "TestQueuedTaskIsAssignedWithoutReads",
	},
	{
		File: "fsm/machine/store.go", Rule: "places: a task that is written again in its queue gets no timer",
		From: "armed && (below || !same)", To: "armed", Tests: "TestTaskIsWrittenAgainInItsQueue",
	},
	{
		File: "fsm/machine/store.go", Rule: "places: one that the assignment has removed is not removed again",
		From: "last.order == task.RetryAt &&\n\t\ts.t.find(place) == nil {", To: "last.order == task.RetryAt {", Tests: "TestTaskIsWrittenAgainInItsQueue",
	},
	{
		File: "fsm/audit/ready.go", Rule: "audit: a place has no value but the one for its retry timer",
		From: "!client && state.RetryInPlace(value)", To: "!client && len(value) > 0", Pkg: "fsm/machine", Tests: "TestAuditFindsPlaceWithoutTimer",
	},
	{
		File: "fsm/audit/relations.go", Rule: "audit: a task has one retry timer, in its place or beside it",
		From: "if (state.Must{From: o.from}).Has(keys.DeadlineOf(deadline, at, o.ns, t.ID)) {", To: "if timers == nil && (state.Must{From: o.from}).Has(keys.DeadlineOf(deadline, at, o.ns, t.ID)) {",
		Pkg: "fsm/machine", Tests: "TestAuditFindsPlaceWithoutTimer",
	},
	{
		File: "fsm/machine/store.go", Rule: "callbacks: an operation resumes its execution without a row",
		From: "out = slices.Insert(out, i, owner)", To: "_ = i", Tests: "TestCallbacksWithoutRows",
	},
	{
		File: "fsm/machine/store.go", Rule: "callbacks: a row of a former level is removed with its promise",
		From: "if _, there := s.t.get(key); !there {", To: "if _, there := s.t.get(key); true || !there {", Tests: "TestCallbacksWithoutRows",
	},
	{
		File: "fsm/machine/store.go", Rule: "callbacks: before the level that needs none, each has a row",
		From: "if s.t.m.feature < state.LevelFunctions {\n\t\treturn \"\"", To: "if false {\n\t\treturn \"\"", Tests: "TestCallbacksWithoutRows",
	},
	{
		File: "fsm/machine/commit.go", Rule: "commit: the token is the present one",
		From: "Version: token.Version}); err != nil {", To: "Version: token.Version}); err != nil && token.Version > 1<<40 {",
		Tests: "TestStaleTokens",
	},
	{
		File: "fsm/machine/commit.go", Rule: "commit: nothing follows what ends the activation",
		From: `		if c.over {`, To: `		if c.over && c.state == recovery.TaskFulfilled {`, Tests: "TestMalformedWait",
	},
	{
		File: "fsm/machine/commit.go", Rule: "commit: a repeated one is not applied again",
		From: `bytes.Equal(ex.h.LastCommit, cmd.GetRequest().GetId()) {`, To: `bytes.Equal(ex.h.LastCommit, nil) {`,
		Tests: "TestCommitRepeated",
	},
	{
		File: "fsm/machine/commit.go", Rule: "commit: a child's result is the server's to write",
		From: `ok && !state.RunsLocally(inv.Kind) {`, To: `ok && inv.Kind == 0 {`, Tests: "TestCommitRefused",
	},
	{
		File: "fsm/machine/commit.go", Rule: "cancel: only the open attempt's result is still recorded",
		From: `known && inv.Open == done.Attempt && state.RunsLocally(inv.Kind) {`, To: `known && state.RunsLocally(inv.Kind) {`,
		Tests: "TestCommitWhileCancelling",
	},
	{
		File: "fsm/machine/txn.go", Rule: "a refused command leaves nothing in memory",
		From: "ex.h, ex.dirty, ex.touched, ex.born, ex.ending = t.headers[i],", To: "_, ex.dirty, ex.touched, ex.born, ex.ending = t.headers[i],",
		Tests: "TestCommitRefused",
	},
	{
		File: "fsm/machine/replies.go", Rule: "stored reply: the same request is answered, not run again",
		From: `return stored.Reply, true, nil`, To: `_ = stored`, Tests: "TestSignalRepeated",
	},
	{
		File: "fsm/machine/replies.go", Rule: "stored reply: a retry after its answer expired gets that error",
		From: `t.now-age-clockSlackMS <= t.m.evicted {`, To: `t.now-age-clockSlackMS < 0 {`, Tests: "TestExpiredReplies",
	},
	{
		File: "fsm/machine/replies.go", Rule: "stored reply: it holds no value of a promise",
		From: "reply = t.shortAnswer(cmd, reply)", To: "_ = t.shortAnswer(cmd, reply)", Tests: "TestStoredRepliesHoldNoValues",
	},
	{
		File: "fsm/machine/replies.go", Rule: "stored reply: the promise is answered as it was",
		From: "if short.Pending {", To: "if short.Pending && p.Value == nil {", Tests: "TestStoredRepliesHoldNoValues",
	},
	{
		File: "fsm/machine/replies.go", Rule: "stored reply: a later incarnation of the promise is not taken for it",
		From: "if !ok || p.Incarnation != short.Incarnation {", To: "if !ok {", Tests: "TestStoredReplyOfAPromiseThatIsGone",
	},
	{
		File: "fsm/machine/replies.go", Rule: "stored reply: their bytes are bounded",
		From: " || t.m.replyBytes > t.m.cfg.MaxReplyBytes {", To: " {", Tests: "TestRepliesBoundedInBytes",
	},
	{
		File: "fsm/machine/replies.go", Rule: "stored reply: what is forgotten counts no more",
		From: "bytes -= min(n, bytes)", To: "_ = n", Tests: "TestRepliesBoundedInBytes",
	},
	{
		File: "fsm/machine/replies.go", Rule: "stored reply: below its level a state is written as before",
		From: "sized := t.m.feature >= state.LevelReplies", To: "sized := t.m.feature >= state.LevelFirst", Tests: "TestRepliesBelowTheLevel",
	},
	{
		File: "fsm/machine/machine.go", Rule: "an entry is applied once",
		From: `if index <= m.applied {`, To: `if index < m.applied {`, Tests: "TestAppliedOnce",
	},
	{
		File: "fsm/machine/machine.go", Rule: "time: the machine's clock never runs backwards",
		From: `m.clock = max(m.clock, entry.TimeMs, 1)`, To: `m.clock = max(entry.TimeMs, 1)`, Tests: "TestReplicasAgree",
	},
	{
		File: "fsm/machine/machine.go", Rule: "time: it is never 0, which means that something is not",
		From: `m.clock = max(m.clock, entry.TimeMs, 1)`, To: `m.clock = max(m.clock, entry.TimeMs)`, Tests: "TestEndingAtTimeZero",
	},
	{
		File: "fsm/machine/machine.go", Rule: "time: an object's expirations run before its command",
		From: `t.runExpirations(cmd.Namespace, cmd.Id)`, To: ``, Tests: "TestEndings",
	},
	{
		File: "fsm/machine/store.go", Rule: "deadline index: a deadline goes with what it was of",
		From: `if oldArmed && !same && !timed {`, To: `if oldArmed && !same && !timed && !(newArmed && newAt >= oldAt) {`, Tests: "TestLease",
	},
	{
		File: "fsm/machine/store.go", Rule: "deadline index: a settled promise has none",
		From: `old.State == recovery.PromisePending {
			s.t.remove(deadline)`, To: `old.State == recovery.PromisePending {
			_ = deadline`, Tests: "TestPromiseDeadline",
	},
	{
		File: "fsm/machine/store.go", Rule: "ready queue: who is taken leaves it",
		From: `s.t.remove(place)`, To: `_ = place`, Tests: "TestAssign",
	},
	{
		File: "fsm/machine/assign.go", Rule: "ready queue: at most the granted credit",
		From: `return all[:min(len(all), credit)]`, To: `return all`, Tests: "TestAssign",
	},
	{
		File: "fsm/machine/assign.go", Rule: "ready queue: functions take turns",
		From: `inTurns(all, credit, t.index)`, To: `_ = inTurns`, Tests: "TestAssignInTurns",
	},
	{
		File: "fsm/machine/assign.go", Rule: "ready queue: a function with old tasks leaves credit to the others",
		From: `credit < len(functions) && index%2 == 0`, To: `false`, Tests: "TestAssignInTurns",
	},
	{
		File: "fsm/machine/assign.go", Rule: "ready queue: a worker gets as many as its own credit",
		From: "\t\t\tr.credit--\n", To: "", Tests: "TestPreferredWorker TestAssign",
	},
	{
		File: "fsm/machine/assign.go", Rule: "ready queue: an execution's tasks go to one worker",
		From: `best == nil || rank > most`, To: `best == nil || rank > most && r.credit < 0`, Tests: "TestPreferredWorker",
	},
	{
		File: "fsm/machine/assign.go", Rule: "ready queue: a task's expirations run before its assignment",
		From: `t.runExpirations(o.Namespace, w.id)`, To: ``, Tests: "TestAssignRunsExpirations",
	},
	{
		File: "fsm/machine/tick.go", Rule: "tick: the limit is for all kinds together",
		From: `t.expired(kind, limit-done)`, To: `t.expired(kind, limit)`, Tests: "TestTickLimit",
	},
	{
		File: "fsm/machine/chain.go", Rule: "ending: a deadline in Cancelling needs no second request",
		From: "if ex.h.Status != journal.StatusCancelling {\n\t\t\tt.must(ex, journal.CancelRequested{Reason: \"timed out\"})\n\t\t}",
		To:   `t.must(ex, journal.CancelRequested{Reason: "timed out"})`, Tests: "TestEndings",
	},
	{
		File: "fsm/machine/commit.go", Rule: "ending: a failed execution rejects its promise",
		From: `c.t.finish(c.ex, recovery.PromiseRejected, e.Error)`, To: `c.t.finish(c.ex, recovery.PromiseResolved, e.Error)`, Tests: "TestEndings",
	},
	{
		File: "fsm/machine/chain.go", Rule: "ending: a terminated execution's promise is canceled",
		From: `t.finish(ex, recovery.PromiseRejectedCanceled, state.EncodeFailure(state.FailureCancelled, reason))`,
		To:   `t.finish(ex, recovery.PromiseRejected, state.EncodeFailure(state.FailureCancelled, reason))`, Tests: "TestEndings",
	},
	{
		File: "fsm/machine/chain.go", Rule: "cancel: the grace ends at its last millisecond",
		From: `ex.h.GraceAt > t.now {`, To: `ex.h.GraceAt >= t.now {`, Tests: "TestGrace",
	},
	{
		File: "fsm/machine/chain.go", Rule: "chain: an awaiter is woken when its wait is satisfied, not before",
		From: `|| !ex.j.WaitSatisfied() {`, To: `{`, Tests: "TestWaits",
	},
	{
		File: "fsm/machine/signal.go", Rule: "signal: only a worker that holds the task is told of it",
		From: `ok && task.State == recovery.TaskAcquired {`, To: `ok {`, Tests: "TestSignalIsAnnounced",
	},
	{
		File: "fsm/machine/signal.go", Rule: "signal: large ones do not wait for a worker's stream",
		From: `|| len(payload) > firstBytes {`, To: `{`, Tests: "TestSignalIsAnnounced",
	},
	{
		File: "fsm/machine/signal.go", Rule: "signal: no commit receives one below its level",
		From: "\tif c.t.m.feature < state.LevelFunctions {", To: "\tif c.t.m.feature < state.LevelFirst {", Tests: "TestSignalReceivedInACommit",
	},
	{
		File: "fsm/machine/signal.go", Rule: "signal: one that comes after the wait's deadline is for the next wait",
		From: `t.timeout(ex.ns, wait)`, To: `_ = wait`, Tests: "TestSignalPastDeadline",
	},
	{
		File: "fsm/machine/signal_call.go", Rule: "send: a signal without a receiver was not delivered",
		From: `return nil, state.EncodeFailure(state.FailureTargetNotFound, fmt.Sprintf("no execution %q in namespace %q", objectID, ns))`,
		To:   `return nil, recovery.AppendOutcome(nil, recovery.Outcome{Data: []byte(fmt.Sprint())})`, Tests: "TestSignalToNobody",
	},
	{
		File: "fsm/machine/signal_call.go", Rule: "send: a signal to what has ended was not delivered",
		From: `return nil, state.EncodeFailure(state.FailureTargetFinished, fmt.Sprintf("execution %q has ended: %s", objectID, ex.h.Status))`,
		To:   `return nil, recovery.AppendOutcome(nil, recovery.Outcome{})`, Tests: "TestSignalToNobody",
	},
	{
		File: "fsm/machine/signal_call.go", Rule: "send: what another partition has not answered is not complete",
		From:  "msg.Kind = &commandv1.Message_SignalCall{",
		To:    "if err := c.add(journal.InvokeCompleted{Promise: e.Promise, Attempt: 1, Result: recovery.AppendOutcome(nil, recovery.Outcome{})}); err != nil {\n\t\t\treturn err\n\t\t}\n\t\tmsg.Kind = &commandv1.Message_SignalCall{",
		Tests: "TestSignalToNobody",
	},
	{
		File: "fsm/machine/start_detached.go", Rule: "send: the answer states the signal's outcome",
		From: `SignalDone{Outcome: wire.EncodeOutcome(result)}`, To: `SignalDone{Outcome: wire.EncodeOutcome(result[:0])}`, Tests: "TestSignalToNobody",
	},
	{
		File: "fsm/machine/signal_call.go", Rule: "send: an answer is for one incarnation of the sender",
		From: `p.Incarnation != msg.ToIncarnation || `, To: ``, Tests: "TestSignalAnsweredOnce",
	},
	{
		File: "fsm/machine/signal_call.go", Rule: "send: what failed rejects its promise",
		From: `if w.Outcome.GetFailure() != nil {`, To: `if w.Outcome == nil {`, Tests: "TestSignalAnsweredAfterTheEnd",
	},
	{
		File: "fsm/machine/commit_child.go", Rule: "send: a state below the level does what older programs do",
		From: `sig != nil && c.t.m.feature >= state.LevelAnswers {`, To: `sig != nil {`, Tests: "TestSignalBelowLevel",
	},
	{
		File: "fsm/machine/signal_call.go", Rule: "send: a state that got a signal to answer is of the level",
		From: "t.level = max(t.level, state.LevelAnswers)\n\ttarget,", To: "target,", Tests: "TestSignalBelowLevel",
	},
	{
		File: "fsm/machine/deliver.go", Rule: "channel: a message is applied once",
		From: "if msg.Seq <= ch.Last {\n\t\t\tcontinue", To: "if msg.Seq < ch.Last {\n\t\t\tcontinue", Tests: "TestSpreadDelivery",
	},
	{
		File: "fsm/machine/txn.go", Rule: "deadline index: a search goes back for what was added before its place",
		From: `t.m.deadlines.Lower(w.key)`, To: `_ = w.key`, Tests: "TestDeadlineBeforeTheSearch",
	},
	{
		File: "fsm/query/deadline.go", Rule: "deadline index: a leader's scan goes back for an earlier deadline",
		From: `s.from[kind] = min(s.from[kind], added)`, To: `_ = kind`, Tests: "TestDeadlineSearch",
	},
	{
		File: "fsm/state/channel.go", Rule: "channel: the outbox is read from its first message on",
		From: `for present-absent > 1 {`, To: `for present-absent > 2 {`, Tests: "TestOutboxFront",
	},
	{
		File: "fsm/machine/execution.go", Rule: "section: the end of an execution, by any path, gives its locks back",
		From: "ex.h.ClosedMS = t.now\n\tt.leaveSection(ex)", To: "ex.h.ClosedMS = t.now", Tests: "TestSection",
	},
	{
		File: "fsm/machine/commit_child.go", Rule: "section: no child inside",
		From: `if err := c.mayStartChild(); err != nil {`, To: `if err := c.mayStartChild(); err != nil && false {`, Tests: "TestSection",
	},
	{
		File: "fsm/machine/continue.go", Rule: "section: no continue-as-new inside",
		From: `held == entity.Acquiring || held == entity.Inside {`, To: `held == entity.Acquiring {`, Tests: "TestSection",
	},
	{
		File: "fsm/machine/entity_section.go", Rule: "section: an answered call is no longer under way",
		From: "err == nil && waited {\n\t\t\tt.putHolder(ex)", To: "err == nil && waited {", Tests: "TestSection",
	},
	{
		File: "fsm/machine/entity.go", Rule: "entity: an operation that used up its attempts fails",
		From: `if o.Failures < state.EntityAttempts {`, To: `if o.Failures < 100*state.EntityAttempts {`, Tests: "TestPoisonedOperation",
	},
	{
		File: "fsm/wire/entity.go", Rule: "entity: after a failed attempt an operation runs alone",
		From: `if e.Failures > 0 {`, To: `if e.Failures > 1000 {`, Tests: "TestPoisonedOperation", Pkg: "fsm/machine",
	},
	{
		File: "fsm/machine/entity_commit.go", Rule: "entity: operations given back without a problem are no attempt",
		From: `if req.Problem != "" {`, To: `if req.Problem != "" || true {`, Tests: "TestPoisonedOperation",
	},
	{
		File: "fsm/machine/entity_commit.go", Rule: "entity: a repeated commit is answered, not refused",
		From: `if o != nil && len(o.LastCommit) > 0 &&`, To: `if false && len(o.LastCommit) > 0 &&`, Tests: "TestEntityOfClients",
	},
	{
		File: "fsm/machine/entity_commit.go", Rule: "entity: the task of one with nothing to run is halted",
		From: "t.halt(ns, req.Task.Id)\n\t\treturn", To: "return", Tests: "TestEntityOfClients",
	},
	{
		File: "fsm/machine/entity_commit.go", Rule: "entity: scheduled signals that a lock has overtaken are no error of their worker",
		From: `e.Rule == entity.RuleLane {`, To: `e.Rule == "" {`, Tests: "TestBankSimulation",
	},
	{
		File: "fsm/machine/entity.go", Rule: "entity: a list with an entry in its middle is not its former self",
		From: "for front < most && before[front].Seq == after[front].Seq {", To: "for front < most {", Tests: "TestChangesInTheMiddle",
	},
	{
		File: "fsm/machine/entity_client.go", Rule: "entity: a backlog is full with what comes in the same shipment",
		From: "(backlog{b.entries + more.entries, ", To: "(backlog{b.entries - more.entries, ", Tests: "TestFullBacklog",
	},
	{
		File: "fsm/machine/entity_section.go", Rule: "entity: a full backlog refuses the functions of its partition",
		From: "if refused := t.admitted(ns, entityID); refused != nil {", To: "if refused := t.admitted(ns, entityID); refused != nil && h == nil {", Tests: "TestFullBacklog",
	},
	{
		File: "fsm/machine/entity_commit.go", Rule: "entity: a full backlog refuses the entities of its partition",
		From: "t.signalsAdmitted(o, len(c.Results), req.Signals); refused != nil {", To: "t.signalsAdmitted(o, len(c.Results), req.Signals[:0]); refused != nil {",
		Tests: "TestFullBacklogRefusesEntities",
	},
	{
		File: "fsm/machine/entity_client.go", Rule: "entity: a full entity adds nothing to its own backlog",
		From: "before.entries + own.entries - len(ran.Operations)", To: "before.entries - len(ran.Operations)", Tests: "TestFullBacklogRefusesEntities",
	},
	{
		File: "fsm/machine/entity_client.go", Rule: "entity: a full entity adds no bytes to its own backlog",
		From: "before.bytes + own.bytes}", To: "before.bytes}", Tests: "TestFullBacklogRefusesEntities",
	},
	{
		File: "fsm/machine/entity_client.go", Rule: "entity: a backlog is bounded in bytes",
		From: "|| b.bytes >= maxEntityBytes", To: "|| b.bytes >= 2*maxEntityBytes", Tests: "TestFullBacklogOfBytes",
	},
	{
		File: "fsm/machine/entity.go", Rule: "entity: the bytes of a backlog are known after a restart",
		From: "for _, e := range l {\n\t\t\to.bytes += e.Bytes()", To: "for _, e := range l[:0] {\n\t\t\to.bytes += e.Bytes()", Tests: "TestFullBacklogOfBytes",
	},
	{
		File: "fsm/machine/entity.go", Rule: "entity: operations that have run leave their bytes",
		From: "o.bytes -= e.Bytes()", To: "_ = e.Bytes()", Tests: "TestFullBacklogOfBytes",
	},
	{
		File: "fsm/machine/entity_section.go", Rule: "entity: a critical section signals into a full backlog",
		From: "if h.Phase == entity.Inside {\n\t\treturn nil\n\t}\n\tif refused := t.admitted", To: "if refused := t.admitted", Tests: "TestFullBacklog",
	},
	{
		File: "fsm/machine/entity.go", Rule: "entity: messages of one sender in one partition keep their order",
		From: "next := t.posted[0]\n\t\tt.posted = t.posted[1:]", To: "last := len(t.posted) - 1\n\t\tnext := t.posted[last]\n\t\tt.posted = t.posted[:last]",
		Tests: "TestEntityRefinement",
	},
	{
		File: "fsm/machine/entity_section.go", Rule: "entity: a call gets the outcome of its operation",
		From: "if r.Failed {", To: "if r.Failed && len(r.Output) == 0 {", Tests: "TestEntityRefinement",
	},
	{
		File: "fsm/machine/entity_section.go", Rule: "entity: a function's scheduled signal waits for its time",
		From: "t.dueAt(w.EntitySignal.DelayMs)", To: "t.dueAt(0*w.EntitySignal.DelayMs)", Tests: "TestEntityRefinement",
	},
	{
		File: "fsm/machine/restart.go", Rule: "restart: none keeps the beginning of a critical section without its end",
		From: "at, inside = i, true", To: "at, inside = i, false", Tests: "TestRestartInsideSection",
	},
	{
		File: "fsm/machine/entity.go", Rule: "entity: one that is as good as new is not stored",
		From: "if o.Collectable() {", To: "if o.Collectable() && !ok {", Tests: "TestEntityOfClients",
	},
	{
		File: "fsm/machine/entity_client.go", Rule: "entity: the result of a client's call is deleted in time",
		From: "ns, call))\n\tt.forget(ns, call)", To: "ns, call))", Tests: "TestEntityOfClients",
	},
	{
		File: "fsm/machine/tick.go", Rule: "entity: a tick queues scheduled signals",
		From: "t.queueScheduled(object.Namespace, object.ID)", To: "_ = object", Tests: "TestEntityOfClients",
	},
}
