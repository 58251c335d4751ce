package journal

import (
	"slices"

	"perdure/id"
)

// InvokeScheduled records the intent to invoke something, before any attempt. It takes the next child
// number; replay finds the call by it.
type InvokeScheduled struct {
	Promise id.PromiseID
	Invoke  InvokeKind
	// Function names what is invoked; Input is its argument.
	Function string
	Input    []byte
	// RetryPolicy is opaque to the journal, except that WithRetryBound reads the number of retries from it.
	RetryPolicy string
}

// Kind returns KindInvokeScheduled.
func (InvokeScheduled) Kind() Kind { return KindInvokeScheduled }

func (e InvokeScheduled) guard(s *State) *Violation {
	if v := s.running(KindInvokeScheduled); v != nil {
		return v
	}
	if !e.Invoke.Valid() {
		return broken(RuleVocabulary, e.Promise, "unknown kind of invocation "+e.Invoke.String())
	}
	return s.takesNext(RuleNextChild, e.Promise)
}

func (e InvokeScheduled) apply(s *State) {
	if e.Invoke == InvokeSignal {
		s.openSignals = append(slices.Clip(s.openSignals), s.NextChild())
	}
	s.take(child{call: callInvoke, invoke: e.Invoke, bound: retryBound(s.bound, e.RetryPolicy)})
}

func (e InvokeScheduled) encode(dst []byte) []byte {
	dst = appendText(dst, e.Promise)
	dst = append(dst, byte(e.Invoke))
	dst = appendText(dst, e.Function)
	dst = appendBytes(dst, e.Input)
	return appendText(dst, e.RetryPolicy)
}

func decodeInvokeScheduled(d *decoder) Event {
	e := InvokeScheduled{Promise: d.promise(), Invoke: InvokeKind(d.byte())}
	if d.err == nil && !e.Invoke.Valid() {
		d.fail("unknown kind of invocation " + e.Invoke.String())
	}
	e.Function, e.Input, e.RetryPolicy = d.text(), d.bytes(), d.text()
	return e
}

// invocation finds the invocation p, or refuses with the rule that the event breaks without one.
func (s *State) invocation(rule string, p id.PromiseID) (*child, *Violation) {
	c := s.child(p)
	switch {
	case c == nil:
		return nil, broken(rule, p, "promise "+shownID(p)+" was never scheduled")
	case c.call != callInvoke:
		return nil, broken(rule, p, "promise "+string(p)+" is "+c.call.String()+", not an invocation")
	}
	return c, nil
}
