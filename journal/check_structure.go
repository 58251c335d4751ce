package journal

import "perdure/id"

// K15: twenty kinds of events; the kinds of invocations and waits are closed lists too.
func checkVocabulary(a *audit) {
	for i, entry := range a.entries {
		switch e := entry.Event.(type) {
		case nil:
			a.report(i, RuleVocabulary, "", "no event")
		case InvokeScheduled:
			if !e.Invoke.Valid() {
				a.report(i, RuleVocabulary, e.Promise, "unknown kind of invocation "+e.Invoke.String())
			}
		case ExecutionAwaiting:
			switch {
			case !e.Wait.Valid():
				a.report(i, RuleVocabulary, "", "unknown kind of wait "+e.Wait.String())
			case (e.Set != "") != (e.Wait == AwaitJoinSet):
				a.report(i, RuleVocabulary, id.PromiseID(e.Set), "a wait of kind "+e.Wait.String()+" for join set "+shownID(id.PromiseID(e.Set)))
			case e.Wait != AwaitSignal && e.Signal != "":
				a.report(i, RuleVocabulary, "", "a wait of kind "+e.Wait.String()+" names no signal")
			}
		}
	}
}

// S-1 with K1 (INV-2): the sequence number is the index.
func checkSequence(a *audit) {
	for i, entry := range a.entries {
		if entry.Seq != uint64(i) {
			a.report(i, RuleSequence, "", "entry "+num(i)+" has sequence number "+num(entry.Seq))
		}
	}
}

// S-2 (INV-1): the first event is ExecutionStarted.
func checkStartsWithStarted(a *audit) {
	if len(a.entries) == 0 {
		return
	}
	if _, ok := a.entries[0].Event.(ExecutionStarted); !ok {
		a.report(0, RuleStartsWithStarted, "", "the journal does not begin with ExecutionStarted")
	}
}

// S-3: at most one terminal event.
func checkSingleTerminal(a *audit) {
	terminals := 0
	for i, entry := range a.entries {
		if entry.Event == nil || !isTerminal(entry.Event.Kind()) {
			continue
		}
		if terminals++; terminals > 1 {
			a.report(i, RuleSingleTerminal, "", "the journal has ended before")
		}
	}
}

// S-4 (INV-3): a terminal event is the last one.
func checkTerminalIsLast(a *audit) {
	ended := false
	for i, entry := range a.entries {
		if ended {
			a.report(i, RuleTerminalIsLast, "", "an entry after the terminal one")
		}
		ended = ended || entry.Event != nil && isTerminal(entry.Event.Kind())
	}
}

// S-5: ExecutionCancelled follows a CancelRequested.
func checkCancelledRequiresRequested(a *audit) {
	requested := false
	for i, entry := range a.entries {
		switch entry.Event.(type) {
		case CancelRequested:
			requested = true
		case ExecutionCancelled:
			if !requested {
				a.report(i, RuleCancelledRequires, "", "no cancel was requested")
			}
		}
	}
}

// INV-6: no identifier is taken twice. Between executions that follows from every identifier being a child
// of its own execution, which R4, R11 and R14 see to.
func checkPromiseUnique(a *audit) {
	taken := map[id.PromiseID]bool{}
	for i := range a.entries {
		c, ok := a.claimed(i)
		if !ok {
			continue
		}
		if taken[c.promise] {
			a.report(i, RulePromiseUnique, c.promise, string(c.promise)+" was taken before")
		}
		taken[c.promise] = true
	}
}

// R1: only running code returns.
func checkReturnsWhileRunning(a *audit) {
	for i, entry := range a.entries {
		switch entry.Event.(type) {
		case ExecutionCompleted, ExecutionFailed:
			if a.before[i] != StatusRunning {
				a.report(i, RuleReturnsWhileRunning, "", entry.Event.Kind().String()+" while "+a.before[i].String())
			}
		}
	}
}

// R2: one cancel, one record.
func checkCancelRequestedOnce(a *audit) {
	requested := false
	each(a, func(i int, _ CancelRequested) {
		if requested {
			a.report(i, RuleCancelRequestedOnce, "", "cancel was requested before")
		}
		requested = true
	})
}

// R4, R11, R14: the n-th call takes child n.
func checkTakesNextChild(a *audit) {
	next := uint32(0)
	for i := range a.entries {
		c, ok := a.claimed(i)
		if !ok {
			continue
		}
		if want := a.eid.Child(next); c.promise != want {
			a.report(i, c.rule, c.promise, "the next identifier is "+string(want)+", not "+shownID(c.promise))
		}
		next++
	}
}

// K5: one start.
func checkStartedOnce(a *audit) {
	each(a, func(i int, _ ExecutionStarted) {
		if i > 0 {
			a.report(i, RuleStartedOnce, "", "the execution has been started")
		}
	})
}

// checkCancellingAdmits checks K8 and R7: Cancelling admits InvokeCompleted, TimerFired, SignalDelivered and
// ExecutionCancelled. R1, R2, K5 and K9 check the other lifecycle events.
func checkCancellingAdmits(a *audit) {
	for i, entry := range a.entries {
		if a.before[i] != StatusCancelling {
			continue
		}
		switch e := entry.Event.(type) {
		case InvokeStarted:
			a.report(i, RuleNoAttemptInCancelling, e.Promise, "InvokeStarted while Cancelling")
		case InvokeRetrying:
			a.report(i, RuleNoAttemptInCancelling, e.Promise, "InvokeRetrying while Cancelling")
		case InvokeScheduled, RandomGenerated, TimeRecorded, TimerScheduled, SignalReceived, ExecutionAwaiting,
			JoinSetCreated, JoinSetSubmitted, JoinSetAwaited:
			a.report(i, RuleCancellingAdmit, "", entry.Event.Kind().String()+" while Cancelling")
		}
	}
}

// checkBlocked reports events that only running code writes while the execution is Blocked: they need
// ExecutionResumed first (K9).
func checkBlocked(a *audit) {
	for i, entry := range a.entries {
		if a.before[i] != StatusBlocked {
			continue
		}
		switch entry.Event.(type) {
		case InvokeScheduled, RandomGenerated, TimeRecorded, TimerScheduled, ExecutionAwaiting,
			JoinSetCreated, JoinSetSubmitted, JoinSetAwaited:
			a.report(i, RuleBlocked, "", entry.Event.Kind().String()+" while Blocked")
		}
	}
}
