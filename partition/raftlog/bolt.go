package raftlog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"perdure/internal/fsync"
	"perdure/partition/stable/boltfile"
)

// The boltdb backend has one raft-boltdb file per group, group-XXXXXXXX.bolt, created with the group's first
// entry. The seal lists the groups that have one, so Open notices a file that disappeared. raft-boltdb would
// store a raft.Log as it is; the driver stores one whose Data is the complete record, so that checksums and
// order are checked like those of the other backend.
const (
	boltPrefix = "group-"
	boltSuffix = ".bolt"
)

type boltDriver struct {
	dir   string
	hooks hooks

	mu    sync.Mutex
	known map[uint32]bool // groups that have a file
	files map[uint32]*raftboltdb.BoltStore
}

// openBolt opens the store in dir, which has a file for each of known. It opens them when they are asked
// for.
func openBolt(dir string, opts Options, fresh bool, known map[uint32]span, hooks hooks) (driver, error) {
	if opts.FS != vfs.Default {
		return nil, errors.New("raftlog: the boltdb backend works on the real file system only")
	}
	if fresh {
		if err := fsync.MakeDir(opts.FS, dir); err != nil {
			return nil, err
		}
	}
	d := &boltDriver{dir: dir, hooks: hooks, known: map[uint32]bool{}, files: map[uint32]*raftboltdb.BoltStore{}}
	for g := range known {
		d.known[g] = true
	}
	return d, nil
}

// boltErr turns a damaged or missing file into damage of the store; where names the damaged part.
func boltErr(where *CorruptError, err error) error {
	var corrupt *boltfile.CorruptError
	var missing *boltfile.MissingError
	if errors.As(err, &corrupt) || errors.As(err, &missing) {
		where.Err = err
		if where.Detail == "" {
			where.Detail = "bolt file"
		}
		return where
	}
	return err
}

func (d *boltDriver) path(group uint32) string {
	return filepath.Join(d.dir, fmt.Sprintf("%s%08x%s", boltPrefix, group, boltSuffix))
}

// file opens the group's file; nil if the group has none and create is not set.
func (d *boltDriver) file(group uint32, create bool) (*raftboltdb.BoltStore, error) {
	d.mu.Lock()
	f := d.files[group]
	if f == nil && d.known[group] {
		var err error
		if f, err = boltfile.Open(d.path(group), boltfile.Options{NoFreelistSync: true}); err != nil {
			d.mu.Unlock()
			return nil, boltErr(&CorruptError{Group: group, HasGroup: true}, err)
		}
		d.files[group] = f
	}
	d.mu.Unlock()
	if f != nil || !create {
		return f, nil
	}
	// A file the seal does not list is left over from a crash: of this very step, or of a drop.
	if err := os.Remove(d.path(group)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	f, err := boltfile.Open(d.path(group), boltfile.Options{Create: true, NoFreelistSync: true})
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.known[group], d.files[group] = true, f
	d.mu.Unlock()
	// Not under mu, and after the group is known: a seal that is written meanwhile asks for the groups.
	return f, d.hooks.register(group)
}

// with runs fn on the group's file, guarded; fn is not called when there is none.
func (d *boltDriver) with(group uint32, create bool, fn func(*raftboltdb.BoltStore) error) error {
	f, err := d.file(group, create)
	if err != nil || f == nil {
		return err
	}
	return boltErr(&CorruptError{Group: group, HasGroup: true},
		boltfile.Guard(d.path(group), func() error { return fn(f) }))
}

func (d *boltDriver) write(group uint32, recs []record) (wait func() error, err error) {
	return nil, d.append(group, false, recs)
}

func (d *boltDriver) append(group uint32, restart bool, recs []record) error {
	logs := make([]*raft.Log, len(recs))
	for i, r := range recs {
		data := make([]byte, r.size)
		encodeEntry(data, entryKey(group, r.log.Index), r.log)
		logs[i] = &raft.Log{Index: r.log.Index, Data: data}
	}
	return d.with(group, true, func(f *raftboltdb.BoltStore) error {
		if restart {
			// Two transactions. A crash between them leaves an empty log, which is sound: a snapshot covers
			// the deleted entries, and the appended ones were not acknowledged.
			if err := f.DeleteRange(0, recs[0].log.Index-1); err != nil {
				return err
			}
		}
		return f.StoreLogs(logs)
	})
}

func (d *boltDriver) deleteRange(group uint32, from, to uint64) error {
	return d.with(group, false, func(f *raftboltdb.BoltStore) error { return f.DeleteRange(from, to) })
}

func (d *boltDriver) get(group uint32, index uint64) (out []byte, err error) {
	err = d.with(group, false, func(f *raftboltdb.BoltStore) error {
		var log raft.Log
		switch err := f.GetLog(index, &log); {
		case errors.Is(err, raft.ErrLogNotFound):
			return nil
		case err != nil:
			return &CorruptError{Group: group, HasGroup: true, Index: index, Detail: "entry cannot be read", Err: err}
		}
		out = log.Data
		if out == nil {
			out = []byte{}
		}
		return nil
	})
	return out, err
}

func (d *boltDriver) scan(group uint32, from, to uint64, fn func(uint64, []byte) bool) error {
	for index := from; index <= to; index++ {
		b, err := d.get(group, index)
		if err != nil {
			return err
		}
		if b == nil || !fn(index, b) || index == ^uint64(0) {
			return nil
		}
	}
	return nil
}

func (d *boltDriver) bounds(group uint32) (first, last uint64, err error) {
	err = d.with(group, false, func(f *raftboltdb.BoltStore) (err error) {
		if first, err = f.FirstIndex(); err != nil {
			return err
		}
		last, err = f.LastIndex()
		return err
	})
	return first, last, err
}

func (d *boltDriver) groups() ([]uint32, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]uint32, 0, len(d.known))
	for g := range d.known {
		out = append(out, g)
	}
	return out, nil
}

// drop removes the file after the seal no longer lists it; Open ignores the rest that a crash leaves.
func (d *boltDriver) drop(group uint32, unlist func() error) error {
	d.mu.Lock()
	f := d.files[group]
	delete(d.files, group)
	delete(d.known, group)
	d.mu.Unlock()
	if err := unlist(); err != nil {
		return err
	}
	if f != nil {
		if err := f.Close(); err != nil {
			return err
		}
	}
	if err := os.Remove(d.path(group)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// verify checks the entries' own checksums only. A walk over the pages on disk could mistake a concurrent
// write for damage, so it runs at open, when the group has no writes.
func (d *boltDriver) verify(uint32) error { return nil }

func (d *boltDriver) witness() (witness, error) { return witness{}, nil }

func (d *boltDriver) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var err error
	for g, f := range d.files {
		err = errors.Join(err, f.Close())
		delete(d.files, g)
	}
	return err
}
