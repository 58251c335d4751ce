package state

import "perdure/fsm/state/keys"

// Never is the deadline of a promise without one: the latest time that the wire can carry (2^53 - 1 ms). The
// deadline index does not contain it.
const Never int64 = 1<<53 - 1

// RemainsAt is the deadline at which the rows of a purged execution are deleted: at once.
const RemainsAt int64 = 1

// DeadlineScan holds, by kind number, a time before which no deadline of that kind exists. It is a cache: zeroes
// are always right. Deleted deadlines leave tombstones in Pebble, so each search resumes at the previous
// position.
type DeadlineScan [keys.LastDeadline + 1]int64

// Lower records an added deadline.
func (d *DeadlineScan) Lower(key []byte) {
	if kind, at, _, err := keys.CutDeadline(key); err == nil && int(kind) < len(d) {
		d[kind] = min(d[kind], at)
	}
}

// Begin returns the key at which a search for deadlines of a kind begins.
func (d *DeadlineScan) Begin(kind keys.DeadlineKind) []byte {
	front, from := keys.DeadlineBounds(kind, d[kind]-1) // the upper bound of all earlier deadlines
	if d[kind] <= 0 {
		return front
	}
	return from
}

// FirstDeadline returns the time of the first deadline between two keys.
func FirstDeadline(r Reader, lower, upper []byte) (at int64, ok bool, err error) {
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
