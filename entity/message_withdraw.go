package entity

// Withdraw cancels an unanswered [LockRequest] whose holder has ended. It follows the request's path: every
// entity that forwarded the request unlocks and forwards the withdrawal. The entity at which the request
// still waits removes it, and the path ends. Each hop has one sender and one receiver, whose messages keep
// their order, so the withdrawal never overtakes the request.
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

// arrive forwards the withdrawal even from an entity that is free. A LockGranted that reached the ended
// holder may have been answered already, so the next entity may still be locked.
func (m Withdraw) arrive(s *State, _ int64) []Message {
	if i := s.requestOf(m.Section); i >= 0 {
		s.dequeue(i)
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
