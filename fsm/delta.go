package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"perdure/fsm/state"
	"perdure/internal/fsync"
)

const (
	// deltaPrefix begins the names of deltas in the folder of a checkpoint.
	deltaPrefix = "delta-"
	// deltaCheck is after how many rows MakeDelta looks at its bounds.
	deltaCheck = 128
)

// DeltaLimitError says that the rows which two checkpoints do not share take more bytes than the caller wants.
type DeltaLimitError struct{ Bytes, Limit int64 }

func (e *DeltaLimitError) Error() string {
	return fmt.Sprintf("fsm: the changes take %d bytes or more, the limit is %d", e.Bytes, e.Limit)
}

// DeltaOptions bound a delta.
type DeltaOptions struct {
	// Limit bounds the bytes of the delta; 0: no bound.
	Limit int64
	// Spare is that of Options: it is asked for 1 MiB at the first row and after each 128 more.
	Spare func(bytes int64) error
	// Stop, if it returns an error, ends the work with it.
	Stop func() error
}

// DeltaDir is the folder in which MakeDelta works, next to the store. A crash leaves it; the next MakeDelta removes it.
func DeltaDir(dir string) string { return dir + ".delta" }

// DeltaName is the name of the file with the rows that lead from one checkpoint of a partition to another.
func DeltaName(from, to Checkpoint) string { return deltaPrefix + from.name() + "-" + to.name() }

// IsDelta reports whether a name has the form of DeltaName. Such a file is none of the checkpoint's own.
func IsDelta(name string) bool {
	rest, ok := strings.CutPrefix(name, deltaPrefix)
	return ok && strings.Trim(rest, "-0123456789") == ""
}

// MakeDelta writes the rows that were put or deleted between two checkpoints of the store in dir, into the folder of the
// later one, and returns the file. It reads both checkpoints whole and blocks for as long. It returns the file of an
// earlier call if there is one. The file is a table of Pebble that ApplyDelta adds to a copy of the first checkpoint;
// the values of the later one replace those of the first. One call at a time for a store. Options: FS, Cache, Logger.
// Errors: *DeltaLimitError; fs.ErrNotExist if a checkpoint is not there; those of Spare and Stop; *DamagedError.
func MakeDelta(dir string, from, to Checkpoint, opts Options, bounds DeltaOptions) (out CheckpointFile, err error) {
	files := newStore(dir, opts).opts.FS
	name := DeltaName(from, to)
	whole := files.PathJoin(to.Dir(files, dir), name)
	if info, err := files.Stat(whole); err == nil {
		return CheckpointFile{name, info.Size()}, nil
	}
	// The checkpoints may be removed meanwhile: Pebble ends the process if a table vanishes.
	work := DeltaDir(dir)
	if err := errors.Join(files.RemoveAll(work), fsync.MakeDir(files, work)); err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, files.RemoveAll(work)) }()
	stores := make([]*ReadOnly, 2)
	for i, c := range []Checkpoint{from, to} {
		link := files.PathJoin(work, c.name())
		if err := linkCheckpoint(files, dir, c, link); err != nil {
			return out, err
		}
		if stores[i], err = OpenCheckpoint(link, opts); err != nil {
			return out, err
		}
		defer func() { err = errors.Join(err, stores[i].Close()) }()
		if at := stores[i].Status().Applied; at != c.Index {
			return out, &DamagedError{stores[i].dir, fmt.Errorf("it is at index %d, not at %d", at, c.Index)}
		}
	}
	part := files.PathJoin(work, name)
	size, err := writeDelta(files, part, stores[0], stores[1], bounds)
	if err != nil {
		return out, err
	}
	return CheckpointFile{name, size}, files.Rename(part, whole)
}

// linkCheckpoint makes a folder with the files of a checkpoint.
func linkCheckpoint(files vfs.FS, dir string, c Checkpoint, link string) error {
	list, err := CheckpointFiles(files, dir, c)
	if err == nil {
		err = files.MkdirAll(link, 0o755)
	}
	for _, f := range list {
		err = errors.Join(err, files.Link(files.PathJoin(c.Dir(files, dir), f.Name), files.PathJoin(link, f.Name)))
	}
	return err
}

