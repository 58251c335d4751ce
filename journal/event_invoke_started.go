package journal

import "perdure/id"

// InvokeStarted records that an attempt has been handed out: one physical run of the invocation.
type InvokeStarted struct {
	Promise id.PromiseID
	// Attempt counts from 1, without gaps.
	Attempt uint32
}

// Kind returns KindInvokeStarted.
func (InvokeStarted) Kind() Kind { return KindInvokeStarted }

// An attempt follows the schedule (SE-1), never the result (SE-4), never another open attempt, and its number
// is the retries so far plus one (R5). None begins after a cancel: the program would not read its result
// (R7).
func (e InvokeStarted) guard(s *State) *Violation {
	if s.status == StatusCancelling {
		return broken(RuleNoAttemptInCancelling, e.Promise, "InvokeStarted while Cancelling")
	}
	c, v := s.invocation(RuleStartedRequiresScheduled, e.Promise)
	switch {
	case v != nil:
		return v
	case c.resolved:
		return broken(RuleNothingAfterCompleted, e.Promise, "promise "+string(e.Promise)+" is completed")
	case c.open:
		return broken(RuleAttemptInOrder, e.Promise,
			"attempt "+num(c.openAttempt())+" of promise "+string(e.Promise)+" is still open")
	case e.Attempt != c.retries+1:
		return broken(RuleAttemptInOrder, e.Promise,
			"the next attempt of promise "+string(e.Promise)+" is "+num(c.retries+1)+", not "+num(e.Attempt))
	}
	return nil
}

func (e InvokeStarted) apply(s *State) { s.change(e.Promise).open = true }

func (e InvokeStarted) encode(dst []byte) []byte {
	return appendNumber(appendText(dst, e.Promise), e.Attempt)
}

func decodeInvokeStarted(d *decoder) Event {
	return InvokeStarted{Promise: d.promise(), Attempt: d.uint32()}
}
