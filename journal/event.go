package journal

// Event is one of the 20 event structs of this package, by value (InvokeStarted, not *InvokeStarted). Events
// are values: neither the package nor its callers change an event after its creation. Events, states and
// replays may share byte fields. A nil and an empty byte field are the same value; decoding yields nil.
type Event interface {
	// Kind returns the event's kind.
	Kind() Kind

	// guard checks the event against s; nil means that it may be appended. State.check calls it after the
	// rules that all events share.
	guard(s *State) *Violation
	// apply records an event that its guard has admitted.
	apply(s *State)
	// encode appends the event's fields, without its kind.
	encode(dst []byte) []byte
}

// Entry is one row of a journal.
type Entry struct {
	// Seq is the entry's index in its journal, from 0 without gaps (S-1, INV-2).
	Seq uint64
	// Time is the wall clock in unix milliseconds at the entry's creation. It is informational: no rule reads
	// it, and it may go backwards (ruling K2).
	Time int64
	// Event is what happened.
	Event Event
}
