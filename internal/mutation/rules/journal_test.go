package rules

import "perdure/internal/mutation"

// journalBugs break the invariants of the journal spec (S, SE, CF, JS), its rulings (R, K), the codec and
// the replay, in the order of the rules.
var journalBugs = []mutation.Bug{
	{
		File: "journal/state.go", Rule: "S-1 the next sequence number and no later one",
		From: `case seq != s.seq:`, To: `case seq < s.seq:`, Tests: "TestSequence",
	},
	{
		File: "journal/state.go", Rule: "S-3 ExecutionFailed is terminal",
		From: `k == KindExecutionCompleted || k == KindExecutionFailed ||`, To: `k == KindExecutionCompleted ||`,
		Tests: "TestExecutionCompleted",
	},
	{
		File: "journal/state.go", Rule: "S-4 no signal after the end",
		From: "case s.status.Terminal():", To: "case s.status.Terminal() && kind != KindSignalDelivered:",
		Tests: "TestSignalDelivered",
	},
	{
		File: "journal/event_execution_cancelled.go", Rule: "S-5 no Cancelled from Blocked without a request",
		From: `if s.status != StatusCancelling {`, To: `if s.status == StatusRunning {`, Tests: "TestExecutionCancelled",
	},
	{
		File: "journal/child.go", Rule: "INV-6, R4 a child number is taken once",
		From: `return ok && uint64(n) == uint64(len(s.children))`, To: `return ok && uint64(n) <= uint64(len(s.children))`,
		Tests: "TestInvokeScheduledTakesNextChild",
	},
	{
		File: "journal/event_invoke_scheduled.go", Rule: "SE-1 a timer cannot be started",
		From: `case c.call != callInvoke:`, To: `case c.call == callJoinSet:`, Tests: "TestInvokeStarted",
	},
	{
		File: "journal/event_invoke_completed.go", Rule: "SE-2 the refusal of a result before any attempt names SE-2",
		From: `case !c.started():`, To: `case c.open && !c.started():`, Tests: "TestInvokeCompleted",
	},
	{
		File: "journal/event_invoke_retrying.go", Rule: "SE-3 the refusal of a failure before any attempt names SE-3",
		From: `case !c.started():`, To: `case c.open && !c.started():`, Tests: "TestInvokeRetrying",
	},
	{
		File: "journal/event_invoke_started.go", Rule: "SE-4 no attempt after the result",
		From: `case c.resolved:`, To: `case c.resolved && c.open:`, Tests: "TestInvokeStarted",
	},
	{
		File: "journal/event_invoke_retrying.go", Rule: "SE-5 as many retries as the policy allows, not one more",
		From: `if c.retries >= c.bound {`, To: `if c.retries > c.bound {`, Tests: "TestInvokeRetryingBound",
	},
	{
		File: "journal/event_timer_fired.go", Rule: "CF-1 only a timer fires",
		From: `case c.call != callTimer:`, To: `case c.call == callJoinSet:`, Tests: "TestTimerFired",
	},
	{
		File: "journal/event_signal_received.go", Rule: "CF-2 the payload is the delivered one",
		From: `case !s.brought(e.Name, e.Payload):`, To: `case len(e.Payload) > 0 && !s.brought(e.Name, e.Payload):`,
		Tests: "TestSignalReceivedBuffered",
	},
	{
		File: "journal/event_signal_received.go", Rule: "CF-3 a second consumption is named as such",
		From: `case !buffered || e.DeliveryID < next:`, To: `case !buffered:`, Tests: "TestSignalReceivedBuffered",
	},
	{
		File: "journal/event_execution_awaiting.go", Rule: "CF-4 a signal wait is on one promise",
		From: "if len(e.On) != 1 {", To: "if len(e.On) < 1 {", Tests: "TestExecutionAwaitingSignal",
	},
	{
		File: "journal/event_join_set_created.go", Rule: "JS-1 what is submitted to is a join set",
		From: `if c == nil || c.call != callJoinSet {`, To: `if c == nil || c.call == callTimer {`, Tests: "TestJoinSetSubmitted",
	},
	{
		File: "journal/event_join_set_awaited.go", Rule: "JS-2 an awaited set is closed",
		From: `set.closed = true`, To: `set.closed = false`,
		Tests: "TestJoinSetSubmitted",
	},
	{
		File: "journal/event_join_set_awaited.go", Rule: "JS-3 only a member of this very set is awaited",
		From: `case c == nil || !c.submitted || c.set != n:`, To: `case c == nil || !c.submitted || c.set > n:`,
		Tests: "TestJoinSetAwaited",
	},
	{
		File: "journal/event_join_set_awaited.go", Rule: "JS-4 only a completed member is awaited",
		From: `case !c.resolved:`, To: `case !c.started():`, Tests: "TestJoinSetAwaited",
	},
	{
		File: "journal/event_join_set_awaited.go", Rule: "JS-5 a member is consumed once",
		From: `s.change(e.Promise).consumed = true`, To: `s.change(e.Promise).consumed = false`, Tests: "TestJoinSetAwaited",
	},
	{
		File: "journal/check_joinset.go", Rule: "JS-6 a set yields no more than was put in",
		From: `balance[e.Set] < 0`, To: `balance[e.Set] < -1`, Tests: "TestCheckFindsEverything",
	},
	{
		File: "journal/event_join_set_submitted.go", Rule: "JS-7 a promise in another set is named as such",
		From: `case c.submitted && c.set != n:`, To: `case c.submitted && c.set > n:`, Tests: "TestJoinSetSubmitted",
	},
	{
		File: "journal/event_execution_completed.go", Rule: "R1 a blocked execution cannot return",
		From: `if s.status != StatusRunning {`, To: `if s.status == StatusCancelling {`, Tests: "TestExecutionCompleted",
	},
	{
		File: "journal/event_cancel_requested.go", Rule: "R2 one cancel, one record",
		From: `if s.status == StatusCancelling {`, To: `if s.status == StatusNone {`,
		Pkg: "journal/conformance", Tests: "TestPublishedCases",
	},
	{
		File: "journal/event_invoke_started.go", Rule: "R5 attempts have no gaps",
		From: `case e.Attempt != c.retries+1:`, To: `case e.Attempt < c.retries+1:`, Tests: "TestInvokeStarted",
	},
	{
		File: "journal/event_invoke_started.go", Rule: "R7 no attempt begins after a cancel",
		From: `if s.status == StatusCancelling {`, To: `if s.status == StatusNone {`, Tests: "TestInvokeStartedWhileNotRunning",
	},
	{
		File: "journal/event_invoke_completed.go", Rule: "R8 a late worker's result is refused",
		From: `case attempt != c.openAttempt():`, To: `case attempt > c.openAttempt():`, Tests: "TestInvokeCompleted",
	},
	{
		File: "journal/event_invoke_retrying.go", Rule: "R9 only the open attempt fails",
		From: `if v := c.closes(RuleRetriesOpenAttempt, e.Promise, e.FailedAttempt); v != nil {`,
		To:   `if v := c.closes(RuleRetriesOpenAttempt, e.Promise, e.FailedAttempt); v != nil && !c.open {`, Tests: "TestInvokeRetrying",
	},
	{
		File: "journal/event_timer_fired.go", Rule: "R10 a timer fires once",
		From: `case c.resolved:`, To: `case c.resolved && s.status == StatusRunning:`, Tests: "TestTimerFired",
	},
	{
		File: "journal/event_signal_received.go", Rule: "R11 the wait is answered by a signal of its name",
		From: `case e.Promise != s.waitOn[0] || e.Name != s.waitSignal:`, To: `case e.Promise != s.waitOn[0]:`,
		Tests: "TestSignalReceivedBlocked",
	},
	{
		File: "journal/event_execution_awaiting.go", Rule: "R12 no execution waits for a random value",
		From: `case c.call != callInvoke && c.call != callTimer:`, To: `case c.call == callJoinSet || c.call == callSignal:`,
		Tests: "TestExecutionAwaitingMembers",
	},
	{
		File: "journal/event_execution_awaiting.go", Rule: "R13 a satisfied wait for any is not recorded",
		From: `e.Wait == AwaitAny && resolved > 0`, To: `e.Wait == AwaitAny && resolved > 1`, Tests: "TestExecutionAwaitingNeedless",
	},
	{
		File: "journal/event_execution_awaiting.go", Rule: "R13 no wait for a signal that lies unconsumed",
		From: `s.NextReceipt(e.Signal); buffered {`, To: `s.NextReceipt(e.Signal); buffered && delivery > 1 {`,
		Tests: "TestExecutionAwaitingSignal",
	},
	{
		File: "journal/event_join_set_submitted.go", Rule: "R15 an invocation is submitted once",
		From: `case c.submitted:`, To: `case c.submitted && c.resolved:`, Tests: "TestJoinSetSubmitted",
	},
	{
		File: "journal/child.go", Rule: "R16 a long result is compared, not only measured",
		From: `return len(payload) > sha256.Size && sha256.Sum256(payload) == f.bytes`, To: `return len(payload) > sha256.Size`,
		Tests: "TestJoinSetAwaitedResults",
	},
	{
		File: "journal/event_execution_started.go", Rule: "K5 one start",
		From: `if s.status != StatusNone {`, To: `if s.status == StatusBlocked {`, Tests: "TestExecutionStarted",
	},
	{
		File: "journal/state.go", Rule: "K8 no new work while Cancelling",
		From: "case StatusCancelling:", To: "case StatusNone:", Tests: "TestInvokeScheduled",
	},
	{
		File: "journal/event_execution_resumed.go", Rule: "K9 a wait for all needs all",
		From: `case !s.WaitSatisfied():`, To: `case s.waitResolved == 0:`, Tests: "TestExecutionResumed",
	},
	{
		File: "journal/state.go", Rule: "K9 a wait for any needs one",
		From: "return s.waitResolved > 0", To: "return s.waitResolved == len(s.waitOn)", Tests: "TestExecutionResumed",
	},
	{
		File: "journal/child.go", Rule: "K9 a wait counts its own members only",
		From: `if c.waitEpoch == s.waitEpoch ||`, To: `if c.waitEpoch > 0 ||`,
		Tests: "TestExecutionAwaitingCountsItsOwnMembers",
	},
	{
		File: "journal/event_signal_delivered.go", Rule: "K12 deliveries are numbered without gaps",
		From: `e.DeliveryID != next {`, To: `e.DeliveryID < next {`, Tests: "TestSignalDelivered",
	},
	{
		File: "journal/event_signal_received.go", Rule: "K13 a name's signals are consumed in order",
		From: `case e.DeliveryID != next:`, To: `case e.DeliveryID < next:`, Tests: "TestSignalReceivedBuffered",
	},
	{
		File: "journal/event_invoke_scheduled.go", Rule: "K15 unknown kinds of invocations are refused",
		From: `	if !e.Invoke.Valid() {`, To: `	if e.Invoke == 0 {`, Tests: "TestInvokeScheduled",
	},
	{
		File: "journal/transaction.go", Rule: "a transaction is taken back in reverse order",
		From: `for i := len(u.oldChild) - 1; i >= 0; i-- {`, To: `for i := range u.oldChild {`, Tests: "TestTransactions",
	},
	{
		File: "journal/replay.go", Rule: "an answered signal wait keeps its place in a replay",
		From: `waited != nil {`, To: `waited != nil && waited.Resolved {`, Tests: "TestReplay",
	},
	{
		File: "journal/codec.go", Rule: "codec: a number has one encoding",
		From: `case n > 1 && d.data[d.off+n-1] == 0:`, To: `case n > 2 && d.data[d.off+n-1] == 0:`, Tests: "TestDecodeRefuses",
	},
	{
		File: "journal/codec.go", Rule: "codec: an entry fills its bytes",
		From: `if d.err == nil && d.off != len(data) {`, To: `if d.err == nil && d.off > len(data) {`, Tests: "TestDecodeWantsTheWholeEntry",
	},
	{
		File: "journal/codec.go", Rule: "codec: an entry keeps no reference to its bytes",
		From: `return append([]byte(nil), b...)`, To: `return b`, Tests: "TestDecodeCopies",
	},
	{
		File: "journal/event_execution_awaiting.go", Rule: "codec: the members of a wait ascend",
		From: `first < second`, To: `first <= second`, Tests: "TestDecodeRefuses",
	},
}
