package journal

import (
	"bytes"
	"crypto/sha256"

	"perdure/id"
)

// call says what took a child number.
type call uint8

const (
	callInvoke call = iota + 1
	callRandom
	callTime
	callTimer
	callSignal
	callJoinSet
)

var callNames = [...]string{
	callInvoke: "an invocation", callRandom: "a random value", callTime: "a recorded time",
	callTimer: "a timer", callSignal: "a signal wait", callJoinSet: "a join set",
}

// String reads as "an invocation", "a timer".
func (c call) String() string { return callNames[c] }

// child is the guards' state of one child number. It is small, since a long journal has many.
type child struct {
	call   call
	invoke InvokeKind
	// open says that an attempt runs, number retries+1; resolved says that the promise has its result.
	open, resolved bool
	// submitted is an invocation's: it is in the join set with number set. consumed: it was awaited there.
	submitted, consumed bool
	// closed is a join set's: it was awaited, so it takes no more members (JS-2).
	closed bool
	set    uint32
	// ready is a join set's: how many of its members are resolved and not consumed.
	ready          uint32
	retries, bound uint32
	waitEpoch      uint32
	result         fingerprint
}

func (c *child) openAttempt() uint32 {
	if !c.open {
		return 0
	}
	return c.retries + 1
}

func (c *child) started() bool { return c.open || c.resolved || c.retries > 0 }

// fingerprint identifies a payload: up to 32 bytes as they are, longer ones as their SHA-256, so that the
// memory per result is bounded. size distinguishes the two.
type fingerprint struct {
	size  uint8
	bytes [sha256.Size]byte
}

const hashed = sha256.Size + 1

func fingerprintOf(payload []byte) fingerprint {
	if len(payload) > sha256.Size {
		return fingerprint{size: hashed, bytes: sha256.Sum256(payload)}
	}
	f := fingerprint{size: uint8(len(payload))}
	copy(f.bytes[:], payload)
	return f
}

func (f *fingerprint) matches(payload []byte) bool {
	if f.size == hashed {
		return len(payload) > sha256.Size && sha256.Sum256(payload) == f.bytes
	}
	return bytes.Equal(f.bytes[:f.size], payload)
}

// child finds the child at p; nil if p is no child of this execution, or a number not yet taken. The result
// is read-only and valid until the next change.
func (s *State) child(p id.PromiseID) *child {
	n, ok := p.IsChildOf(s.eid)
	if !ok || uint64(n) >= uint64(len(s.children)) {
		return nil
	}
	return &s.children[n]
}

// isNext reports whether p is the identifier that the next call takes.
func (s *State) isNext(p id.PromiseID) bool {
	n, ok := p.IsChildOf(s.eid)
	return ok && uint64(n) == uint64(len(s.children))
}

// takesNext refuses an identifier that is not the next one.
func (s *State) takesNext(rule string, p id.PromiseID) *Violation {
	if s.isNext(p) {
		return nil
	}
	return broken(rule, p, "the next identifier is "+string(s.eid.Child(s.NextChild()))+", not "+shownID(p))
}

// take records a call that takes the next child number.
func (s *State) take(c child) { s.children = append(s.children, c) }

// change returns the child p, which the guard has found, for changing.
func (s *State) change(p id.PromiseID) *child {
	n, _ := p.IsChildOf(s.eid)
	return s.changeNumber(n)
}

func (s *State) changeNumber(n uint32) *child {
	if s.undo != nil {
		s.undo.saveChild(n, s.children[n])
	}
	return &s.children[n]
}

// resolve marks a child as resolved and counts it for its join set and for the open wait.
func (s *State) resolve(c *child) {
	c.resolved = true
	if c.submitted {
		s.changeNumber(c.set).ready++
	}
	if s.status != StatusBlocked {
		return
	}
	if c.waitEpoch == s.waitEpoch || s.waitKind == AwaitJoinSet && c.submitted && c.set == s.waitSet {
		s.waitResolved++
	}
}

// block opens a wait.
func (s *State) block(kind AwaitKind, on []id.PromiseID, signal string, set uint32) {
	s.status = StatusBlocked
	s.waitKind, s.waitOn, s.waitSignal, s.waitSet = kind, on, signal, set
	s.waitEpoch++
	s.waitResolved = 0
	for _, p := range on {
		c := s.change(p)
		c.waitEpoch = s.waitEpoch
		if c.resolved {
			s.waitResolved++
		}
	}
}

// unblock ends the open wait, if there is one, and sets the status that follows.
func (s *State) unblock(next Status) {
	s.status = next
	s.waitKind, s.waitOn, s.waitSignal, s.waitSet, s.waitResolved = 0, nil, "", 0, 0
}

func shownID(p id.PromiseID) string {
	if p == "" {
		return "none"
	}
	return string(p)
}
