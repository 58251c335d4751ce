package raftlog

// record is one encoded entry on its way to a driver.
type record struct {
	index uint64
	bytes []byte // complete: body and checksum
}

// driver is what a backend has to do; the rules stand above it. Writes of one group are never
// concurrent with each other; everything else may be. A write returns after it is durable. Errors that
// are damage are *CorruptError without Store, which Store fills in.
type driver interface {
	// append stores consecutive entries. With restart, every older entry of the group goes first, in
	// the same commit where the backend can.
	append(group uint32, restart bool, recs []record) error
	// deleteRange removes from..to, both included.
	deleteRange(group uint32, from, to uint64) error
	// get returns a copy of one entry, nil if it is not there.
	get(group uint32, index uint64) ([]byte, error)
	// scan calls fn for the entries found in from..to in ascending order; bytes are valid during the
	// call only. fn returns false to end the scan.
	scan(group uint32, from, to uint64, fn func(index uint64, bytes []byte) bool) error
	// bounds returns the first and last index, 0, 0 for an empty log.
	bounds(group uint32) (first, last uint64, err error)
	// groups lists the groups that hold entries, ascending.
	groups() ([]uint32, error)
	// drop removes a group altogether.
	drop(group uint32) error
	// stamp returns the stamp, nil if none was set.
	stamp() ([]byte, error)
	setStamp(b []byte) error
	// close releases the files. Everything written is durable already.
	close() error
}
