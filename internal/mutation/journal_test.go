package mutation

// journalBugs break the invariants of the journal spec (S, SE, CF, JS), its rulings (R, K), the codec and
// the replay, in the order of the rules.
var journalBugs = []bug{
	{
		file: "journal/state.go", rule: "S-1 the next sequence number and no later one",
		from: `case seq != s.seq:`, to: `case seq < s.seq:`, tests: "TestSequence",
	},
	{
		file: "journal/state.go", rule: "S-3 ExecutionFailed is terminal",
		from: `k == KindExecutionCompleted || k == KindExecutionFailed ||`, to: `k == KindExecutionCompleted ||`,
		tests: "TestExecutionCompleted",
	},
	{
		file: "journal/state.go", rule: "S-4 no signal after the end",
		from: "case s.status.Terminal():", to: "case s.status.Terminal() && kind != KindSignalDelivered:",
		tests: "TestSignalDelivered",
	},
	{
		file: "journal/event_execution_cancelled.go", rule: "S-5 no Cancelled from Blocked without a request",
		from: `if s.status != StatusCancelling {`, to: `if s.status == StatusRunning {`, tests: "TestExecutionCancelled",
	},
	{
		file: "journal/child.go", rule: "INV-6, R4 a child number is taken once",
		from: `return ok && uint64(n) == uint64(len(s.children))`, to: `return ok && uint64(n) <= uint64(len(s.children))`,
		tests: "TestInvokeScheduledTakesNextChild",
	},
	{
		file: "journal/event_invoke_scheduled.go", rule: "SE-1 a timer cannot be started",
		from: `case c.call != callInvoke:`, to: `case c.call == callJoinSet:`, tests: "TestInvokeStarted",
	},
	{
		file: "journal/event_invoke_completed.go", rule: "SE-2 the refusal of a result before any attempt names SE-2",
		from: `case !c.started():`, to: `case c.open && !c.started():`, tests: "TestInvokeCompleted",
	},
	{
		file: "journal/event_invoke_retrying.go", rule: "SE-3 the refusal of a failure before any attempt names SE-3",
		from: `case !c.started():`, to: `case c.open && !c.started():`, tests: "TestInvokeRetrying",
	},
	{
		file: "journal/event_invoke_started.go", rule: "SE-4 no attempt after the result",
		from: `case c.resolved:`, to: `case c.resolved && c.open:`, tests: "TestInvokeStarted",
	},
	{
		file: "journal/event_invoke_retrying.go", rule: "SE-5 as many retries as the policy allows, not one more",
		from: `if c.retries >= c.bound {`, to: `if c.retries > c.bound {`, tests: "TestInvokeRetryingBound",
	},
	{
		file: "journal/event_timer_fired.go", rule: "CF-1 only a timer fires",
		from: `case c.call != callTimer:`, to: `case c.call == callJoinSet:`, tests: "TestTimerFired",
	},
	{
		file: "journal/event_signal_received.go", rule: "CF-2 the payload is the delivered one",
		from: `case !bytes.Equal(e.Payload, payload):`, to: `case len(e.Payload) > 0 && !bytes.Equal(e.Payload, payload):`,
		tests: "TestSignalReceivedBuffered",
	},
	{
		file: "journal/event_signal_received.go", rule: "CF-3 a second consumption is named as such",
		from: `case !buffered || e.DeliveryID < next:`, to: `case !buffered:`, tests: "TestSignalReceivedBuffered",
	},
	{
		file: "journal/event_execution_awaiting.go", rule: "CF-4 a signal wait is on one promise",
		from: "if len(e.On) != 1 {", to: "if len(e.On) < 1 {", tests: "TestExecutionAwaitingSignal",
	},
	{
		file: "journal/event_join_set_created.go", rule: "JS-1 what is submitted to is a join set",
		from: `if c == nil || c.call != callJoinSet {`, to: `if c == nil || c.call == callTimer {`, tests: "TestJoinSetSubmitted",
	},
	{
		file: "journal/event_join_set_awaited.go", rule: "JS-2 an awaited set is closed",
		from: `s.change(id.PromiseID(e.Set)).closed = true`, to: `s.change(id.PromiseID(e.Set)).closed = false`,
		tests: "TestJoinSetSubmitted",
	},
	{
		file: "journal/event_join_set_awaited.go", rule: "JS-3 only a member of this very set is awaited",
		from: `case c == nil || !c.submitted || c.set != n:`, to: `case c == nil || !c.submitted || c.set > n:`,
		tests: "TestJoinSetAwaited",
	},
	{
		file: "journal/event_join_set_awaited.go", rule: "JS-4 only a completed member is awaited",
		from: `case !c.resolved:`, to: `case !c.started():`, tests: "TestJoinSetAwaited",
	},
	{
		file: "journal/event_join_set_awaited.go", rule: "JS-5 a member is consumed once",
		from: `s.change(e.Promise).consumed = true`, to: `s.change(e.Promise).consumed = false`, tests: "TestJoinSetAwaited",
	},
	{
		file: "journal/check_joinset.go", rule: "JS-6 a set yields no more than was put in",
		from: `balance[e.Set] < 0`, to: `balance[e.Set] < -1`, tests: "TestCheckFindsEverything",
	},
	{
		file: "journal/event_join_set_submitted.go", rule: "JS-7 a promise in another set is named as such",
		from: `case c.submitted && c.set != n:`, to: `case c.submitted && c.set > n:`, tests: "TestJoinSetSubmitted",
	},
	{
		file: "journal/event_execution_completed.go", rule: "R1 a blocked execution cannot return",
		from: `if s.status != StatusRunning {`, to: `if s.status == StatusCancelling {`, tests: "TestExecutionCompleted",
	},
	{
		file: "journal/event_cancel_requested.go", rule: "R2 one cancel, one record",
		from: `if s.status == StatusCancelling {`, to: `if s.status == StatusNone {`,
		pkg: "journal/conformance", tests: "TestPublishedCases",
	},
	{
		file: "journal/event_invoke_started.go", rule: "R5 attempts have no gaps",
		from: `case e.Attempt != c.retries+1:`, to: `case e.Attempt < c.retries+1:`, tests: "TestInvokeStarted",
	},
	{
		file: "journal/event_invoke_started.go", rule: "R7 no attempt begins after a cancel",
		from: `if s.status == StatusCancelling {`, to: `if s.status == StatusNone {`, tests: "TestInvokeStartedWhileNotRunning",
	},
	{
		file: "journal/event_invoke_completed.go", rule: "R8 a late worker's result is refused",
		from: `case attempt != c.openAttempt():`, to: `case attempt > c.openAttempt():`, tests: "TestInvokeCompleted",
	},
	{
		file: "journal/event_invoke_retrying.go", rule: "R9 only the open attempt fails",
		from: `if v := c.closes(RuleRetriesOpenAttempt, e.Promise, e.FailedAttempt); v != nil {`,
		to:   `if v := c.closes(RuleRetriesOpenAttempt, e.Promise, e.FailedAttempt); v != nil && !c.open {`, tests: "TestInvokeRetrying",
	},
	{
		file: "journal/event_timer_fired.go", rule: "R10 a timer fires once",
		from: `case c.resolved:`, to: `case c.resolved && s.status == StatusRunning:`, tests: "TestTimerFired",
	},
	{
		file: "journal/event_signal_received.go", rule: "R11 the wait is answered by a signal of its name",
		from: `case e.Promise != s.waitOn[0] || e.Name != s.waitSignal:`, to: `case e.Promise != s.waitOn[0]:`,
		tests: "TestSignalReceivedBlocked",
	},
	{
		file: "journal/event_execution_awaiting.go", rule: "R12 nobody waits for a random value",
		from: `case c.call != callInvoke && c.call != callTimer:`, to: `case c.call == callJoinSet || c.call == callSignal:`,
		tests: "TestExecutionAwaitingMembers",
	},
	{
		file: "journal/event_execution_awaiting.go", rule: "R13 a satisfied wait for any is not recorded",
		from: `e.Wait == AwaitAny && resolved > 0`, to: `e.Wait == AwaitAny && resolved > 1`, tests: "TestExecutionAwaitingNeedless",
	},
	{
		file: "journal/event_execution_awaiting.go", rule: "R13 no wait for a signal that lies unconsumed",
		from: `s.NextReceipt(e.Signal); buffered {`, to: `s.NextReceipt(e.Signal); buffered && delivery > 1 {`,
		tests: "TestExecutionAwaitingSignal",
	},
	{
		file: "journal/event_join_set_submitted.go", rule: "R15 an invocation is submitted once",
		from: `case c.submitted:`, to: `case c.submitted && c.resolved:`, tests: "TestJoinSetSubmitted",
	},
	{
		file: "journal/child.go", rule: "R16 a long result is compared, not only measured",
		from: `return len(payload) > sha256.Size && sha256.Sum256(payload) == f.bytes`, to: `return len(payload) > sha256.Size`,
		tests: "TestJoinSetAwaitedResults",
	},
	{
		file: "journal/event_execution_started.go", rule: "K5 one start",
		from: `if s.status != StatusNone {`, to: `if s.status == StatusBlocked {`, tests: "TestExecutionStarted",
	},
	{
		file: "journal/state.go", rule: "K8 no new work while Cancelling",
		from: "case StatusCancelling:", to: "case StatusNone:", tests: "TestInvokeScheduled",
	},
	{
		file: "journal/event_execution_resumed.go", rule: "K9 a wait for all needs all",
		from: `case !s.WaitSatisfied():`, to: `case s.waitResolved == 0:`, tests: "TestExecutionResumed",
	},
	{
		file: "journal/state.go", rule: "K9 a wait for any needs one",
		from: "return s.waitResolved > 0", to: "return s.waitResolved == len(s.waitOn)", tests: "TestExecutionResumed",
	},
	{
		file: "journal/child.go", rule: "K9 a wait counts its own members only",
		from: `if s.status == StatusBlocked && c.waitEpoch == s.waitEpoch {`, to: `if s.status == StatusBlocked {`,
		tests: "TestExecutionAwaitingCountsItsOwnMembers",
	},
	{
		file: "journal/event_signal_delivered.go", rule: "K12 deliveries are numbered without gaps",
		from: `e.DeliveryID != next {`, to: `e.DeliveryID < next {`, tests: "TestSignalDelivered",
	},
	{
		file: "journal/event_signal_received.go", rule: "K13 a name's signals are consumed in order",
		from: `case e.DeliveryID != next:`, to: `case e.DeliveryID < next:`, tests: "TestSignalReceivedBuffered",
	},
	{
		file: "journal/event_invoke_scheduled.go", rule: "K15 unknown kinds of invocations are refused",
		from: `	if !e.Invoke.Valid() {`, to: `	if e.Invoke == 0 {`, tests: "TestInvokeScheduled",
	},
	{
		file: "journal/transaction.go", rule: "a transaction is taken back in reverse order",
		from: `for i := len(u.oldChild) - 1; i >= 0; i-- {`, to: `for i := range u.oldChild {`, tests: "TestTransactions",
	},
	{
		file: "journal/replay.go", rule: "an answered signal wait keeps its place in a replay",
		from: `waited != nil {`, to: `waited != nil && waited.Resolved {`, tests: "TestReplay",
	},
	{
		file: "journal/codec.go", rule: "codec: a number has one encoding",
		from: `case n > 1 && d.data[d.off+n-1] == 0:`, to: `case n > 2 && d.data[d.off+n-1] == 0:`, tests: "TestDecodeRefuses",
	},
	{
		file: "journal/codec.go", rule: "codec: an entry fills its bytes",
		from: `if d.err == nil && d.off != len(data) {`, to: `if d.err == nil && d.off > len(data) {`, tests: "TestDecodeWantsTheWholeEntry",
	},
	{
		file: "journal/codec.go", rule: "codec: an entry keeps no reference to its bytes",
		from: `return append([]byte(nil), b...)`, to: `return b`, tests: "TestDecodeCopies",
	},
	{
		file: "journal/event_execution_awaiting.go", rule: "codec: the members of a wait ascend",
		from: `first < second`, to: `first <= second`, tests: "TestDecodeRefuses",
	},
}
