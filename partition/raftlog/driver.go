package raftlog

import "github.com/hashicorp/raft"

// record is one entry on its way to a driver, which encodes it in place with encodeEntry.
type record struct {
	log  *raft.Log
	size int // encodedLen of it
}

// driver is the interface of a backend; the rules are implemented above it. Writes of one group are never
// concurrent with each other; everything else may be. A write returns after it is durable. Errors that are
// damage are *CorruptError without Store, which Store fills in.
type driver interface {
	// append stores consecutive entries. With restart, it first deletes every older entry of the group, in
	// the same commit if the backend can.
	append(group uint32, restart bool, recs []record) error
	// write is append without restart that returns before the entries are durable, when get and scan find them. wait
	// blocks until they are; every write before is then durable, too. It is nil if they are already.
	write(group uint32, recs []record) (wait func() error, err error)
	// deleteRange removes from..to, both included.
	deleteRange(group uint32, from, to uint64) error
	// get returns a copy of one entry, nil if it is not there.
	get(group uint32, index uint64) ([]byte, error)
	// scan calls fn for the entries found in from..to in ascending order; bytes are valid during the
	// call only. fn returns false to end the scan.
	scan(group uint32, from, to uint64, fn func(index uint64, bytes []byte) bool) error
	// bounds returns the first and last index, 0, 0 for an empty log.
	bounds(group uint32) (first, last uint64, err error)
	// groups lists the groups that have files or entries, in any order.
	groups() ([]uint32, error)
	// drop removes a group altogether. It calls unlist, which takes the group out of the seal, when
	// groups no longer lists it (or its log is hidden) and before anything of it is removed.
	drop(group uint32, unlist func() error) error
	// verify reads what is not an entry (bolt's pages); entries are read by the caller.
	verify(group uint32) error
	// witness describes the backend's own files as they are, for the seal. It works after close too.
	witness() (witness, error)
	// close releases the files. Everything written is durable already.
	close() error
}

// hooks is what a driver needs from the store above it.
type hooks struct {
	// fatal reports a failed write the driver cannot return.
	fatal func(error) error
	// changed reports that files were created or removed, so a new seal is needed. It does not block.
	changed func()
	// flushed says that entries moved from the write-ahead log into tables, before that log is removed.
	// It writes a seal and calls nothing of the driver.
	flushed func(w witness, err error)
	// register makes the seal list a group before its first entry is stored.
	register func(group uint32) error
}
