package journal

import "perdure/id"

// attempt is one attempt of one promise.
type attempt struct {
	promise id.PromiseID
	number  uint32
}

// SE-1 (INV-5): InvokeStarted follows an InvokeScheduled of its promise.
func checkStartedRequiresScheduled(a *audit) {
	scheduled := map[id.PromiseID]bool{}
	for i, entry := range a.entries {
		switch e := entry.Event.(type) {
		case InvokeScheduled:
			scheduled[e.Promise] = true
		case InvokeStarted:
			if !scheduled[e.Promise] {
				a.report(i, RuleStartedRequiresScheduled, e.Promise, "promise "+shownID(e.Promise)+" was never scheduled")
			}
		}
	}
}

// SE-2: InvokeCompleted follows an InvokeStarted of its promise.
func checkCompletedRequiresStarted(a *audit) {
	started := map[id.PromiseID]bool{}
	for i, entry := range a.entries {
		switch e := entry.Event.(type) {
		case InvokeStarted:
			started[e.Promise] = true
		case InvokeCompleted:
			if !started[e.Promise] {
				a.report(i, RuleCompletedRequiresStarted, e.Promise, "promise "+shownID(e.Promise)+" was never started")
			}
		}
	}
}

// SE-3: InvokeRetrying follows an InvokeStarted of its promise and attempt.
func checkRetryingRequiresStarted(a *audit) {
	started := map[attempt]bool{}
	for i, entry := range a.entries {
		switch e := entry.Event.(type) {
		case InvokeStarted:
			started[attempt{e.Promise, e.Attempt}] = true
		case InvokeRetrying:
			if !started[attempt{e.Promise, e.FailedAttempt}] {
				a.report(i, RuleRetryingRequiresStarted, e.Promise,
					"attempt "+num(e.FailedAttempt)+" of promise "+shownID(e.Promise)+" was never started")
			}
		}
	}
}

// SE-4: no attempt starts or fails after the result.
func checkNothingAfterCompleted(a *audit) {
	completed := map[id.PromiseID]bool{}
	for i, entry := range a.entries {
		switch e := entry.Event.(type) {
		case InvokeCompleted:
			completed[e.Promise] = true
		case InvokeStarted:
			if completed[e.Promise] {
				a.report(i, RuleNothingAfterCompleted, e.Promise, "promise "+shownID(e.Promise)+" is completed")
			}
		case InvokeRetrying:
			if completed[e.Promise] {
				a.report(i, RuleNothingAfterCompleted, e.Promise, "promise "+shownID(e.Promise)+" is completed")
			}
		}
	}
}

// SE-5 (K4): as many retries as the policy allows.
func checkRetryBounded(a *audit) {
	bounds := map[id.PromiseID]uint32{}
	retries := map[id.PromiseID]uint32{}
	for i, entry := range a.entries {
		switch e := entry.Event.(type) {
		case InvokeScheduled:
			bounds[e.Promise] = retryBound(a.bound, e.RetryPolicy)
		case InvokeRetrying:
			retries[e.Promise]++
			if bound, scheduled := bounds[e.Promise]; scheduled && retries[e.Promise] > bound {
				a.report(i, RuleRetryBounded, e.Promise, "promise "+shownID(e.Promise)+" has used its "+num(bound)+" retries")
			}
		}
	}
}

// R5, R8, R9: attempts are numbered 1, 2, 3 …. Each starts after the previous one's recorded failure. Only
// the last started attempt may fail or complete, and only once.
func checkAttempts(a *audit) {
	open := map[id.PromiseID]uint32{}
	failed := map[id.PromiseID]uint32{}
	for i, entry := range a.entries {
		switch e := entry.Event.(type) {
		case InvokeStarted:
			switch {
			case open[e.Promise] != 0:
				a.report(i, RuleAttemptInOrder, e.Promise,
					"attempt "+num(open[e.Promise])+" of promise "+shownID(e.Promise)+" is still open")
			case e.Attempt != failed[e.Promise]+1:
				a.report(i, RuleAttemptInOrder, e.Promise, "the next attempt of promise "+shownID(e.Promise)+
					" is "+num(failed[e.Promise]+1)+", not "+num(e.Attempt))
			}
			open[e.Promise] = e.Attempt
		case InvokeRetrying:
			if open[e.Promise] == 0 || open[e.Promise] != e.FailedAttempt {
				a.report(i, RuleRetriesOpenAttempt, e.Promise, notOpen(e.Promise, open[e.Promise], e.FailedAttempt))
			}
			open[e.Promise] = 0
			failed[e.Promise]++
		case InvokeCompleted:
			if open[e.Promise] == 0 || open[e.Promise] != e.Attempt {
				a.report(i, RuleCompletesOpenAttempt, e.Promise, notOpen(e.Promise, open[e.Promise], e.Attempt))
			}
			open[e.Promise] = 0
		}
	}
}

func notOpen(p id.PromiseID, open, named uint32) string {
	if open == 0 {
		return "promise " + shownID(p) + " has no open attempt"
	}
	return "the open attempt of promise " + shownID(p) + " is " + num(open) + ", not " + num(named)
}