// writeDelta writes a table of what differs, and syncs it.
func writeDelta(files vfs.FS, path string, from, to *ReadOnly, bounds DeltaOptions) (size int64, err error) {
	f, err := files.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return 0, err
	}
	o := &pebble.Options{FormatMajorVersion: format}
	o.EnsureDefaults()
	w := sstable.NewWriter(objstorageprovider.NewFileWritable(f), o.MakeWriterOptions(0, format.MaxTableFormat()))
	rows := 0
	check := func() error {
		if rows++; rows%deltaCheck != 1 {
			return nil
		}
		if bounds.Stop != nil {
			if err := bounds.Stop(); err != nil {
				return err
			}
		}
		size := int64(w.Raw().EstimatedSize())
		if bounds.Limit > 0 && size > bounds.Limit {
			return &DeltaLimitError{size, bounds.Limit}
		}
		if bounds.Spare != nil { // also without a change: the work keeps the tables of both checkpoints
			return bounds.Spare(1 << 20)
		}
		return nil
	}
	err = diffRows(from, to, check, w.Set, w.Delete)
	if err = errors.Join(err, w.Close()); err != nil {
		return 0, err
	}
	info, err := files.Stat(path)
	if err != nil {
		return 0, err
	}
	if bounds.Limit > 0 && info.Size() > bounds.Limit {
		return 0, &DeltaLimitError{info.Size(), bounds.Limit}
	}
	return info.Size(), nil
}

// diffRows calls put and remove, in the order of keys, for what leads from one state to another. It calls each for every
// row that it reads.
func diffRows(from, to *ReadOnly, each func() error, put func(key, value []byte) error, remove func(key []byte) error) (err error) {
	var at [2]*pebble.Iterator
	for i, r := range []*ReadOnly{from, to} {
		if at[i], err = r.db.NewIter(nil); err != nil {
			return &DamagedError{r.dir, err}
		}
		defer func() {
			if closed := at[i].Close(); closed != nil { // a damaged table has ended the iteration
				err = errors.Join(err, &DamagedError{r.dir, closed})
			}
		}()
	}
	a, b := at[0], at[1]
	a.First()
	b.First()
	for a.Valid() || b.Valid() {
		if err := each(); err != nil {
			return err
		}
		order := 0
		switch {
		case !b.Valid():
			order = -1
		case !a.Valid():
			order = 1
		default:
			order = bytes.Compare(a.Key(), b.Key())
		}
		switch {
		case order < 0:
			err = remove(a.Key())
		case order > 0 || !bytes.Equal(a.Value(), b.Value()):
			err = put(b.Key(), b.Value())
		}
		if err != nil {
			return err
		}
		if order <= 0 {
			a.Next()
		}
		if order >= 0 {
			b.Next()
		}
	}
	return nil
}

// ApplyDelta makes a copy of a checkpoint at one index into that at another. path is a delta between the two, on the same
// file system, and ingest adds it to a database: (*pebble.DB).Ingest does, which moves it. No process may have the store
// open. Options: FS, Cache, Logger. A store at another index is refused before anything changes. Errors: *DamagedError.
func ApplyDelta(dir, path string, from, to uint64, ingest func(db *pebble.DB, path string) error, opts Options) (err error) {
	opts.anyStamp, opts.Create, opts.OnFatal = true, false, func(error) {} // the returned errors say the same
	if opts.Logger == nil {
		opts.Logger = fatalOnly{pebble.DefaultLogger}
	}
	s := newStore(dir, opts)
	db, err := s.openPebble(dir, false)
	if err != nil {
		return s.damaged(err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	at := func(want uint64) error {
		have, err := state.MetaNumber(view{db}, state.MetaApplied)
		switch {
		case err != nil:
			return s.damaged(err)
		case have != want:
			return s.damaged(fmt.Errorf("it is at index %d, not at %d", have, want))
		}
		return nil
	}
	if err := at(from); err != nil {
		return err
	}
	if err := ingest(db, path); err != nil {
		return s.damaged(err)
	}
	return at(to)
}
