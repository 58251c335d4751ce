package entity

// LockGranted notifies the holder that every entity of its critical section is locked. The holder then enters the
// section (durable functions semantics, section 4.6.1: CS-Enter).
type LockGranted struct {
	Section Section
	// Set lists all locked entities, ascending. By it [Unclaimed] releases the locks of an unknown holder.
	Set []ID
}

// Kind returns KindLockGranted.
func (m LockGranted) Kind() Kind { return KindLockGranted }

// From returns the entity that was locked last.
func (m LockGranted) From() Party { return place(m.Set, len(m.Set)-1) }

// To returns the holder.
func (m LockGranted) To() Party { return m.Section.Holder }

func (m LockGranted) subject() Error {
	return Error{Party: m.Section.Holder, Section: m.Section.ID}
}

func (m LockGranted) fault() (rule, detail string) {
	if rule, detail := m.Section.fault(); rule != "" {
		return rule, detail
	}
	return lockSetFault(m.Set)
}

func (m LockGranted) encode(b []byte) []byte {
	b = appendSection(b, m.Section)
	return appendIDs(b, m.Set)
}

func decodeLockGranted(r *reader) Message {
	return LockGranted{Section: r.section(), Set: r.ids()}
}

// Unclaimed returns the messages that release the locks of a section without a holder: the answer to a
// LockGranted whose holder is unknown.
func Unclaimed(g LockGranted) []Message { return unlockAll(g.Section, g.Set) }

func unlockAll(section Section, set []ID) []Message {
	out := make([]Message, len(set))
	for i, id := range set {
		out[i] = Unlock{Section: section, Entity: id}
	}
	return out
}
