// Package stable stores Raft's term and vote of every group of a node in one raft-boltdb/v2 file.
//
// It owns that file. A value is on disk, synced, when Set returns. Open refuses a damaged or missing file by
// name: a forgotten vote lets two leaders win one term. A crash loses at most the value whose Set had not
// returned.
//
// All values of all groups are one record under one key of the file, keyed inside by (group, key), with
// one checksum. bbolt checksums only its two meta pages, so separate keys could vanish one by one with a
// damaged page, and Raft reads a missing term as 0; a record is there whole or not at all. It has about
// 100 bytes per group and is rewritten on elections only. Reads are served from memory.
package stable

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"perdure/internal/fsync"
	"perdure/partition/stable/boltfile"
)

// ErrNotFound is returned for a key that was never set. Its text is what hashicorp/raft compares with.
var ErrNotFound = raftboltdb.ErrKeyNotFound

// ErrClosed is returned by every operation after Close.
var ErrClosed = errors.New("stable: store is closed")

// Bounds of what one value may be; Raft's own are far below.
const (
	MaxKeyBytes   = 1 << 10
	MaxValueBytes = 1 << 20
)

// Store is the interface of both implementations. All methods are safe for concurrent use.
type Store interface {
	// Group returns the stable store of one group.
	Group(g uint32) raft.StableStore
	// Groups lists the groups that have values, ascending.
	Groups() []uint32
	// DropGroup forgets all values of a group, durably.
	DropGroup(g uint32) error
	// Stamp returns what SetStamp stored; false if the store was never stamped.
	Stamp() ([]byte, bool)
	// SetStamp stores the caller's mark (cluster id and server id), durably. An empty one is refused.
	SetStamp(b []byte) error
	// Close releases the file.
	Close() error
}

// MissingError reports that a file which must be there is not.
type MissingError struct{ Path string }

func (e *MissingError) Error() string { return fmt.Sprintf("stable: file %s is missing", e.Path) }

// ExistsError reports that a file which was to be made is there already, and stamped.
type ExistsError struct{ Path string }

func (e *ExistsError) Error() string { return fmt.Sprintf("stable: file %s already exists", e.Path) }

// CorruptError names a damaged file.
type CorruptError struct {
	Path   string
	Detail string
	Err    error
}

func (e *CorruptError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("stable: corrupt: %s: %s: %v", e.Path, e.Detail, e.Err)
	}
	return fmt.Sprintf("stable: corrupt: %s: %s", e.Path, e.Detail)
}

func (e *CorruptError) Unwrap() error { return e.Err }

// FatalError reports that a write or sync failed. Nothing is answered from then on.
type FatalError struct {
	Path string
	Err  error
}

func (e *FatalError) Error() string {
	return fmt.Sprintf("stable: file %s failed to write: %v", e.Path, e.Err)
}

func (e *FatalError) Unwrap() error { return e.Err }

// syncError is a failed sync. The content of the disk is then unknown, and a second sync might not show it.
// So it never counts as lack of space, which would cause a retry.
type syncError struct{ err error }

func (e *syncError) Error() string { return e.err.Error() }

// Is reports whether the cause is target; never for want of space.
func (e *syncError) Is(target error) bool {
	return target != syscall.ENOSPC && errors.Is(e.err, target)
}

// Options of Open.
type Options struct {
	// MustCreate makes a new file and refuses one that is in use (ExistsError). A file that was made
	// but never stamped and holds no value counts as not made: its maker crashed. Without MustCreate
	// nothing is ever created.
	MustCreate bool
	// MustExist refuses a missing file (MissingError), as Open does anyway without MustCreate; both
	// together are refused.
	MustExist bool
	// NoFreelistSync leaves bolt's list of free pages out of the file. Leave it off: the file has a few
	// pages, and Check needs the list to distinguish a live page from a stale one.
	NoFreelistSync bool
	// Timeout bounds the wait for another process's lock on the file; 1 s if 0.
	Timeout time.Duration
	// OnFatal is called once, with a *FatalError, when a write or sync fails. It must end the process.
	// If it is nil the message goes to stderr and the process exits with 1. If it returns (in a test),
	// the write returns the error and so does everything after it.
	OnFatal func(error)
	// Insist repeats a write that failed for lack of space until it does not fail so; its string names the
	// file. It may block. It never repeats a failed sync. Nil: one try.
	Insist func(what string, write func() error) error
}

// File is the Store on disk.
type File struct {
	path    string
	db      *raftboltdb.BoltStore
	onFatal func(error)
	insist  func(string, func() error) error

	mu     sync.Mutex
	state  *state
	failed error
}

var recordKey = []byte("perdure/stable")

