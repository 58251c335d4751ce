package state

import "perdure/fsm/state/keys"

// Never is the deadline of a promise that has none: the latest time the wire can carry (2^53 - 1 ms).
// It is not put into the deadline index.
const Never int64 = 1<<53 - 1

// DueFrom says for each kind of deadline (by its number) before which time there is none. It is a cache: zeroes
// are always right. Deadlines come and go all the time, and what is gone leaves traces in the store, which a
// search from the front would walk over each time; this is where the last one ended.
type DueFrom [keys.DueGraph + 1]int64

// Lower takes note of a deadline that was added.
func (d *DueFrom) Lower(key []byte) {
	if kind, at, _, _, err := keys.ParseDeadline(key); err == nil && int(kind) < len(d) {
		d[kind] = min(d[kind], at)
	}
}

// Begin is where a search for deadlines of a kind begins.
func (d *DueFrom) Begin(kind keys.DeadlineKind) []byte {
	front, from := keys.DeadlineBounds(kind, d[kind]-1) // the bound behind what is due before
	if d[kind] <= 0 {
		return front
	}
	return from
}

// FirstDue is the time of the first deadline between two keys.
func FirstDue(r Reader, lower, upper []byte) (at int64, ok bool, err error) {
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
