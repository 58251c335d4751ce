package journal

import "perdure/id"

// InvokeRetrying records that the open attempt has failed and that another will follow.
type InvokeRetrying struct {
	Promise       id.PromiseID
	FailedAttempt uint32
	Error         []byte
	// RetryAt is the time of the next attempt, in unix milliseconds; the journal does not check it (K2).
	RetryAt int64
}

// Kind returns KindInvokeRetrying.
func (InvokeRetrying) Kind() Kind { return KindInvokeRetrying }

// It closes the open attempt (SE-3, R9), as often as the retry policy allows (SE-5), never after the
// result (SE-4) and never after a cancel (R7).
func (e InvokeRetrying) guard(s *State) *Violation {
	if s.status == StatusCancelling {
		return broken(RuleNoAttemptInCancelling, e.Promise, "InvokeRetrying while Cancelling")
	}
	c, v := s.invocation(RuleRetryingRequiresStarted, e.Promise)
	switch {
	case v != nil:
		return v
	case c.resolved:
		return broken(RuleNothingAfterCompleted, e.Promise, "promise "+string(e.Promise)+" is completed")
	case !c.started():
		return broken(RuleRetryingRequiresStarted, e.Promise, "promise "+string(e.Promise)+" was never started")
	}
	if v := c.closes(RuleRetriesOpenAttempt, e.Promise, e.FailedAttempt); v != nil {
		return v
	}
	if c.retries >= c.bound {
		return broken(RuleRetryBounded, e.Promise,
			"promise "+string(e.Promise)+" has used its "+num(c.bound)+" retries")
	}
	return nil
}

func (e InvokeRetrying) apply(s *State) {
	c := s.change(e.Promise)
	c.open = false
	c.retries++
}

func (e InvokeRetrying) encode(dst []byte) []byte {
	dst = appendNumber(appendText(dst, e.Promise), e.FailedAttempt)
	return appendTime(appendBytes(dst, e.Error), e.RetryAt)
}

func decodeInvokeRetrying(d *decoder) Event {
	return InvokeRetrying{Promise: d.promise(), FailedAttempt: d.uint32(), Error: d.bytes(), RetryAt: d.varint()}
}
