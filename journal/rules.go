package journal

// The names of the rules a Violation cites: the invariants of the journal spec (S, SE, CF, JS; INV where
// the text has no name of its own) and, where no invariant covers the case, the ruling (R, K). The names
// are stable; clients may compare them. The spec states four of its invariants twice: INV-1 is S-2, INV-2
// is S-1, INV-3 is S-4, INV-5 is SE-1.
const (
	RuleSequence          = "S-1 monotonic_sequence"
	RuleStartsWithStarted = "S-2 starts_with_started"
	RuleSingleTerminal    = "S-3 single_terminal"
	RuleTerminalIsLast    = "S-4 terminal_is_last"
	RuleCancelledRequires = "S-5 cancelled_requires_requested"
	RulePromiseUnique     = "INV-6 promise_id_uniqueness"

	RuleStartedRequiresScheduled = "SE-1 started_requires_scheduled"
	RuleCompletedRequiresStarted = "SE-2 completed_requires_started"
	RuleRetryingRequiresStarted  = "SE-3 retrying_requires_started"
	RuleNothingAfterCompleted    = "SE-4 no_events_after_completed"
	RuleRetryBounded             = "SE-5 retry_bounded"

	RuleFiredRequiresScheduled    = "CF-1 timer_fired_requires_scheduled"
	RuleReceivedRequiresDelivered = "CF-2 signal_received_requires_delivered"
	RuleSignalConsumedOnce        = "CF-3 signal_consumed_once"
	RuleAwaitSignalConsistent     = "CF-4 await_signal_consistent"

	RuleSubmitRequiresCreated    = "JS-1 submit_requires_created"
	RuleNoSubmitAfterAwait       = "JS-2 no_submit_after_await"
	RuleAwaitedRequiresMember    = "JS-3 awaited_requires_member"
	RuleAwaitedRequiresCompleted = "JS-4 awaited_requires_completed"
	RuleNoDoubleConsume          = "JS-5 no_double_consume"
	RuleConsumeBounded           = "JS-6 consume_bounded"
	RuleSingleOwner              = "JS-7 promise_single_owner"

	RuleReturnsWhileRunning   = "R1 returns_only_while_running"
	RuleCancelRequestedOnce   = "R2 cancel_requested_once"
	RuleNextChild             = "R4 takes_next_child"
	RuleAttemptInOrder        = "R5 attempts_in_order"
	RuleNoAttemptInCancelling = "R7 no_attempt_while_cancelling"
	RuleCompletesOpenAttempt  = "R8 completes_open_attempt"
	RuleRetriesOpenAttempt    = "R9 retries_open_attempt"
	RuleTimerFiresOnce        = "R10 timer_fires_once"
	RuleSignalWait            = "R11 signal_wait"
	RuleWaitable              = "R12 waits_for_pending_work"
	RuleNeedlessWait          = "R13 no_needless_wait"
	RuleJoinSetNextChild      = "R14 join_set_takes_next_child"
	RuleSubmitOnce            = "R15 submits_an_invocation_once"
	RuleConsumedResult        = "R16 consumes_recorded_result"

	RuleStartedOnce     = "K5 started_once"
	RuleCancellingAdmit = "K8 cancelling_admits_facts_only"
	RuleBlocked         = "K9 blocked_until_resumed"
	RuleResumable       = "K9 resumes_a_satisfied_wait"
	RuleDeliveryID      = "K12 delivery_id_counts"
	RuleSignalFIFO      = "K13 signals_fifo"
	RuleVocabulary      = "K15 closed_vocabulary"
)
