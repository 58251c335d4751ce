package fsm

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"perdure/internal/fsync"
)

// keptCuts is how many checkpoints a store keeps, the newest ones.
const keptCuts = 2

// oldSuffix ends the name of a checkpoint that is being removed.
const oldSuffix = ".old"

// CutsDir is the folder of a state store's checkpoints, next to the store:
//
//	STATE.cuts/CUT-INDEX        a whole checkpoint: a Pebble store without a log
//	STATE.cuts/CUT-INDEX.tmp    one that is being made; .old: one that is being removed
//	STATE.cuts/CUT-INDEX/delta-…  what MakeDelta has made of it and an earlier one
//
// A checkpoint shares its tables with the store by hard links.
func CutsDir(dir string) string { return dir + ".cuts" }

// Checkpoint is the state in which a partition entered a cut, at a Raft index.
type Checkpoint struct{ Cut, Index uint64 }

func (c Checkpoint) name() string { return fmt.Sprintf("%d-%d", c.Cut, c.Index) }

// Dir is the checkpoint's folder, of a store in dir.
func (c Checkpoint) Dir(files vfs.FS, dir string) string {
	return files.PathJoin(CutsDir(dir), c.name())
}

// Checkpoints lists the whole checkpoints of the store in dir, oldest cut first.
func Checkpoints(files vfs.FS, dir string) (out []Checkpoint, err error) {
	names, err := files.List(CutsDir(dir))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	for _, name := range names {
		of, at, _ := strings.Cut(name, "-")
		n, err := strconv.ParseUint(of, 10, 64)
		index, err2 := strconv.ParseUint(at, 10, 64)
		if c := (Checkpoint{n, index}); err == nil && err2 == nil && c.name() == name {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b Checkpoint) int { return cmp.Or(cmp.Compare(a.Cut, b.Cut), cmp.Compare(a.Index, b.Index)) })
	return out, nil
}

// RemoveCheckpoint removes a checkpoint of the store in dir. Files of it that are open stay readable.
func RemoveCheckpoint(files vfs.FS, dir string, c Checkpoint) error {
	whole := c.Dir(files, dir)
	old := whole + oldSuffix
	if err := files.RemoveAll(old); err != nil {
		return err
	}
	if err := files.Rename(whole, old); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	// A crash leaves the whole checkpoint or none.
	return errors.Join(fsync.SyncDir(files, CutsDir(dir)), files.RemoveAll(old))
}

// CheckpointFile is a file of a checkpoint, with its size in bytes.
type CheckpointFile struct {
	Name string
	Size int64
}

// CheckpointFiles lists the files of a checkpoint, by name, without deltas. The error is fs.ErrNotExist if it was removed meanwhile.
func CheckpointFiles(files vfs.FS, dir string, c Checkpoint) (out []CheckpointFile, err error) {
	whole := c.Dir(files, dir)
	names, err := files.List(whole)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		info, err := files.Stat(files.PathJoin(whole, name))
		if err != nil {
			return nil, err
		}
		if !info.IsDir() && name != "LOCK" && !IsDelta(name) {
			out = append(out, CheckpointFile{name, info.Size()})
		}
	}
	slices.SortFunc(out, func(a, b CheckpointFile) int { return strings.Compare(a.Name, b.Name) })
	// A removal begins with another name for the folder: nothing was missing from the list.
	_, err = files.Stat(whole)
	return out, err
}

// OpenCheckpoint opens a copy of a checkpoint as OpenReadOnly does a store, whichever partition it is of; it needs no
// Stamp.
func OpenCheckpoint(dir string, opts Options) (*ReadOnly, error) {
	opts.anyStamp = true
	return OpenReadOnly(dir, opts)
}

// checkpoint keeps the state behind the last entry as the checkpoint of a cut, and removes older ones. What fails here
// fails the cut, not the store. It blocks on the disk.
func (s *Store) checkpoint(n uint64) {
	c := Checkpoint{n, s.machine.Applied()}
	err := s.makeCheckpoint(c)
	if err == nil {
		err = s.removeCheckpoints(keptCuts)
	}
	if s.opts.OnCheckpoint != nil {
		s.opts.OnCheckpoint(c, err)
	}
}

func (s *Store) makeCheckpoint(c Checkpoint) error {
	if s.opts.Spare != nil {
		if err := s.opts.Spare(2 * int64(s.opts.MemTableBytes)); err != nil {
			return err
		}
	}
	files, whole := s.opts.FS, c.Dir(s.opts.FS, s.dir)
	part := whole + fsync.TmpSuffix
	if err := errors.Join(files.RemoveAll(part), RemoveCheckpoint(files, s.dir, c)); err != nil {
		return err
	}
	if err := fsync.MakeDir(files, CutsDir(s.dir)); err != nil {
		return err
	}
	if err := s.read(func(db *pebble.DB) error {
		if err := s.flush(db); err != nil { // there is no log: a checkpoint has what the tables have
			return err
		}
		return db.Checkpoint(part)
	}); err != nil {
		return errors.Join(err, files.RemoveAll(part))
	}
	return errors.Join(files.Rename(part, whole), fsync.SyncDir(files, CutsDir(s.dir)))
}

// removeCheckpoints removes all but the newest checkpoints, and what a crash has left of others.
func (s *Store) removeCheckpoints(keep int) error {
	names, err := s.opts.FS.List(CutsDir(s.dir))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	for _, name := range names {
		if strings.HasSuffix(name, fsync.TmpSuffix) || strings.HasSuffix(name, oldSuffix) {
			err = errors.Join(err, s.opts.FS.RemoveAll(s.opts.FS.PathJoin(CutsDir(s.dir), name)))
		}
	}
	all, err2 := Checkpoints(s.opts.FS, s.dir)
	if err = errors.Join(err, err2); err != nil {
		return err
	}
	for _, c := range all[:max(len(all)-keep, 0)] {
		err = errors.Join(err, RemoveCheckpoint(s.opts.FS, s.dir, c))
	}
	return err
}
