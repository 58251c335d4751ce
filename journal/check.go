package journal

import (
	"slices"

	"perdure/id"
)

// Check reads a whole journal and returns all violations in it, in order of the entries; nil means that every
// invariant of the spec and every ruling holds. It works on any list of entries.
//
// It shares no guard with State: each rule is a separate pass over the entries with its own memory, worded as
// in the spec. For a valid journal and any next event, State.Append refuses exactly when Check then finds
// something. INV-4 is not among the passes: it compares with a stored status, which StatusOf is there for.
func Check(eid id.PromiseID, entries []Entry, opts ...Option) []Violation {
	a := &audit{eid: eid, entries: entries, bound: buildOptions(opts).bound, before: make([]Status, len(entries))}
	status := StatusNone
	for i, entry := range entries {
		a.before[i] = status
		status = foldStatus(status, entry.Event)
	}
	for _, pass := range passes {
		pass(a)
	}
	// Each pass finds violations in order, and passes are in the order of the spec.
	slices.SortStableFunc(a.found, func(x, y Violation) int { return int(x.Seq) - int(y.Seq) })
	return a.found
}

// audit is one running Check.
type audit struct {
	eid     id.PromiseID
	entries []Entry
	bound   func(string) int
	// before holds the status before each entry.
	before []Status
	found  []Violation
}

// passes lists the rules, in the order of the spec and then of the rulings.
var passes = []func(*audit){
	checkVocabulary, checkSequence, checkStartsWithStarted, checkSingleTerminal, checkTerminalIsLast,
	checkCancelledRequiresRequested, checkPromiseUnique,
	checkStartedRequiresScheduled, checkCompletedRequiresStarted, checkRetryingRequiresStarted,
	checkNothingAfterCompleted, checkRetryBounded,
	checkFiredRequiresScheduled, checkReceivedRequiresDelivered, checkSignalConsumedOnce, checkAwaitSignalConsistent,
	checkSubmitRequiresCreated, checkNoSubmitAfterAwait, checkAwaitedRequiresMember,
	checkAwaitedRequiresCompleted, checkNoDoubleConsume, checkConsumeBounded, checkSingleOwner,
	checkReturnsWhileRunning, checkCancelRequestedOnce, checkTakesNextChild, checkAttempts,
	checkTimerFiresOnce, checkSignalWait, checkWaitable, checkNeedlessWait, checkSubmitOnce, checkConsumedResult,
	checkStartedOnce, checkCancellingAdmits, checkBlocked, checkResumable, checkDeliveryID, checkSignalFIFO,
}

// report records a violation at entry i. The entry is named by its index, which is its sequence number
// unless that is what is wrong.
func (a *audit) report(i int, rule string, promise id.PromiseID, detail string) {
	v := Violation{Rule: rule, Execution: a.eid, Seq: uint64(i), Promise: promise, Detail: detail}
	if ev := a.entries[i].Event; ev != nil {
		v.Kind = ev.Kind()
	}
	a.found = append(a.found, v)
}

// each calls f for every entry whose event is an E.
func each[E Event](a *audit, f func(i int, e E)) {
	for i, entry := range a.entries {
		if e, ok := entry.Event.(E); ok {
			f(i, e)
		}
	}
}

// claim is what an event takes from the child numbers: an identifier, and the rule that says it is the next.
type claim struct {
	promise id.PromiseID
	rule    string
}

// claimed returns what entry i takes, if anything. A SignalReceived takes a number unless it answers a
// blocked wait, which has taken it.
func (a *audit) claimed(i int) (claim, bool) {
	switch e := a.entries[i].Event.(type) {
	case InvokeScheduled:
		return claim{e.Promise, RuleNextChild}, true
	case RandomGenerated:
		return claim{e.Promise, RuleNextChild}, true
	case TimeRecorded:
		return claim{e.Promise, RuleNextChild}, true
	case TimerScheduled:
		return claim{e.Promise, RuleNextChild}, true
	case SignalReceived:
		return claim{e.Promise, RuleNextChild}, a.before[i] != StatusBlocked
	case ExecutionAwaiting:
		if e.Wait == AwaitSignal && len(e.On) == 1 {
			return claim{e.On[0], RuleSignalWait}, true
		}
	case JoinSetCreated:
		return claim{id.PromiseID(e.Set), RuleJoinSetNextChild}, true
	}
	return claim{}, false
}

// resolution returns the promise that an event resolves, if any.
func resolution(ev Event) (id.PromiseID, bool) {
	switch e := ev.(type) {
	case InvokeCompleted:
		return e.Promise, true
	case TimerFired:
		return e.Promise, true
	case SignalReceived:
		return e.Promise, true
	}
	return "", false
}

// results are what a journal has resolved so far. ready counts the join sets' members with results that were
// not consumed.
type results struct {
	resolved map[id.PromiseID]bool
	owner    map[id.PromiseID]JoinSetID
	ready    map[JoinSetID]int
}

func newResults() *results {
	return &results{map[id.PromiseID]bool{}, map[id.PromiseID]JoinSetID{}, map[JoinSetID]int{}}
}

func (r *results) add(ev Event) {
	switch e := ev.(type) {
	case JoinSetSubmitted:
		r.owner[e.Promise] = e.Set
		if r.resolved[e.Promise] {
			r.ready[e.Set]++
		}
	case JoinSetAwaited:
		r.ready[e.Set]--
	default:
		p, ok := resolution(ev)
		if ok && !r.resolved[p] {
			r.resolved[p] = true
			r.ready[r.owner[p]]++
		}
	}
}

// satisfied reports whether the promises resolved so far satisfy a wait.
func (r *results) satisfied(e ExecutionAwaiting) bool {
	resolved := r.resolved
	if e.Wait == AwaitJoinSet {
		return r.ready[e.Set] > 0
	}
	missing := 0
	for _, p := range e.On {
		if !resolved[p] {
			missing++
		}
	}
	if e.Wait == AwaitAny {
		return missing < len(e.On)
	}
	return missing == 0
}
