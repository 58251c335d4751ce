package journal

import "perdure/id"

// TimeRecorded records the time that the program read, so that a replay reads the same.
type TimeRecorded struct {
	Promise id.PromiseID
	// Time is in unix milliseconds; the journal does not check it (K2).
	Time int64
}

// Kind returns KindTimeRecorded.
func (TimeRecorded) Kind() Kind { return KindTimeRecorded }

func (e TimeRecorded) guard(s *State) *Violation {
	if v := s.running(KindTimeRecorded); v != nil {
		return v
	}
	return s.takesNext(RuleNextChild, e.Promise)
}

func (TimeRecorded) apply(s *State) { s.take(child{call: callTime}) }

func (e TimeRecorded) encode(dst []byte) []byte {
	return appendTime(appendText(dst, e.Promise), e.Time)
}

func decodeTimeRecorded(d *decoder) Event {
	return TimeRecorded{Promise: d.promise(), Time: d.varint()}
}
