package journal

import (
	"slices"

	"perdure/id"
)

// InvokeCompleted records the result of an invocation. A final failure is a result too: the bytes carry
// the error, and the journal does not inspect it (K3).
type InvokeCompleted struct {
	Promise id.PromiseID
	Result  []byte
	// Attempt is the open attempt, the one that produced the result.
	Attempt uint32
}

// Kind returns KindInvokeCompleted.
func (InvokeCompleted) Kind() Kind { return KindInvokeCompleted }

// The open attempt completes, and no other: a late worker must not overwrite a recorded failure (R8). A
// cancel does not stop it, since it has happened (K8).
func (e InvokeCompleted) guard(s *State) *Violation {
	c, v := s.invocation(RuleCompletedRequiresStarted, e.Promise)
	switch {
	case v != nil:
		return v
	case !c.started():
		return broken(RuleCompletedRequiresStarted, e.Promise, "promise "+string(e.Promise)+" was never started")
	case c.resolved:
		return broken(RuleCompletesOpenAttempt, e.Promise, "promise "+string(e.Promise)+" is completed")
	}
	return c.closes(RuleCompletesOpenAttempt, e.Promise, e.Attempt)
}

func (e InvokeCompleted) apply(s *State) {
	c := s.change(e.Promise)
	c.open = false
	c.result = fingerprintOf(e.Result)
	if c.invoke == InvokeSignal {
		n, _ := e.Promise.IsChildOf(s.eid)
		s.openSignals = slices.DeleteFunc(slices.Clone(s.openSignals), func(open uint32) bool { return open == n })
	}
	s.resolve(c)
}

func (e InvokeCompleted) encode(dst []byte) []byte {
	return appendNumber(appendBytes(appendText(dst, e.Promise), e.Result), e.Attempt)
}

func decodeInvokeCompleted(d *decoder) Event {
	return InvokeCompleted{Promise: d.promise(), Result: d.bytes(), Attempt: d.uint32()}
}

// closes refuses an attempt that is not the open one.
func (c *child) closes(rule string, p id.PromiseID, attempt uint32) *Violation {
	switch {
	case !c.open:
		return broken(rule, p, "promise "+string(p)+" has no open attempt")
	case attempt != c.openAttempt():
		return broken(rule, p,
			"the open attempt of promise "+string(p)+" is "+num(c.openAttempt())+", not "+num(attempt))
	}
	return nil
}
