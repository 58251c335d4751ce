package journal

import (
	"encoding/binary"

	"perdure/id"
)

// ExecutionAwaiting records that the program cannot continue: a result that it needs is missing. A wait that
// is satisfied already is not recorded (R13).
type ExecutionAwaiting struct {
	// On is a set of this execution's children, written in ascending order of child number. A signal wait
	// names one: the number it takes itself. A wait for a join set names one of its members that has no result.
	On []id.PromiseID
	// Wait says when the wait is satisfied.
	Wait AwaitKind
	// Signal is the name waited for if Wait is AwaitSignal, and "" otherwise.
	Signal string
	// Set is the join set waited for if Wait is AwaitJoinSet, and "" otherwise.
	Set JoinSetID
}

// Kind returns KindExecutionAwaiting.
func (ExecutionAwaiting) Kind() Kind { return KindExecutionAwaiting }

func (e ExecutionAwaiting) guard(s *State) *Violation {
	if v := s.running(KindExecutionAwaiting); v != nil {
		return v
	}
	switch {
	case !e.Wait.Valid():
		return broken(RuleVocabulary, "", "unknown kind of wait "+e.Wait.String())
	case (e.Set != "") != (e.Wait == AwaitJoinSet):
		return broken(RuleVocabulary, id.PromiseID(e.Set), "a wait of kind "+e.Wait.String()+" for join set "+shownID(id.PromiseID(e.Set)))
	case e.Wait == AwaitSignal:
		return e.guardSignal(s)
	case e.Signal != "":
		return broken(RuleVocabulary, "", "a wait of kind "+e.Wait.String()+" names no signal")
	case e.Wait == AwaitJoinSet:
		return e.guardSet(s)
	}
	return e.guardPromises(s)
}

// A signal wait waits on the one number that it takes itself (CF-4, R11), and only if there is no unconsumed
// delivery of the name (R13).
func (e ExecutionAwaiting) guardSignal(s *State) *Violation {
	if len(e.On) != 1 {
		return broken(RuleAwaitSignalConsistent, "", "a signal wait is on one promise, not on "+num(len(e.On)))
	}
	if v := s.takesNext(RuleSignalWait, e.On[0]); v != nil {
		return v
	}
	if delivery, _, buffered := s.NextReceipt(e.Signal); buffered {
		return broken(RuleNeedlessWait, e.On[0],
			"delivery "+num(delivery)+" of signal "+quoted(e.Signal)+" is not consumed yet")
	}
	return nil
}

// The other waits are on invocations and timers of this journal, which alone resolve (R12), and are not
// satisfied already (R13).
func (e ExecutionAwaiting) guardPromises(s *State) *Violation {
	switch {
	case len(e.On) == 0:
		return broken(RuleWaitable, "", "a wait on nothing")
	case e.Wait == AwaitSingle && len(e.On) != 1:
		return broken(RuleWaitable, "", "a wait of kind Single is on one promise, not on "+num(len(e.On)))
	}
	resolved, before := 0, uint32(0)
	for i, p := range e.On {
		c := s.child(p)
		switch {
		case c == nil:
			return broken(RuleWaitable, p, "promise "+shownID(p)+" was never scheduled")
		case c.call != callInvoke && c.call != callTimer:
			return broken(RuleWaitable, p, string(p)+" is "+c.call.String()+", which cannot be waited for")
		}
		n, _ := p.IsChildOf(s.eid)
		if i > 0 && n <= before {
			return broken(RuleWaitable, p, "promise "+string(p)+" is not in ascending order")
		}
		before = n
		if c.resolved {
			resolved++
		}
	}
	if resolved == len(e.On) || e.Wait == AwaitAny && resolved > 0 {
		return broken(RuleNeedlessWait, e.On[0], "the wait of kind "+e.Wait.String()+" is satisfied already")
	}
	return nil
}

// A wait for a join set names one of its members (R12), and no member has a result that was not consumed (R13).
func (e ExecutionAwaiting) guardSet(s *State) *Violation {
	set, n := s.joinSet(e.Set)
	switch {
	case set == nil:
		return broken(RuleWaitable, id.PromiseID(e.Set), noJoinSet(e.Set))
	case len(e.On) != 1:
		return broken(RuleWaitable, id.PromiseID(e.Set), "a wait for a join set names one member, not "+num(len(e.On)))
	}
	p := e.On[0]
	switch c := s.child(p); {
	case c == nil || !c.submitted || c.set != n:
		return broken(RuleWaitable, p, "promise "+shownID(p)+" is not in join set "+string(e.Set))
	case set.ready > 0:
		return broken(RuleNeedlessWait, p, num(set.ready)+" members of join set "+string(e.Set)+" have results that were not consumed")
	case c.consumed:
		return broken(RuleWaitable, p, "promise "+string(p)+" was consumed from join set "+string(e.Set)+" before")
	}
	return nil
}

func (e ExecutionAwaiting) apply(s *State) {
	set := uint32(0)
	if e.Wait == AwaitSignal {
		s.take(child{call: callSignal})
	}
	if e.Wait == AwaitJoinSet {
		_, set = s.joinSet(e.Set)
	}
	s.block(e.Wait, e.On, e.Signal, set)
}

func (e ExecutionAwaiting) encode(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(e.On)))
	for _, p := range e.On {
		dst = appendText(dst, p)
	}
	dst = append(dst, byte(e.Wait))
	switch e.Wait {
	case AwaitSignal:
		dst = appendText(dst, e.Signal)
	case AwaitJoinSet:
		dst = appendText(dst, e.Set)
	}
	return dst
}

func decodeExecutionAwaiting(d *decoder) Event {
	var e ExecutionAwaiting
	n := d.uvarint()
	// An identifier takes at least two bytes, so a damaged count cannot ask for much memory.
	if n > uint64(len(d.data)-d.off)/2 {
		d.fail(num(n) + " promises do not fit")
		return e
	}
	if n > 0 {
		e.On = make([]id.PromiseID, n)
	}
	for i := range e.On {
		e.On[i] = d.promise()
		if d.err == nil && i > 0 && !siblingsAscend(e.On[i-1], e.On[i]) {
			d.fail("promises not in ascending order")
		}
	}
	e.Wait = AwaitKind(d.byte())
	if d.err == nil && !e.Wait.Valid() {
		d.fail("unknown kind of wait " + e.Wait.String())
	}
	switch e.Wait {
	case AwaitSignal:
		e.Signal = d.text()
	case AwaitJoinSet:
		e.Set = JoinSetID(d.promise())
	}
	return e
}

// siblingsAscend reports whether a and b are children of one parent, a before b.
func siblingsAscend(a, b id.PromiseID) bool {
	parent, ok := a.Parent()
	first, _ := a.Last()
	second, sibling := b.IsChildOf(parent)
	return ok && sibling && first < second
}
