package entity

import "perdure/internal/canonical"

// Unlock ends the lock of a critical section on one entity (durable functions semantics, section 4.6.1:
// CS-Exit). It does not queue. It takes effect on arrival, except that the holder's earlier operations on the
// entity still run under the lock. An entity that the section has not locked is not affected.
type Unlock struct {
	Section Section
	Entity  ID
}

// Kind returns KindUnlock.
func (m Unlock) Kind() Kind { return KindUnlock }

// From returns the holder.
func (m Unlock) From() Party { return m.Section.Holder }

// To returns the entity.
func (m Unlock) To() Party { return m.Entity.party() }

func (m Unlock) subject() Error {
	return Error{Entity: m.Entity, Party: m.Section.Holder, Section: m.Section.ID}
}

func (m Unlock) fault() (rule, detail string) {
	if rule, detail := m.Section.fault(); rule != "" {
		return rule, detail
	}
	if m.Entity == "" {
		return RuleID, "an unlock names an entity"
	}
	return "", ""
}

func (m Unlock) refusal(*State) (Code, string, string) { return 0, "", "" }

func (m Unlock) arrive(s *State, _ int64) []Message {
	s.release(m.Section)
	return s.settle()
}

func (m Unlock) encode(b []byte) []byte {
	b = appendSection(b, m.Section)
	return canonical.AppendBytes(b, m.Entity)
}

func decodeUnlock(r *reader) Message {
	return Unlock{Section: r.section(), Entity: ID(r.Text())}
}
