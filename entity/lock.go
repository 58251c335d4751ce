package entity

// Lock is the lock of an entity: the source's superscript j (durable functions semantics, section 4.4).
// The zero value is free.
type Lock struct {
	// Section holds the lock.
	Section Section
	// Until is 0 until the section releases the lock. Then it is the Seq of the next entry at that moment:
	// the holder's earlier operations are below it, and run before the lock ends.
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

// admits reports whether an operation of the queue may run under the lock: the holder's own, unless it was sent after
// the section's end. The holder sent those that are not calls of the section before it entered, since inside it sends
// nothing else to a locked entity. Scheduled signals are outside the holder's order and wait in the lane.
func (l Lock) admits(seq uint64, o operation) bool {
	return o.From() == l.Section.Holder && (l.Until == 0 || seq < l.Until)
}

// release notes that a section gives its lock back, if it holds it. settle ends it.
func (s *State) release(section Section) {
	if s.Lock.Section == section && s.Lock.Until == 0 {
		s.Lock.Until = s.NextSeq
	}
}

// settle ends a released lock once the holder's operations are done, and locks the entity for a request that
// is at the front. It returns the request's next message.
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
	s.dequeue(0)
	s.Lock = Lock{Section: m.Section}
	return []Message{m.next()}
}
