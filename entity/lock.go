package entity

import "slices"

// Lock is the lock of an entity: the source's superscript j (durable functions semantics, section 4.4).
// The zero value is free.
type Lock struct {
	// Section holds the lock.
	Section Section
	// Until is 0 until the section gives the lock back. From then on it is the Seq that the entity would
	// have given to an entry at that moment: what the holder sent before is below it, and is served before
	// the lock ends.
	Until uint64
}

// Held reports whether a section holds the lock.
func (l Lock) Held() bool { return l.Section != Section{} }

// String shows l for people.
func (l Lock) String() string {
	if !l.Held() {
		return "not locked"
	}
	state := "locked"
	if l.Until != 0 {
		state = "being unlocked"
	}
	return state + " by section " + l.Section.ID + " of " + l.Section.Holder.String()
}

// admits reports whether an operation may run under the lock: the holder's own, unless it was scheduled
// or sent after the section's end. Those that are no calls of the section were sent before it was
// entered, since inside the holder sends nothing else to a locked entity; a scheduled signal is outside
// the holder's order and would fall between the section's calls, so it waits.
func (l Lock) admits(seq uint64, o operation) bool {
	return o.From() == l.Section.Holder && o.ordered() && (l.Until == 0 || seq < l.Until)
}

// requestOf returns the index of the waiting lock request of a section, or -1.
func (s *State) requestOf(section Section) int {
	return slices.IndexFunc(s.Queue, func(e Entry) bool {
		m, ok := e.Message.(LockRequest)
		return ok && m.Section == section
	})
}

// release notes that a section gives its lock back, if it holds it. settle ends it.
func (s *State) release(section Section) {
	if s.Lock.Section == section && s.Lock.Until == 0 {
		s.Lock.Until = s.NextSeq
	}
}

// settle does what has become possible: it ends a lock that was given back once the holder's operations
// are done, and locks the entity for a request that has come to the front. It returns the request's next
// step.
func (s *State) settle() []Message {
	if s.Lock.Until != 0 && !s.Runnable() {
		s.Lock = Lock{}
	}
	if s.Lock.Held() || len(s.Queue) == 0 {
		return nil
	}
	m, ok := s.Queue[0].Message.(LockRequest)
	if !ok {
		return nil
	}
	s.Queue = slices.Delete(s.Queue, 0, 1)
	s.Lock = Lock{Section: m.Section}
	return []Message{m.next()}
}
