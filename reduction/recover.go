package reduction

import "strconv"

// Normalize reads running as pending (resetRunningToPending in the papers): after a crash the running nodes
// are unknown, and before one the phases do not distinguish the two.
func Normalize(s State) State {
	out := s.Clone()
	for id, at := range s.Statuses { //lint:sorted each node is written by itself
		if at.Kind == StatusRunning {
			out.Statuses[id] = Status{Kind: StatusPending}
		}
	}
	return out
}

// Delivered says whether a signal has been delivered to a node that waits for it, and with which payload. It
// is called for waiting nodes only, in ascending order, so a function that returns each delivery once is
// deterministic. nil delivers nothing.
type Delivered func(node NodeID, signal string) (payload []byte, ok bool)

// BySignal delivers to every node that waits for a signal of this map.
func BySignal(payloads map[string][]byte) Delivered {
	return func(_ NodeID, signal string) ([]byte, bool) {
		payload, ok := payloads[signal]
		return payload, ok
	}
}

// ResolveSignals completes the waiting nodes whose signal has been delivered, with the payload as output
// (staged reduction, 3.8).
func ResolveSignals(r *Relation, s State, delivered Delivered) State {
	out := s.Clone()
	if delivered == nil {
		return out
	}
	for _, id := range r.ids {
		at := s.Statuses[id]
		if at.Kind != StatusWaiting {
			continue
		}
		if payload, ok := delivered(id, at.Signal); ok {
			out.Statuses[id] = Status{Kind: StatusCompleted}
			out.Outputs[id] = payload
		}
	}
	return out
}

// Recover takes over a run from what was persisted of it (staged reduction, 3.7): it resolves delivered
// signals, resets running to pending, closes and classifies the state. The result is well-formed. The
// frontier of a Progressing is the one to resume from, for any persisted prefix of a frontier's results
// (Proposition 1). Recover assumes of s what the proposition assumes; if [Persisted] reports a violation in
// s, it returns only a *StateError.
func Recover(r *Relation, s State, delivered Delivered) (State, Step, error) {
	if faults := Persisted(r, s); len(faults) > 0 {
		return State{}, nil, &StateError{faults}
	}
	s = Close(r, Normalize(ResolveSignals(r, s, delivered)))
	return s, Classify(r, s), nil
}

// StateError says that a state cannot have been left by accumulation: it was damaged, or belongs to another
// graph.
type StateError struct {
	// Violations says what is wrong with it, as [Persisted] does. There is at least one.
	Violations []Violation
}

// Error gives the first violation and the number of others.
func (e *StateError) Error() string {
	text := e.Violations[0].Error()
	if more := len(e.Violations) - 1; more > 0 {
		text += " (and " + strconv.Itoa(more) + " more)"
	}
	return text
}
