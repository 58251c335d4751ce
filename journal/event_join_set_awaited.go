package journal

import "perdure/id"

// JoinSetAwaited records which member's result the program consumed here. It is a marker for replay and
// changes no status: the order of the markers is the order of consumption (K10).
type JoinSetAwaited struct {
	Set     JoinSetID
	Promise id.PromiseID
	// Result is the promise's recorded result, byte for byte (R16).
	Result []byte
}

// Kind returns KindJoinSetAwaited.
func (JoinSetAwaited) Kind() Kind { return KindJoinSetAwaited }

// The promise is a member (JS-3), completed (JS-4), not consumed before (JS-5, hence JS-6), and the result
// is its own (R16).
func (e JoinSetAwaited) guard(s *State) *Violation {
	if v := s.running(KindJoinSetAwaited); v != nil {
		return v
	}
	set, n := s.joinSet(e.Set)
	if set == nil {
		return broken(RuleAwaitedRequiresMember, e.Promise, noJoinSet(e.Set))
	}
	c := s.child(e.Promise)
	switch {
	case c == nil || !c.submitted || c.set != n:
		return broken(RuleAwaitedRequiresMember, e.Promise,
			"promise "+shownID(e.Promise)+" is not in join set "+string(e.Set))
	case !c.resolved:
		return broken(RuleAwaitedRequiresCompleted, e.Promise, "promise "+string(e.Promise)+" is not completed")
	case c.consumed:
		return broken(RuleNoDoubleConsume, e.Promise,
			"promise "+string(e.Promise)+" was consumed from join set "+string(e.Set)+" before")
	case !c.result.matches(e.Result):
		return broken(RuleConsumedResult, e.Promise, "promise "+string(e.Promise)+" has another result")
	}
	return nil
}

func (e JoinSetAwaited) apply(s *State) {
	set := s.change(id.PromiseID(e.Set))
	set.closed = true
	set.ready--
	s.change(e.Promise).consumed = true
}

func (e JoinSetAwaited) encode(dst []byte) []byte {
	return appendBytes(appendText(appendText(dst, e.Set), e.Promise), e.Result)
}

func decodeJoinSetAwaited(d *decoder) Event {
	return JoinSetAwaited{Set: JoinSetID(d.promise()), Promise: d.promise(), Result: d.bytes()}
}
