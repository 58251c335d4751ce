package machine

import (
	"perdure/fsm/keys"
)

// dueFrom says for each kind of deadline (by its number) before which time there is none. It is a cache: zeroes
// are always right. Deadlines come and go all the time, and what is gone leaves traces in the store, which a
// search from the front would walk over each time; this is where the last one ended.
type dueFrom [keys.DueGraph + 1]int64

// lower takes note of a deadline that was added.
func (d *dueFrom) lower(key []byte) {
	if kind, at, _, _, err := keys.ParseDeadline(key); err == nil && int(kind) < len(d) {
		d[kind] = min(d[kind], at)
	}
}

// begin is where a search for deadlines of a kind begins.
func (d *dueFrom) begin(kind keys.DeadlineKind) []byte {
	front, from := keys.DeadlineBounds(kind, d[kind]-1) // the bound behind what is due before
	if d[kind] <= 0 {
		return front
	}
	return from
}

// A DueSearch finds the earliest deadline of a state again and again, as the state moves on. Each search begins
// where the last one of its kind has ended, so that it does not walk over what has gone since. The zero value
// knows nothing and is ready for use. It is not safe for concurrent use.
type DueSearch struct {
	from dueFrom
	// first is the kind of the deadline found last: what it has now bounds the search among the others.
	first keys.DeadlineKind
}

// Next is the earliest deadline in the state, in unix milliseconds; ok is false when there is none. added is the
// earliest one that came into the state since the call before this one began, 0 for none (see Effects.NextDue):
// who has not been told of one yet, though the state has it, may not find it, and must call again when told.
// The state must not be older than that of the call before. Errors are of the storage, or a *CorruptError.
func (s *DueSearch) Next(r Reader, added int64) (at int64, ok bool, err error) {
	if added > 0 {
		for kind := range s.from {
			s.from[kind] = min(s.from[kind], added)
		}
	}
	at = Never
	search := func(kind keys.DeadlineKind) error {
		if s.from[kind] > at {
			return nil
		}
		_, upper := keys.DeadlineBounds(kind, at)
		found, there, err := firstDue(r, s.from.begin(kind), upper)
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

// firstDue is the time of the first deadline between two keys.
func firstDue(r Reader, lower, upper []byte) (at int64, ok bool, err error) {
	var bad error
	err = r.Scan(lower, upper, func(key, _ []byte) bool {
		var perr error
		if _, at, _, _, perr = keys.ParseDeadline(key); perr != nil {
			bad = &CorruptError{What: "deadline", Key: append([]byte(nil), key...), Detail: perr.Error()}
		}
		ok = perr == nil
		return false
	})
	if err == nil {
		err = bad
	}
	return at, ok && err == nil, err
}

// NextDue is the earliest deadline in a state, in unix milliseconds; ok is false when there is none. Who asks
// often has a DueSearch.
func NextDue(r Reader) (at int64, ok bool, err error) { return new(DueSearch).Next(r, 0) }
