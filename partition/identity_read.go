package partition

import (
	"github.com/cockroachdb/pebble/v2/vfs"
)

// ReadIdentity reads whose data directory this is, and changes nothing. Errors: one that wraps
// fs.ErrNotExist if there is no such directory; *IdentityError if it holds no node's data, or if what it
// holds was never finished or cannot be believed.
func ReadIdentity(dir string) (Identity, error) {
	files := vfs.Default
	if _, err := files.Stat(dir); err != nil {
		return Identity{}, err
	}
	path := files.PathJoin(dir, identityFile)
	id, found, err := readIdentity(files, dir)
	switch {
	case err != nil:
		return Identity{}, err
	case !found:
		return Identity{}, &IdentityError{path, "is missing: this is not a node's data directory, or not a whole one"}
	case !id.Ready:
		return Identity{}, &IdentityError{path, "the directory was never finished: no node has served from it"}
	case id.Partitions == 0:
		return Identity{}, &IdentityError{path, "damaged: it says 0 partitions"}
	}
	return id, nil
}

// StateStore is where one partition's state is kept, and the mark that says whose it is.
type StateStore struct {
	Partition uint32
	Dir       string
	Stamp     []byte
}

// StateStores lists the states of all partitions in a data directory with this identity, in their order.
func (id Identity) StateStores(dir string) []StateStore {
	out := make([]StateStore, id.Partitions)
	for p := range id.Partitions {
		name := stateDir(p)
		out[p] = StateStore{Partition: p, Dir: vfs.Default.PathJoin(dir, name), Stamp: id.Stamp(name)}
	}
	return out
}
