// Package boltfile opens raft-boltdb files without trusting them.
//
// It owns the opening of a bolt file and promises that a missing file is never made silently, that a
// damaged one is refused by name, and that bbolt's panics on damaged pages become errors. bbolt maps the
// file and follows whatever it finds there; a damaged page makes it panic, in part on goroutines of its
// own where nobody can recover, and a shortened file kills the process. So Check walks the file first.
// A crash loses nothing here: a bolt transaction is on disk or absent.
package boltfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

// Options of Open.
type Options struct {
	// Create makes the file when it is not there. Without it a missing file is a *MissingError.
	Create bool
	// NoFreelistSync leaves the list of free pages out of the file: cheaper writes after large
	// truncations, a slower open, and one check less (a stale page cannot be told from a live one).
	NoFreelistSync bool
	// Timeout bounds the wait for another process's lock on the file; 1 s if 0.
	Timeout time.Duration
}

// MissingError says that the file is not there.
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
	case err != nil:
		return nil, err
	case info.Size() == 0:
		// bbolt would take an empty file for a new one.
		if !opts.Create {
			return nil, &CorruptError{Path: path, Detail: "empty file"}
		}
	default:
		if err := lockedCheck(path, opts.Timeout); err != nil {
			return nil, err
		}
	}
	var db *raftboltdb.BoltStore
	err = Guard(path, func() error {
		var err error
		db, err = raftboltdb.New(raftboltdb.Options{
			Path: path,
			BoltOptions: &bbolt.Options{
				Timeout:        opts.Timeout,
				NoFreelistSync: opts.NoFreelistSync,
				FreelistType:   bbolt.FreelistMapType,
				OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
					if !opts.Create {
						flag &^= os.O_CREATE
					}
					return os.OpenFile(name, flag, mode)
				},
			},
			MsgpackUseNewTimeFormat: true,
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	if opts.Create {
		if err := SyncDir(filepath.Dir(path)); err != nil {
			_ = db.Close()
			return nil, err
		}
	}
	return db, nil
}

// lockedCheck checks the file while no other process can write to it.
func lockedCheck(path string, timeout time.Duration) error {
	var db *bbolt.DB
	err := Guard(path, func() (err error) {
		// Read-only, bolt looks at nothing but the meta pages.
		db, err = bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: timeout})
		return err
	})
	if errors.Is(err, bbolt.ErrTimeout) {
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

// SyncDir makes the names in a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
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
	if errors.Is(err, bbolt.ErrInvalid) || errors.Is(err, bbolt.ErrChecksum) || errors.Is(err, bbolt.ErrVersionMismatch) {
		return &CorruptError{Path: path, Detail: err.Error()}
	}
	return err
}
