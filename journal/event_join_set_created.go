package journal

import "perdure/id"

// JoinSetCreated opens a join set: invocations whose results are consumed in the order they were first
// consumed in. It takes the next child number (R14).
type JoinSetCreated struct {
	Set JoinSetID
}

// Kind returns KindJoinSetCreated.
func (JoinSetCreated) Kind() Kind { return KindJoinSetCreated }

func (e JoinSetCreated) guard(s *State) *Violation {
	if v := s.running(KindJoinSetCreated); v != nil {
		return v
	}
	return s.takesNext(RuleJoinSetNextChild, id.PromiseID(e.Set))
}

func (JoinSetCreated) apply(s *State) { s.take(child{call: callJoinSet}) }

func (e JoinSetCreated) encode(dst []byte) []byte { return appendText(dst, e.Set) }

func decodeJoinSetCreated(d *decoder) Event { return JoinSetCreated{Set: JoinSetID(d.promise())} }

// joinSet finds a join set and its number; nil if there is none by that id.
func (s *State) joinSet(set JoinSetID) (*child, uint32) {
	c := s.child(id.PromiseID(set))
	if c == nil || c.call != callJoinSet {
		return nil, 0
	}
	n, _ := id.PromiseID(set).IsChildOf(s.eid)
	return c, n
}
