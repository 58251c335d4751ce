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

// HeldError reports that a running process has a state store open.
type HeldError struct {
	Dir string
	Err error
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("fsm: state store %s is in use by a running process (%v)", e.Dir, e.Err)
}
func (e *HeldError) Unwrap() error { return e.Err }

// ReadOnly is one partition's state on a stopped node. While it is open no process can open the store. Its
// methods may run concurrently with each other, but not with Close.
type ReadOnly struct {
	dir    string
	db     *pebble.DB
	status Status
}

// OpenReadOnly opens a state store that no process has open. It changes no file, except the LOCK file's time.
// It reads a store whose exchange a crash has interrupted where that store lies. It needs only the option
// Stamp, and uses FS, Cache and Logger (nil: no log). Errors: *MissingError, *ForeignError, *DamagedError,
// *HeldError.
//
// It sees only what was flushed: after a crash, the log may hold later entries.
func OpenReadOnly(dir string, opts Options) (*ReadOnly, error) {
	opts.Create, opts.OnFatal = false, func(error) {} // the returned errors say the same
	if opts.Logger == nil {
		opts.Logger = fatalOnly{pebble.DefaultLogger}
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

// held converts the refusal of a lock to a HeldError of the store.
func (s *Store) held(err error) error {
	var lock *lockedError
	if errors.As(err, &lock) {
		return &HeldError{s.dir, lock.err}
	}
	return err
}

// resting returns the directory of a store whose exchange a crash has interrupted; Recover would move it into
// place.
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

// Dir is the store's directory.
func (r *ReadOnly) Dir() string { return r.dir }

// Status returns the store's own values.
func (r *ReadOnly) Status() Status { return r.status }

// View runs fn on the state. An error of fn counts as one of the storage: View returns a *DamagedError.
func (r *ReadOnly) View(fn func(state.Reader) error) error {
	if err := fn(view{r.db}); err != nil {
		return &DamagedError{r.dir, err}
	}
	return nil
}

// ViewAll runs fn on several states at once, in their order, and returns its error.
func ViewAll(stores []*ReadOnly, fn func([]state.Reader) error) error {
	readers := make([]state.Reader, len(stores))
	for i, r := range stores {
		readers[i] = view{r.db}
	}
	return fn(readers)
}

// Replay runs fn on the state after the log entries that it does not have yet. each calls apply for every
// command entry, in log order, and returns its error. Replay keeps the changes in memory and writes nothing.
// Errors: *DamagedError of this store, and those of each.
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

// Close releases the store, so that another process can open it.
func (r *ReadOnly) Close() error { return closeDB(r.db) }

// fatalOnly is a logger that reports only Pebble's fatal errors.
type fatalOnly struct{ pebble.Logger }

func (fatalOnly) Infof(string, ...any)  {}
func (fatalOnly) Errorf(string, ...any) {}

// readOnlyFS is a file system that refuses every write.
type readOnlyFS struct{ vfs.FS }

var errReadOnly = errors.New("fsm: the store is open for reading only")

// lockedError reports that another holder has the lock.
type lockedError struct{ err error }

func (e *lockedError) Error() string { return e.err.Error() }
func (e *lockedError) Unwrap() error { return e.err }

// Lock implements vfs.FS. A store without a LOCK file has never been opened in this directory. So no process
// has it open, and Lock creates no file.
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
