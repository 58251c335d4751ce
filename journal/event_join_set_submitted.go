package journal

import "perdure/id"

// JoinSetSubmitted puts an invocation into a join set, whether it runs yet or not.
type JoinSetSubmitted struct {
	Set     JoinSetID
	Promise id.PromiseID
}

// Kind returns KindJoinSetSubmitted.
func (JoinSetSubmitted) Kind() Kind { return KindJoinSetSubmitted }

// The set exists (JS-1) and was never awaited (JS-2, K11); the promise is an invocation of this journal and
// was never submitted before, here or elsewhere (JS-7, R15).
func (e JoinSetSubmitted) guard(s *State) *Violation {
	if v := s.running(KindJoinSetSubmitted); v != nil {
		return v
	}
	set, n := s.joinSet(e.Set)
	switch {
	case set == nil:
		return broken(RuleSubmitRequiresCreated, e.Promise, noJoinSet(e.Set))
	case set.closed:
		return broken(RuleNoSubmitAfterAwait, e.Promise, "join set "+string(e.Set))
	}
	c, v := s.invocation(RuleSubmitOnce, e.Promise)
	switch {
	case v != nil:
		return v
	case c.submitted && c.set != n:
		return broken(RuleSingleOwner, e.Promise, "promise "+string(e.Promise)+" is in join set "+string(s.eid.Child(c.set)))
	case c.submitted:
		return broken(RuleSubmitOnce, e.Promise, "promise "+string(e.Promise)+" is in join set "+string(e.Set)+" already")
	}
	return nil
}

func (e JoinSetSubmitted) apply(s *State) {
	_, n := s.joinSet(e.Set)
	c := s.change(e.Promise)
	c.submitted, c.set = true, n
	if c.resolved {
		s.changeNumber(n).ready++
	}
}

func (e JoinSetSubmitted) encode(dst []byte) []byte {
	return appendText(appendText(dst, e.Set), e.Promise)
}

func decodeJoinSetSubmitted(d *decoder) Event {
	return JoinSetSubmitted{Set: JoinSetID(d.promise()), Promise: d.promise()}
}

func noJoinSet(set JoinSetID) string {
	return "join set " + shownID(id.PromiseID(set)) + " was never created"
}
