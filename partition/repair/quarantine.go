package repair

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm"
	"perdure/internal/fsync"
	"perdure/partition/identity"
)

// quarantinedName is the name of a former replica's folder: kept-PARTITION-TIME. Nothing else in a data
// directory has such a name, and no store is opened by one.
var quarantinedName = regexp.MustCompile(`^kept-([0-9]{4,10})-[0-9]{8}T[0-9]{6}\.[0-9]{3}$`)

// namePrefix is how the names of a partition's quarantined states begin.
func namePrefix(p uint32) string { return fmt.Sprintf("kept-%04d-", p) }

// Quarantine manages the former replicas in a data directory. Their files do not change, so each is measured
// once. It drops a folder that was deleted by hand. Its methods may be called concurrently.
type Quarantine struct {
	fs  vfs.FS
	dir string

	mu  sync.Mutex
	all []*perdurev1.QuarantinedReplica // by name
}

// OpenQuarantine finds the former replicas in a data directory.
func OpenQuarantine(fs vfs.FS, dir string) (*Quarantine, error) {
	s := &Quarantine{fs: fs, dir: dir}
	names, err := fs.List(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if err := s.add(name); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// add takes note of a folder, if it is a former replica.
func (s *Quarantine) add(name string) error {
	m := quarantinedName.FindStringSubmatch(name)
	if m == nil {
		return nil
	}
	p, err := strconv.ParseUint(m[1], 10, 32)
	if err != nil || namePrefix(uint32(p)) != name[:len(m[1])+len("kept--")] {
		return nil // not a name that this program gives
	}
	bytes, err := sizeOf(s.fs, s.fs.PathJoin(s.dir, name))
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, &perdurev1.QuarantinedReplica{Partition: uint32(p), Name: name, Bytes: bytes})
	slices.SortFunc(s.all, func(a, b *perdurev1.QuarantinedReplica) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// moveAside quarantines a partition's state, if there is one. Earlier quarantined states stay: they may be
// the evidence.
func (s *Quarantine) moveAside(p uint32, now time.Time) error {
	state := s.fs.PathJoin(s.dir, identity.StateDir(p))
	if _, err := s.fs.Stat(state); err != nil {
		if errors.Is(err, iofs.ErrNotExist) {
			return nil
		}
		return err
	}
	// The checkpoints of a state that is not trusted are not, either.
	if err := errors.Join(s.fs.RemoveAll(fsm.CutsDir(state)), s.fs.RemoveAll(fsm.DeltaDir(state))); err != nil {
		return err
	}
	name := namePrefix(p) + now.UTC().Format("20060102T150405.000")
	if err := s.fs.Rename(state, s.fs.PathJoin(s.dir, name)); err != nil {
		return err
	}
	return errors.Join(fsync.SyncDir(s.fs, s.dir), s.add(name))
}

// sizeOf is what the files in a folder take.
func sizeOf(fs vfs.FS, path string) (bytes uint64, err error) {
	info, err := fs.Stat(path)
	if err != nil {
		return 0, err
	}
	if !info.IsDir() {
		return uint64(max(info.Size(), 0)), nil
	}
	names, err := fs.List(path)
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		b, err := sizeOf(fs, fs.PathJoin(path, name))
		if err != nil {
			return 0, err
		}
		bytes += b
	}
	return bytes, nil
}

// List returns the former replicas, by partition and time. It reads the disk only if there were any.
func (s *Quarantine) List() []*perdurev1.QuarantinedReplica {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(k *perdurev1.QuarantinedReplica) bool {
		_, err := s.fs.Stat(s.fs.PathJoin(s.dir, k.Name))
		return err != nil && errors.Is(err, iofs.ErrNotExist)
	})
	return slices.Clone(s.all)
}

// Bytes is the size of a partition's former replicas; 0 for a nil Quarantine.
func (s *Quarantine) Bytes(p uint32) (sum uint64) {
	if s == nil {
		return 0
	}
	for _, k := range s.List() {
		if k.Partition == p {
			sum += k.Bytes
		}
	}
	return sum
}

// forget deletes the former replicas of a partition: the one of that name, or all.
func (s *Quarantine) forget(p uint32, name string) (forgotten []*perdurev1.QuarantinedReplica, err error) {
	for _, k := range s.List() {
		if k.Partition != p || name != "" && k.Name != name {
			continue
		}
		if err := s.fs.RemoveAll(s.fs.PathJoin(s.dir, k.Name)); err != nil {
			return forgotten, errors.Join(err, fsync.SyncDir(s.fs, s.dir))
		}
		forgotten = append(forgotten, k)
	}
	if len(forgotten) == 0 {
		return nil, nil
	}
	return forgotten, fsync.SyncDir(s.fs, s.dir)
}
