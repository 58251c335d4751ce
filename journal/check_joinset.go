package journal

import (
	"bytes"

	"perdure/id"
)

// member is one promise of one join set.
type member struct {
	set     JoinSetID
	promise id.PromiseID
}

// JS-1: JoinSetSubmitted follows the JoinSetCreated of its set.
func checkSubmitRequiresCreated(a *audit) {
	created := map[JoinSetID]bool{}
	for i, entry := range a.entries {
		switch e := entry.Event.(type) {
		case JoinSetCreated:
			created[e.Set] = true
		case JoinSetSubmitted:
			if !created[e.Set] {
				a.report(i, RuleSubmitRequiresCreated, e.Promise, noJoinSet(e.Set))
			}
		}
	}
}

// JS-2 (K11): nothing is submitted after the set was first awaited.
func checkNoSubmitAfterAwait(a *audit) {
	awaited := map[JoinSetID]bool{}
	for i, entry := range a.entries {
		switch e := entry.Event.(type) {
		case JoinSetAwaited:
			awaited[e.Set] = true
		case JoinSetSubmitted:
			if awaited[e.Set] {
				a.report(i, RuleNoSubmitAfterAwait, e.Promise, "join set "+string(e.Set))
			}
		}
	}
}

// JS-3: JoinSetAwaited follows the JoinSetSubmitted of its promise to its set.
func checkAwaitedRequiresMember(a *audit) {
	members := map[member]bool{}
	for i, entry := range a.entries {
		switch e := entry.Event.(type) {
		case JoinSetSubmitted:
			members[member{e.Set, e.Promise}] = true
		case JoinSetAwaited:
			if !members[member{e.Set, e.Promise}] {
				a.report(i, RuleAwaitedRequiresMember, e.Promise,
					"promise "+shownID(e.Promise)+" is not in join set "+shownID(id.PromiseID(e.Set)))
			}
		}
	}
}

// JS-4: JoinSetAwaited follows the InvokeCompleted of its promise.
func checkAwaitedRequiresCompleted(a *audit) {
	completed := map[id.PromiseID]bool{}
	for i, entry := range a.entries {
		switch e := entry.Event.(type) {
		case InvokeCompleted:
			completed[e.Promise] = true
		case JoinSetAwaited:
			if !completed[e.Promise] {
				a.report(i, RuleAwaitedRequiresCompleted, e.Promise, "promise "+shownID(e.Promise)+" is not completed")
			}
		}
	}
}

// JS-5: a member is consumed at most once.
func checkNoDoubleConsume(a *audit) {
	consumed := map[member]bool{}
	each(a, func(i int, e JoinSetAwaited) {
		m := member{e.Set, e.Promise}
		if consumed[m] {
			a.report(i, RuleNoDoubleConsume, e.Promise,
				"promise "+shownID(e.Promise)+" was consumed from join set "+string(e.Set)+" before")
		}
		consumed[m] = true
	})
}

// JS-6: no set yields more than was put in.
func checkConsumeBounded(a *audit) {
	balance := map[JoinSetID]int{}
	for i, entry := range a.entries {
		switch e := entry.Event.(type) {
		case JoinSetSubmitted:
			balance[e.Set]++
		case JoinSetAwaited:
			if balance[e.Set]--; balance[e.Set] < 0 {
				a.report(i, RuleConsumeBounded, e.Promise,
					"join set "+shownID(id.PromiseID(e.Set))+" has yielded more than it was given")
			}
		}
	}
}

// JS-7: a promise is in at most one set.
func checkSingleOwner(a *audit) {
	owner := map[id.PromiseID]JoinSetID{}
	each(a, func(i int, e JoinSetSubmitted) {
		first, owned := owner[e.Promise]
		if !owned {
			owner[e.Promise] = e.Set
		} else if first != e.Set {
			a.report(i, RuleSingleOwner, e.Promise, "promise "+shownID(e.Promise)+" is in join set "+string(first))
		}
	})
}

// R15: what is submitted is an invocation of this journal, and is submitted once.
func checkSubmitOnce(a *audit) {
	scheduled := map[id.PromiseID]bool{}
	submitted := map[member]bool{}
	for i, entry := range a.entries {
		switch e := entry.Event.(type) {
		case InvokeScheduled:
			scheduled[e.Promise] = true
		case JoinSetSubmitted:
			m := member{e.Set, e.Promise}
			switch {
			case !scheduled[e.Promise]:
				a.report(i, RuleSubmitOnce, e.Promise, shownID(e.Promise)+" is no invocation of this journal")
			case submitted[m]:
				a.report(i, RuleSubmitOnce, e.Promise, "promise "+string(e.Promise)+" is in join set "+string(e.Set)+" already")
			}
			submitted[m] = true
		}
	}
}

// R16: the consumed result is the recorded one.
func checkConsumedResult(a *audit) {
	results := map[id.PromiseID][]byte{}
	for i, entry := range a.entries {
		switch e := entry.Event.(type) {
		case InvokeCompleted:
			results[e.Promise] = e.Result
		case JoinSetAwaited:
			if result, completed := results[e.Promise]; completed && !bytes.Equal(result, e.Result) {
				a.report(i, RuleConsumedResult, e.Promise, "promise "+string(e.Promise)+" has another result")
			}
		}
	}
}
