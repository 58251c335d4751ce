package entity

import "encoding/binary"

// LockRequest acquires the locks of a critical section. It travels from the holder to the first entity of the
// set, from there to the second, and so on. At each it waits in the queue like an operation, behind all
// earlier messages, and locks the entity when it reaches the front (durable functions semantics, section
// 3.4.1: in a globally consistent order, one at a time).
type LockRequest struct {
	Section Section
	// Set is all the section locks, ascending, each entity once.
	Set []ID
	// Position is the request's index in the set: the entities before it are locked.
	Position int
}

// Kind returns KindLockRequest.
func (m LockRequest) Kind() Kind { return KindLockRequest }

// From returns the holder for the first entity, and the entity before for each other.
func (m LockRequest) From() Party { return previous(m.Section, m.Set, m.Position) }

// To returns the entity to be locked.
func (m LockRequest) To() Party { return place(m.Set, m.Position) }

func (m LockRequest) subject() Error { return travelling(m.Section, m.Set, m.Position) }

func (m LockRequest) fault() (rule, detail string) { return travelFault(m.Section, m.Set, m.Position) }

func (m LockRequest) refusal(*State) (Code, string, string) { return 0, "", "" }

// arrive queues the request. A repeated request changes nothing in this entity. If the first request still
// waits, the repetition is dropped. If the section already holds the lock, the repetition is passed to the
// next entity: it may have locked an entity again that the section had left, and only the holder's answer
// frees that one.
func (m LockRequest) arrive(s *State, _ int64) []Message {
	if s.Lock.Section == m.Section {
		return []Message{m.next()}
	}
	if s.requestOf(m.Section) >= 0 {
		return nil
	}
	s.enqueue(m)
	return s.settle()
}

// next is what the entity sends when it is locked: the request to the next of the set, or word to the
// holder.
func (m LockRequest) next() Message {
	if m.Position+1 < len(m.Set) {
		m.Position++
		return m
	}
	return LockGranted{Section: m.Section, Set: m.Set}
}

func (m LockRequest) encode(b []byte) []byte {
	return appendTravelling(b, m.Section, m.Set, m.Position)
}

func decodeLockRequest(r *reader) Message {
	section, set, position := r.travelling()
	return LockRequest{section, set, position}
}

// The functions below serve both LockRequest and Withdraw, which are forwarded in the same way.

func previous(section Section, set []ID, position int) Party {
	if position == 0 {
		return section.Holder
	}
	return place(set, position-1)
}

func travelling(section Section, set []ID, position int) Error {
	return Error{Entity: ID(place(set, position).ID), Party: section.Holder, Section: section.ID}
}

func travelFault(section Section, set []ID, position int) (rule, detail string) {
	if rule, detail := section.fault(); rule != "" {
		return rule, detail
	}
	if rule, detail := lockSetFault(set); rule != "" {
		return rule, detail
	}
	if position < 0 || position >= len(set) {
		return RulePosition, "it is outside its set"
	}
	return "", ""
}

func appendTravelling(b []byte, section Section, set []ID, position int) []byte {
	b = appendSection(b, section)
	b = appendIDs(b, set)
	return binary.AppendUvarint(b, uint64(position))
}

func (r *reader) travelling() (section Section, set []ID, position int) {
	section, set = r.section(), r.ids()
	start := r.Offset()
	p := r.Uvarint()
	if p >= uint64(len(set)) {
		r.Fail(start, "a position outside its lock set")
		return section, set, 0
	}
	return section, set, int(p)
}
