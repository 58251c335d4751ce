package journal

import "perdure/id"

// RandomGenerated records a random value that the program drew, so that a replay draws the same.
type RandomGenerated struct {
	Promise id.PromiseID
	Value   []byte
}

// Kind returns KindRandomGenerated.
func (RandomGenerated) Kind() Kind { return KindRandomGenerated }

func (e RandomGenerated) guard(s *State) *Violation {
	if v := s.running(KindRandomGenerated); v != nil {
		return v
	}
	return s.takesNext(RuleNextChild, e.Promise)
}

func (RandomGenerated) apply(s *State) { s.take(child{call: callRandom}) }

func (e RandomGenerated) encode(dst []byte) []byte {
	return appendBytes(appendText(dst, e.Promise), e.Value)
}

func decodeRandomGenerated(d *decoder) Event {
	return RandomGenerated{Promise: d.promise(), Value: d.bytes()}
}
