package fsm

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"perdure/fsm/machine"
	"perdure/fsm/state"
)

// HeldError says that a running process has a state store open.
type HeldError struct {
	Dir string
	Err error
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("fsm: state store %s is in use by a running process (%v)", e.Dir, e.Err)
}
func (e *HeldError) Unwrap() error { return e.Err }

// ReadOnly is the state of one partition of a node that is stopped. While it is open no process can open
// the store. It may be used concurrently, but not beside Close.
type ReadOnly struct {
	dir    string
	db     *pebble.DB
	status Status
}

// OpenReadOnly opens a state store that nobody uses, and changes nothing of its content: its files stay as
// they are, but for the time of the LOCK file. What a crash has left half exchanged is read where it is.
// Of the options it needs only Stamp, and heeds FS, Cache and Logger (nil: silence). Errors: *MissingError,
// *ForeignError, *DamagedError, *HeldError.
//
// It sees what was flushed: after a crash, the log may hold entries that are not in it yet.
func OpenReadOnly(dir string, opts Options) (*ReadOnly, error) {
	opts.Create, opts.OnFatal = false, func(error) {} // what it would say is in the errors
	if opts.Logger == nil {
		opts.Logger = silence{pebble.DefaultLogger}
	}
	s := newStore(dir, opts)
	s.dir = resting(s.opts.FS, dir)
	s.opts.FS = readOnlyFS{s.opts.FS}
	status, err := s.inspect()
	if err != nil {
		return nil, s.held(err)
	}
	db, err := s.openDB(s.dir, true)
	if err != nil {
		return nil, s.held(&DamagedError{s.dir, err})
	}
	return &ReadOnly{s.dir, db, status}, nil
}

// held turns the refusal of a lock into a HeldError of the store.
func (s *Store) held(err error) error {
	var lock *lockedError
	if errors.As(err, &lock) {
		return &HeldError{s.dir, lock.err}
	}
	return err
}

// resting is where a store is, if a crash has interrupted an exchange: Recover would move it into place.
func resting(files vfs.FS, dir string) string {
	for _, name := range []string{dir + ".incoming", dir + ".retired"} {
		if _, err := files.Stat(name); err != nil {
			return dir
		}
	}
	if _, err := files.Stat(dir); err == nil {
		return dir
	}
	return dir + ".incoming"
}

// Dir is where the store is.
func (r *ReadOnly) Dir() string { return r.dir }

// Status is the store's own values.
func (r *ReadOnly) Status() Status { return r.status }

// View runs fn on the state. An error of fn is taken for the storage's, and comes back as a *DamagedError.
func (r *ReadOnly) View(fn func(state.Reader) error) error {
	if err := fn(view{r.db}); err != nil {
		return &DamagedError{r.dir, err}
	}
	return nil
}

// Replay runs fn on what the state becomes by log entries that it does not have yet. each calls apply for
// every command entry, in the order of the log, and passes on its error. Nothing is written: what the entries
// do is kept in memory. Errors are *DamagedError of this store, and what each returns of its own.
func (r *ReadOnly) Replay(cfg machine.Config, each func(apply func(index uint64, data []byte) error) error, fn func(state.Reader) error) error {
	m, err := machine.New(cfg, view{r.db})
	if err != nil {
		return &DamagedError{r.dir, err}
	}
	if err := each(func(index uint64, data []byte) error {
		e, err := DecodeEntry(data)
		if err == nil {
			_, err = m.Apply(index, e)
		}
		if err != nil {
			return &DamagedError{r.dir, fmt.Errorf("log entry %d: %w", index, err)}
		}
		return nil
	}); err != nil {
		return err
	}
	if err := fn(m.State()); err != nil {
		return &DamagedError{r.dir, err}
	}
	return nil
}

// Close lets others open the store again.
func (r *ReadOnly) Close() error { return closeDB(r.db) }

// silence is a logger that only speaks when Pebble cannot go on.
type silence struct{ pebble.Logger }

func (silence) Infof(string, ...any)  {}
func (silence) Errorf(string, ...any) {}

// readOnlyFS is a file system on which nothing can be written.
type readOnlyFS struct{ vfs.FS }

var errReadOnly = errors.New("fsm: the store is open for reading only")

// lockedError says that a lock was refused because somebody else has it.
type lockedError struct{ err error }

func (e *lockedError) Error() string { return e.err.Error() }
func (e *lockedError) Unwrap() error { return e.err }

// Lock implements vfs.FS. A store without a LOCK file has never been opened where it is, so nobody has it
// open, and nothing needs to be made.
func (f readOnlyFS) Lock(name string) (io.Closer, error) {
	if _, err := f.Stat(name); errors.Is(err, fs.ErrNotExist) {
		return noLock{}, nil
	}
	lock, err := f.FS.Lock(name)
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		err = &lockedError{err}
	}
	return lock, err
}

type noLock struct{}

func (noLock) Close() error { return nil }

// Create implements vfs.FS.
func (readOnlyFS) Create(string, vfs.DiskWriteCategory) (vfs.File, error) { return nil, errReadOnly }

// OpenReadWrite implements vfs.FS.
func (readOnlyFS) OpenReadWrite(string, vfs.DiskWriteCategory, ...vfs.OpenOption) (vfs.File, error) {
	return nil, errReadOnly
}

// ReuseForWrite implements vfs.FS.
func (readOnlyFS) ReuseForWrite(string, string, vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, errReadOnly
}

// MkdirAll implements vfs.FS.
func (readOnlyFS) MkdirAll(string, fs.FileMode) error { return errReadOnly }

// Link implements vfs.FS.
func (readOnlyFS) Link(string, string) error { return errReadOnly }

// Rename implements vfs.FS.
func (readOnlyFS) Rename(string, string) error { return errReadOnly }

// Remove implements vfs.FS.
func (readOnlyFS) Remove(string) error { return errReadOnly }

// RemoveAll implements vfs.FS.
func (readOnlyFS) RemoveAll(string) error { return errReadOnly }