// Open opens the file at path. Errors: *MissingError, *ExistsError, *CorruptError, or what the file
// system said; a file locked by another process is bbolt's time-out error.
func Open(path string, opts Options) (*File, error) {
	if opts.MustCreate && opts.MustExist {
		return nil, fmt.Errorf("stable: file %s: MustCreate and MustExist exclude each other", path)
	}
	f := &File{path: path, onFatal: opts.OnFatal, insist: opts.Insist}
	if f.insist == nil {
		f.insist = func(_ string, write func() error) error { return write() }
	}
	if f.onFatal == nil {
		f.onFatal = func(err error) {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if opts.MustCreate {
		if err := fsync.MakeDir(vfs.Default, filepath.Dir(path)); err != nil {
			return nil, err
		}
	}
	db, err := boltfile.Open(path, boltfile.Options{
		Create:         opts.MustCreate,
		NoFreelistSync: opts.NoFreelistSync,
		Timeout:        opts.Timeout,
		Init:           func(db *raftboltdb.BoltStore) error { return db.Set(recordKey, newState().encode()) },
	})
	if err != nil {
		return nil, f.named(err)
	}
	f.db = db
	preallocate(path)
	if err := f.load(opts.MustCreate); err != nil {
		_ = db.Close()
		return nil, err
	}
	return f, nil
}

// preallocatedBytes is more than the file ever has: the record is replaced within a few pages.
const preallocatedBytes = 256 << 10

// preallocate gives the file its space on disk at once, where the file system can, so that no term or vote meets a
// full disk.
func preallocate(path string) {
	f, err := vfs.Default.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return
	}
	_ = f.Preallocate(0, preallocatedBytes)
	_ = f.Close()
}

func (f *File) named(err error) error {
	var corrupt *boltfile.CorruptError
	var missing *boltfile.MissingError
	switch {
	case errors.As(err, &missing):
		return &MissingError{Path: f.path}
	case errors.As(err, &corrupt):
		return &CorruptError{Path: f.path, Detail: corrupt.Detail}
	}
	return err
}

func (f *File) load(create bool) error {
	var b []byte
	err := boltfile.Guard(f.path, func() (err error) {
		b, err = f.db.Get(recordKey)
		return err
	})
	switch {
	case errors.Is(err, ErrNotFound):
		return &CorruptError{Path: f.path, Detail: "the record of terms and votes is missing"}
	case err != nil:
		return f.named(err)
	}
	st, err := decodeState(b)
	if err != nil {
		return &CorruptError{Path: f.path, Detail: "the record of terms and votes", Err: err}
	}
	if create && (len(st.stamp) > 0 || len(st.values) > 0) {
		return &ExistsError{Path: f.path}
	}
	f.state = st
	return nil
}

// write makes st durable. The caller holds mu, or is alone.
func (f *File) write(st *state) error {
	b := st.encode()
	err := f.insist(f.path, func() error {
		err := boltfile.Guard(f.path, func() error { return f.db.Set(recordKey, b) })
		var write *fs.PathError
		if err != nil && !errors.As(err, &write) {
			return &syncError{err}
		}
		return err
	})
	if err == nil {
		return nil
	}
	fe := &FatalError{Path: f.path, Err: err}
	f.failed = fe
	f.onFatal(fe)
	return fe
}

// update makes the state that change leaves durable, then current.
func (f *File) update(change func(*state)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed != nil {
		return f.failed
	}
	st := f.state.clone()
	change(st)
	if err := f.write(st); err != nil {
		return err
	}
	f.state = st
	return nil
}

func (f *File) read(g uint32, key []byte) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed != nil {
		return nil, f.failed
	}
	return f.state.get(g, key)
}

func (f *File) Group(g uint32) raft.StableStore {
	return &groupStore{g: g, update: f.update, read: f.read}
}

func (f *File) Groups() []uint32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.groups()
}

func (f *File) DropGroup(g uint32) error { return f.update(func(st *state) { st.drop(g) }) }

func (f *File) Stamp() ([]byte, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]byte(nil), f.state.stamp...), len(f.state.stamp) > 0
}

func (f *File) SetStamp(b []byte) error {
	if len(b) == 0 {
		return fmt.Errorf("stable: file %s: empty stamp", f.path)
	}
	return f.update(func(st *state) { st.stamp = append([]byte(nil), b...) })
}

func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if errors.Is(f.failed, ErrClosed) {
		return nil
	}
	f.failed = ErrClosed
	return f.db.Close()
}

// groupStore is one group's view of either implementation.
type groupStore struct {
	g      uint32
	update func(func(*state)) error
	read   func(uint32, []byte) ([]byte, error)
}

var _ raft.StableStore = (*groupStore)(nil)

func (s *groupStore) Set(key, val []byte) error {
	if len(key) == 0 || len(key) > MaxKeyBytes || len(val) > MaxValueBytes {
		return fmt.Errorf("stable: group %d: key of %d bytes, value of %d bytes refused", s.g, len(key), len(val))
	}
	return s.update(func(st *state) { st.set(s.g, key, val) })
}

func (s *groupStore) Get(key []byte) ([]byte, error) { return s.read(s.g, key) }

func (s *groupStore) SetUint64(key []byte, val uint64) error {
	return s.Set(key, binary.BigEndian.AppendUint64(nil, val))
}

func (s *groupStore) GetUint64(key []byte) (uint64, error) {
	b, err := s.read(s.g, key)
	if err != nil {
		return 0, err
	}
	if len(b) != 8 {
		return 0, fmt.Errorf("stable: group %d: key %q holds %d bytes, not a number", s.g, key, len(b))
	}
	return binary.BigEndian.Uint64(b), nil
}
