package raftlog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"perdure/partition/stable/boltfile"
)

// The boltdb backend keeps one raft-boltdb file per group, group-XXXXXXXX.bolt, made when the group gets
// its first entry, and node.bolt with the stamp and the list of groups, so that a group's file which
// disappeared is missed. raft-boltdb would store a raft.Log as it is; the driver stores one whose Data is
// the complete record, so that checksums and order are checked like those of the other backend.
const (
	boltNodeFile  = "node.bolt"
	boltGroupGlob = "group-"
	boltSuffix    = ".bolt"
)

var (
	boltStampKey = []byte("stamp")
	boltMadeKey  = []byte("raftlog")
)

func boltGroupKey(group uint32) []byte { return fmt.Appendf(nil, "group/%08x", group) }

type boltDriver struct {
	dir  string
	node *raftboltdb.BoltStore

	mu    sync.Mutex
	files map[uint32]*raftboltdb.BoltStore
}

func openBolt(dir string, opts Options, _ func(error) error) (driver, error) {
	if opts.FS != vfs.Default {
		return nil, errors.New("raftlog: the boltdb backend works on the real file system only")
	}
	path := filepath.Join(dir, boltNodeFile)
	_, err := os.Stat(path)
	exists := err == nil
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if !exists && !opts.MustCreate {
		return nil, &MissingError{Store: dir, Detail: boltNodeFile + " is not there"}
	}
	if !exists {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	node, err := boltfile.Open(path, boltfile.Options{Create: opts.MustCreate})
	if err != nil {
		return nil, boltErr(&CorruptError{}, err)
	}
	d := &boltDriver{dir: dir, node: node, files: map[uint32]*raftboltdb.BoltStore{}}
	return d, nil
}

// boltErr turns a damaged or missing file into damage of the store; where says of what.
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
	return filepath.Join(d.dir, fmt.Sprintf("%s%08x%s", boltGroupGlob, group, boltSuffix))
}

// file opens the group's file; nil if the group has none and create is not set.
func (d *boltDriver) file(group uint32, create bool) (*raftboltdb.BoltStore, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.files[group]; f != nil {
		return f, nil
	}
	_, err := d.node.Get(boltGroupKey(group))
	listed := err == nil
	if err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return nil, err
	}
	if !listed && !create {
		return nil, nil
	}
	f, err := boltfile.Open(d.path(group), boltfile.Options{Create: !listed, NoFreelistSync: true})
	if err != nil {
		return nil, boltErr(&CorruptError{Group: group, HasGroup: true}, err)
	}
	if !listed {
		// The file stands before its name is listed: a crash between leaves an empty file nobody misses.
		if err := d.node.Set(boltGroupKey(group), boltMadeKey); err != nil {
			_ = f.Close()
			return nil, err
		}
	}
	d.files[group] = f
	return f, nil
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

func (d *boltDriver) append(group uint32, restart bool, recs []record) error {
	logs := make([]*raft.Log, len(recs))
	for i, r := range recs {
		logs[i] = &raft.Log{Index: r.index, Data: r.bytes}
	}
	return d.with(group, true, func(f *raftboltdb.BoltStore) error {
		if restart {
			// Two transactions. A crash between leaves an empty log, which is as good: a snapshot covers
			// what is deleted, and what is appended was not acknowledged.
			if err := f.DeleteRange(0, recs[0].index-1); err != nil {
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
	names, err := os.ReadDir(d.dir)
	if err != nil {
		return nil, err
	}
	var out []uint32
	for _, e := range names {
		name, ok := strings.CutPrefix(e.Name(), boltGroupGlob)
		if !ok {
			continue
		}
		name, ok = strings.CutSuffix(name, boltSuffix)
		g, err := strconv.ParseUint(name, 16, 32)
		if !ok || err != nil {
			continue
		}
		if _, last, err := d.bounds(uint32(g)); err != nil {
			return nil, err
		} else if last != 0 {
			out = append(out, uint32(g))
		}
	}
	return out, nil
}

func (d *boltDriver) drop(group uint32) error {
	return d.deleteRange(group, 0, ^uint64(0))
}

func (d *boltDriver) stamp() (out []byte, err error) {
	err = boltfile.Guard(filepath.Join(d.dir, boltNodeFile), func() error {
		b, err := d.node.Get(boltStampKey)
		if errors.Is(err, raftboltdb.ErrKeyNotFound) {
			return nil
		}
		out = b
		return err
	})
	return out, boltErr(&CorruptError{}, err)
}

func (d *boltDriver) setStamp(b []byte) error {
	return boltErr(&CorruptError{}, boltfile.Guard(filepath.Join(d.dir, boltNodeFile), func() error {
		return d.node.Set(boltStampKey, b)
	}))
}

func (d *boltDriver) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.node.Close()
	for g, f := range d.files {
		err = errors.Join(err, f.Close())
		delete(d.files, g)
	}
	return err
}
