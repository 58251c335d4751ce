package query

import (
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// A DueSearch finds the earliest deadline of a state again and again, as the state moves on. Each search begins
// where the last one of its kind has ended, so that it does not walk over what has gone since. The zero value
// knows nothing and is ready for use. It is not safe for concurrent use.
type DueSearch struct {
	from state.DueFrom
	// first is the kind of the deadline found last: what it has now bounds the search among the others.
	first keys.DeadlineKind
}

// Next is the earliest deadline in the state, in unix milliseconds; ok is false when there is none. added is the
// earliest one that came into the state since the call before this one began, 0 for none (see Effects.NextDue):
// who has not been told of one yet, though the state has it, may not find it, and must call again when told.
// The state must not be older than that of the call before. Errors are of the storage, or a *CorruptError.
func (s *DueSearch) Next(r state.Reader, added int64) (at int64, ok bool, err error) {
	if added > 0 {
		for kind := range s.from {
			s.from[kind] = min(s.from[kind], added)
		}
	}
	at = state.Never
	search := func(kind keys.DeadlineKind) error {
		if s.from[kind] > at {
			return nil
		}
		_, upper := keys.DeadlineBounds(kind, at)
		found, there, err := state.FirstDue(r, s.from.Begin(kind), upper)
		if err != nil {
			return err
		}
		if there {
			at, ok, s.first = min(at, found), true, kind
		}
		s.from[kind] = at // none is earlier: neither of this kind nor, where it was not looked, found
		return nil
	}
	first := s.first
	if first != 0 {
		if err := search(first); err != nil {
			return 0, false, err
		}
	}
	for _, kind := range keys.DeadlineKinds {
		if kind == first {
			continue
		}
		if err := search(kind); err != nil {
			return 0, false, err
		}
	}
	if !ok {
		return 0, false, nil
	}
	return at, true, nil
}

// NextDue is the earliest deadline in a state, in unix milliseconds; ok is false when there is none. Who asks
// often has a DueSearch.
func NextDue(r state.Reader) (at int64, ok bool, err error) { return new(DueSearch).Next(r, 0) }
