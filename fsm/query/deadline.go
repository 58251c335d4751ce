package query

import (
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// DeadlineSearch finds the earliest deadline of a changing state repeatedly. Deleted deadlines leave tombstones in
// Pebble, so each search resumes at the previous position of its kind. The zero value is ready for use. It is
// not safe for concurrent use.
type DeadlineSearch struct {
	from state.DeadlineScan
	// first is the kind of the deadline found last: its present earliest deadline bounds the search among the
	// others.
	first keys.DeadlineKind
}

// Next returns the earliest deadline in the state, in unix milliseconds; ok is false when there is none.
// added is the earliest deadline added since the previous call began, 0 for none (see Effects.NextExpiration). Next
// may miss a deadline whose NextExpiration the caller has not received yet: the caller calls again when it arrives.
// The state must not be older than the previous call's. Errors are the storage's, or a *CorruptError.
func (s *DeadlineSearch) Next(r state.Reader, added int64) (at int64, ok bool, err error) {
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
		found, there, err := state.FirstDeadline(r, s.from.Begin(kind), upper)
		if err != nil {
			return err
		}
		if there {
			at, ok, s.first = min(at, found), true, kind
		}
		s.from[kind] = at // this kind has no deadline before at
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

// NextExpiration returns the earliest deadline in a state, in unix milliseconds; ok is false when there is none. For
// repeated searches use a DeadlineSearch.
func NextExpiration(r state.Reader) (at int64, ok bool, err error) {
	return new(DeadlineSearch).Next(r, 0)
}
