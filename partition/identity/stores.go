package identity

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"perdure/internal/fsync"
)

// The stores of a data directory that all groups share.
const (
	RaftLogDir = "raft-log"
	StableFile = "raft-stable.db"
)

// StateDir names the folder of a partition's state.
func StateDir(partition uint32) string { return fmt.Sprintf("state-%04d", partition) }

// MarkerDir names the folder of a partition's snapshot markers.
func MarkerDir(partition uint32) string { return fmt.Sprintf("markers-%04d", partition) }

func isStoreName(name string) bool {
	return name == RaftLogDir || name == StableFile ||
		len(name) > len("state-") && strings.HasPrefix(name, "state-") ||
		len(name) > len("markers-") && strings.HasPrefix(name, "markers-")
}

// StateStore is the folder of one partition's state, with the mark of its owner.
type StateStore struct {
	Partition uint32
	Dir       string
	Stamp     []byte
}

// StateStores lists the states of all partitions in a data directory with this identity, in their order.
func (id Identity) StateStores(dir string) []StateStore {
	out := make([]StateStore, id.Partitions)
	for p := range id.Partitions {
		name := StateDir(p)
		out[p] = StateStore{Partition: p, Dir: vfs.Default.PathJoin(dir, name), Stamp: id.Stamp(name)}
	}
	return out
}

// ForeignError reports that a store belongs to another cluster, server or partition, or has no owner. A state
// store says so with *fsm.ForeignError.
type ForeignError struct {
	Path       string
	Have, Want []byte // Have is empty for a store without a stamp
}

func (e *ForeignError) Error() string {
	if len(e.Have) == 0 {
		return fmt.Sprintf("partition: store %s has no stamp, this node expects %q", e.Path, e.Want)
	}
	return fmt.Sprintf("partition: store %s is stamped %q, this node expects %q: it belongs elsewhere", e.Path, e.Have, e.Want)
}

// A Stamped store keeps the stamp of its owner.
type Stamped interface {
	Stamp() ([]byte, bool)
	SetStamp([]byte) error
}

// Check stamps a new store, or refuses with a *ForeignError an existing one that is not this server's. name is that
// of the store in the data directory, path is for the error.
func (id Identity) Check(s Stamped, name, path string, creating bool) error {
	want := id.Stamp(name)
	if creating {
		return s.SetStamp(want)
	}
	if have, _ := s.Stamp(); string(have) != string(want) {
		return &ForeignError{path, have, want}
	}
	return nil
}

// StampFile is the file that holds the stamp of a folder whose store cannot hold one.
const StampFile = "STAMP"

// StampedDir is a folder whose stamp is the file StampFile in it.
type StampedDir struct {
	FS  vfs.FS
	Dir string
}

// Stamp implements Stamped.
func (d StampedDir) Stamp() ([]byte, bool) {
	f, err := d.FS.Open(d.FS.PathJoin(d.Dir, StampFile))
	if err != nil {
		return nil, false
	}
	b, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil || len(b) == 0 {
		return nil, false
	}
	return b, true
}

// SetStamp implements Stamped.
func (d StampedDir) SetStamp(b []byte) error {
	return fsync.WriteFile(d.FS, d.FS.PathJoin(d.Dir, StampFile), b)
}
