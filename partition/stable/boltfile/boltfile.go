// Package boltfile opens raft-boltdb files without trusting them.
//
// It owns the opening of a bolt file. It never creates a missing file silently, refuses a damaged one by
// name, and turns bbolt's panics on damaged pages into errors. bbolt maps the file and follows its content
// unchecked: a damaged page makes it panic, in part on goroutines of its own where no caller can recover, and
// a shortened file kills the process. So Check walks the file first. A crash loses nothing here: a bolt
// transaction is on disk or absent.
package boltfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"perdure/internal/fsync"
)

// Options of Open.
type Options struct {
	// Create makes the file when it is not there. Without it a missing file is a *MissingError. A new file
	// gets its name when it is complete, so a crash leaves none or all of it.
	Create bool
	// Init writes the first content of a new file, before it gets its name; may be nil.
	Init func(*raftboltdb.BoltStore) error
	// NoFreelistSync leaves the list of free pages out of the file: cheaper writes after large truncations, a
	// slower open, and one check less (Check cannot distinguish a stale page from a live one).
	NoFreelistSync bool
	// Timeout bounds the wait for another process's lock on the file; 1 s if 0.
	Timeout time.Duration
}

// MissingError reports that the file is not there.
type MissingError struct{ Path string }

func (e *MissingError) Error() string { return fmt.Sprintf("bolt file %s is missing", e.Path) }

// CorruptError names a damaged file.
type CorruptError struct {
	Path   string
	Detail string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("bolt file %s is corrupt: %s", e.Path, e.Detail)
}

// Open checks the file and opens it. A new file and its name are on disk when Open returns.
func Open(path string, opts Options) (*raftboltdb.BoltStore, error) {
	if opts.Timeout == 0 {
		opts.Timeout = time.Second
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if !opts.Create {
			return nil, &MissingError{Path: path}
		}
		if err := create(path, opts); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, err
	case info.Size() == 0:
		// bbolt would take an empty file for a new one.
		return nil, &CorruptError{Path: path, Detail: "empty file"}
	}
	if err := lockedCheck(path, opts.Timeout); err != nil {
		return nil, err
	}
	return open(path, opts, 0)
}

const newSuffix = ".new"

// create makes the file under another name first.
func create(path string, opts Options) error {
	tmp := path + newSuffix
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	db, err := open(tmp, opts, os.O_CREATE)
	if err != nil {
		return err
	}
	if opts.Init != nil {
		err = opts.Init(db)
	}
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return fsync.SyncDir(vfs.Default, filepath.Dir(path))
}

// open lets bbolt open the file, with the given flag or without O_CREATE.
func open(path string, opts Options, create int) (db *raftboltdb.BoltStore, err error) {
	err = Guard(path, func() (err error) {
		db, err = raftboltdb.New(raftboltdb.Options{
			Path: path,
			BoltOptions: &bbolt.Options{
				Timeout:        opts.Timeout,
				NoFreelistSync: opts.NoFreelistSync,
				FreelistType:   bbolt.FreelistMapType,
				OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
					return os.OpenFile(name, flag&^os.O_CREATE|create, mode)
				},
			},
			MsgpackUseNewTimeFormat: true,
		})
		return err
	})
	return db, err
}

// lockedCheck checks the file while no other process can write to it.
func lockedCheck(path string, timeout time.Duration) error {
	var db *bbolt.DB
	err := Guard(path, func() (err error) {
		// Read-only, bolt reads only the meta pages.
		db, err = bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: timeout})
		return err
	})
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return fmt.Errorf("bolt file %s is in use: %w", path, err)
	}
	if checkErr := Check(path); checkErr != nil {
		err = checkErr
	}
	if db != nil {
		err = errors.Join(err, db.Close())
	}
	return err
}

// Guard runs fn, which uses the bolt file at path, and turns a panic or a memory fault in the mapped
// file into a *CorruptError. It covers fn's own goroutine only.
func Guard(path string, fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = &CorruptError{Path: path, Detail: fmt.Sprint(r)}
		}
	}()
	err = fn()
	if errors.Is(err, bbolterrors.ErrInvalid) || errors.Is(err, bbolterrors.ErrChecksum) || errors.Is(err, bbolterrors.ErrVersionMismatch) {
		return &CorruptError{Path: path, Detail: err.Error()}
	}
	return err
}
