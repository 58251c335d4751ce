package raftlog

import (
	"errors"
	"fmt"
)

// ErrClosed is returned by every operation on a store after Close.
var ErrClosed = errors.New("raftlog: store is closed")

// MissingError reports that a store which must be there is not. It is not a reason to make a new one: the
// entries it held were acknowledged.
type MissingError struct {
	Store  string // directory
	Detail string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("raftlog: store %s is missing: %s", e.Store, e.Detail)
}

// ExistsError reports that a store which was to be created is already there and in use.
type ExistsError struct {
	Store  string
	Detail string
}

func (e *ExistsError) Error() string {
	return fmt.Sprintf("raftlog: store %s already exists: %s", e.Store, e.Detail)
}

// BackendError refuses a store that was made with the other backend. Its logs are not converted.
type BackendError struct {
	Store       string
	Made, Asked Backend
}

func (e *BackendError) Error() string {
	return fmt.Sprintf("raftlog: store %s was made with backend %s, not %s", e.Store, e.Made, e.Asked)
}

// CorruptError names damage: which store, which group, which entry. Group is meaningful when HasGroup,
// Index when it is not 0. Nothing was changed by the operation that found it.
type CorruptError struct {
	Store    string
	Group    uint32
	HasGroup bool
	Index    uint64
	Detail   string
	Err      error // what the backend said, if it did
}

func (e *CorruptError) Error() string {
	where := e.Store
	if e.HasGroup {
		where = fmt.Sprintf("%s, group %d", where, e.Group)
	}
	if e.Index != 0 {
		where = fmt.Sprintf("%s, index %d", where, e.Index)
	}
	if e.Err != nil {
		return fmt.Sprintf("raftlog: corrupt: %s: %s: %v", where, e.Detail, e.Err)
	}
	return fmt.Sprintf("raftlog: corrupt: %s: %s", where, e.Detail)
}

func (e *CorruptError) Unwrap() error { return e.Err }

// OrderError refuses an append that would overwrite an entry, or whose entries are not consecutive. The
// append stored nothing.
type OrderError struct {
	Store string
	Group uint32
	Last  uint64 // last index of the log, or of the append before Index
	Index uint64 // the index that does not follow
}

func (e *OrderError) Error() string {
	return fmt.Sprintf("raftlog: %s, group %d: entry %d does not follow %d", e.Store, e.Group, e.Index, e.Last)
}

// TooLargeError refuses an entry above MaxEntryBytes. Nothing of the append was stored.
type TooLargeError struct {
	Store string
	Group uint32
	Index uint64
	Bytes int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("raftlog: %s, group %d: entry %d has %d bytes, at most %d are stored",
		e.Store, e.Group, e.Index, e.Bytes, MaxEntryBytes)
}

// FatalError reports that a write or sync failed. The store answers nothing else from then on: what was
// being written may or may not be durable.
type FatalError struct {
	Store string
	Err   error
}

func (e *FatalError) Error() string {
	return fmt.Sprintf("raftlog: store %s failed to write: %v", e.Store, e.Err)
}

func (e *FatalError) Unwrap() error { return e.Err }
