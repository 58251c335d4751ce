package journal

import "perdure/id"

// TimerScheduled records that the program asked to be woken later. The scheduler keeps the delay; the journal
// accepts a TimerFired at any time (K2).
type TimerScheduled struct {
	Promise id.PromiseID
	// Duration is in milliseconds, FireAt in unix milliseconds.
	Duration int64
	FireAt   int64
}

// Kind returns KindTimerScheduled.
func (TimerScheduled) Kind() Kind { return KindTimerScheduled }

func (e TimerScheduled) guard(s *State) *Violation {
	if v := s.running(KindTimerScheduled); v != nil {
		return v
	}
	return s.takesNext(RuleNextChild, e.Promise)
}

func (TimerScheduled) apply(s *State) { s.take(child{call: callTimer}) }

func (e TimerScheduled) encode(dst []byte) []byte {
	return appendTime(appendTime(appendText(dst, e.Promise), e.Duration), e.FireAt)
}

func decodeTimerScheduled(d *decoder) Event {
	return TimerScheduled{Promise: d.promise(), Duration: d.varint(), FireAt: d.varint()}
}
