package entity

import "slices"

// Withdraw takes a [LockRequest] back that has not been answered, because its holder has ended. It
// follows the request's trail: every entity that has passed the request on unlocks and passes the
// withdrawal on; where the request still waits it is removed, and the trail ends. Each leg of the trail is
// one pair of sender and receiver, whose messages keep their order, so the withdrawal is never ahead of
// the request.
type Withdraw struct {
	Section Section
	// Set and Position are as in the request.
	Set      []ID
	Position int
}

// Kind returns KindWithdraw.
func (m Withdraw) Kind() Kind { return KindWithdraw }

// From returns the holder for the first entity, and the entity before for each other.
func (m Withdraw) From() Party { return previous(m.Section, m.Set, m.Position) }

// To returns the entity to be released.
func (m Withdraw) To() Party { return place(m.Set, m.Position) }

func (m Withdraw) subject() Error { return travelling(m.Section, m.Set, m.Position) }

func (m Withdraw) fault() (rule, detail string) { return travelFault(m.Section, m.Set, m.Position) }

func (m Withdraw) refusal(*State) (Code, string, string) { return 0, "", "" }

// arrive goes on even where it finds nothing: a LockGranted that met the ended holder may have been
// answered already, so that this entity is free and the next is not.
func (m Withdraw) arrive(s *State, _ int64) []Message {
	if i := s.requestOf(m.Section); i >= 0 {
		s.Queue = slices.Delete(s.Queue, i, i+1)
		return s.settle()
	}
	s.release(m.Section)
	var out []Message
	if m.Position+1 < len(m.Set) {
		next := m
		next.Position++
		out = append(out, next)
	}
	return append(out, s.settle()...)
}

func (m Withdraw) encode(b []byte) []byte { return appendTravelling(b, m.Section, m.Set, m.Position) }

func decodeWithdraw(r *reader) Message {
	section, set, position := r.travelling()
	return Withdraw{section, set, position}
}
