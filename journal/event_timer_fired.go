package journal

import "perdure/id"

// TimerFired records that a timer's time has come. It resolves the timer; a cancel does not stop it (K8).
type TimerFired struct {
	Promise id.PromiseID
}

// Kind returns KindTimerFired.
func (TimerFired) Kind() Kind { return KindTimerFired }

// A timer that was scheduled (CF-1) fires at most once (R10).
func (e TimerFired) guard(s *State) *Violation {
	c := s.child(e.Promise)
	switch {
	case c == nil:
		return broken(RuleFiredRequiresScheduled, e.Promise, "timer "+shownID(e.Promise)+" was never scheduled")
	case c.call != callTimer:
		return broken(RuleFiredRequiresScheduled, e.Promise,
			"promise "+string(e.Promise)+" is "+c.call.String()+", not a timer")
	case c.resolved:
		return broken(RuleTimerFiresOnce, e.Promise, "timer "+string(e.Promise)+" has fired")
	}
	return nil
}

func (e TimerFired) apply(s *State) { s.resolve(s.change(e.Promise)) }

func (e TimerFired) encode(dst []byte) []byte { return appendText(dst, e.Promise) }

func decodeTimerFired(d *decoder) Event { return TimerFired{Promise: d.promise()} }
