package identity

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"

	"perdure/fsm/state"
	"perdure/internal/fsync"
)

// Config is what the configuration says of a node; data that does not agree with it is refused.
type Config struct {
	// FS is vfs.Default if nil.
	FS     vfs.FS
	Dir    string
	NodeID string
	// Partitions is how many the cluster has; 0 accepts what the data says.
	Partitions uint32
	// Expect is how many members make a new cluster; 0 or 1 for a node that is alone.
	Expect uint32
	// FeatureLevel is the newest that this program knows; 0 for state.FeatureLevel.
	FeatureLevel uint64
}

// Cluster says of which cluster a node is a member. All but Expect is for a node without data; what the
// data says holds otherwise.
type Cluster struct {
	// Expect is how many members make a new cluster.
	Expect uint32
	// ClusterID and ServerID are drawn before: members find each other by them.
	ClusterID, ServerID string
	// Founders are the members of a new cluster, Founder that this node makes its directory. A server
	// that joins a cluster which is there has none.
	Founders []Founder
	Founder  bool
	// Since is the directory's epoch at which a server that joined became a member; 0 for founders.
	Since uint64
}

// Options are Open's.
type Options struct {
	Config
	// Cluster is nil for a node that is alone; its Expect holds.
	Cluster *Cluster
	// NewPartitions is how many partitions a node alone makes if Config.Partitions is 0.
	NewPartitions uint32
	LogStore      string
	Rand          io.Reader // of cluster and server ids
}

// Open reads who a node is, or decides it and notes it durably. creating is true if its stores are to be made: what
// was left of an unfinished making is removed, since nothing was served from it. Errors are those of Find and of the
// disk.
func Open(o Options) (f *File, creating bool, err error) {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Expect = 0; o.Cluster != nil {
		o.Expect = o.Cluster.Expect
	}
	if err := fsync.MakeDir(o.FS, o.Dir); err != nil {
		return nil, false, fmt.Errorf("data directory %s: %w", o.Dir, err)
	}
	id, found, err := Find(o.Config)
	if err != nil {
		return nil, false, err
	}
	if found && id.Ready {
		return &File{fs: o.FS, dir: o.Dir, id: id}, false, nil
	}
	if !found || id.Alone() { // else the others know this server already; its stores are made again
		if id, err = o.decide(); err != nil {
			return nil, false, err
		}
	}
	if err := sweep(o.FS, o.Dir); err != nil {
		return nil, false, err
	}
	return &File{fs: o.FS, dir: o.Dir, id: id}, true, write(o.FS, o.Dir, id)
}

// decide makes a new identity.
func (o *Options) decide() (id Identity, err error) {
	if c := o.Cluster; c != nil {
		return Identity{ClusterID: c.ClusterID, ServerID: c.ServerID, NodeID: o.NodeID, Partitions: o.Partitions, LogStore: o.LogStore,
			Expect: c.Expect, Founders: c.Founders, Founder: c.Founder, Since: c.Since}, nil
	}
	id = Identity{NodeID: o.NodeID, Partitions: o.Partitions, LogStore: o.LogStore}
	if id.Partitions == 0 {
		id.Partitions = o.NewPartitions
	}
	if id.ClusterID, err = DrawClusterID(o.Rand); err != nil {
		return id, err
	}
	id.ServerID, err = DrawServerID(o.Rand, o.NodeID)
	return id, err
}

// sweep removes the stores of a directory whose creation was interrupted.
func sweep(files vfs.FS, dir string) error {
	names, err := files.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if isStoreName(name) {
			if err := files.RemoveAll(files.PathJoin(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Find reads the identity of the data directory that cfg names and changes nothing. found is false for a
// directory without data, or without any. An identity that is not Ready was never finished; a member of a
// cluster resumes with it. Errors: *Error if data and configuration do not agree, or the file is not valid;
// *ReplacedError.
func Find(cfg Config) (id Identity, found bool, err error) {
	files := cfg.FS
	if files == nil {
		files = vfs.Default
	}
	path := files.PathJoin(cfg.Dir, FileName)
	id, found, err = read(files, cfg.Dir)
	if err != nil {
		return Identity{}, false, err
	}
	refuse := func(format string, args ...any) error {
		return &Error{path, fmt.Sprintf(format, args...)}
	}
	switch {
	case found && (id.Ready || !id.Alone()):
		switch {
		case cfg.Partitions != 0 && cfg.Partitions != id.Partitions:
			return id, true, refuse("the data has %d partitions, the configuration says %d; their number is fixed when the cluster is made", id.Partitions, cfg.Partitions)
		case cfg.NodeID != id.NodeID:
			return id, true, refuse("the data belongs to node %q, the configuration says %q", id.NodeID, cfg.NodeID)
		case id.Alone() && cfg.Expect > 1:
			return id, true, refuse("the data is that of a node that is its cluster's only member; it cannot become one of %d (--bootstrap-expect)", cfg.Expect)
		case !id.Alone() && cfg.Expect <= 1:
			return id, true, refuse("the data is that of one of %d members; start the node with --bootstrap-expect %d and --join", id.Expect, id.Expect)
		case !id.Alone() && cfg.Expect != id.Expect:
			return id, true, refuse("the data is that of one of %d members, the configuration says %d (--bootstrap-expect)", id.Expect, cfg.Expect)
		}
		if known := cmp.Or(cfg.FeatureLevel, state.FeatureLevel); id.FeatureLevel > known {
			return id, true, fmt.Errorf("data directory %s: %w", cfg.Dir,
				&state.LevelError{What: "cluster " + id.ClusterID, Level: id.FeatureLevel, Known: known})
		}
		return id, true, id.Replaced(cfg.Dir)
	case found:
		return id, true, nil
	}
	// Stores without an identity are a node's data, not a beginning.
	names, err := files.List(cfg.Dir)
	if err != nil {
		if _, statErr := files.Stat(cfg.Dir); errors.Is(statErr, fs.ErrNotExist) {
			return Identity{}, false, nil
		}
		return Identity{}, false, err
	}
	for _, name := range names {
		if isStoreName(name) {
			return Identity{}, false, refuse("is missing, but the directory holds %s: restore the file, or start with an empty directory", name)
		}
	}
	return Identity{}, false, nil
}

// Read reads the identity of a finished data directory and changes nothing. Errors: one that wraps
// fs.ErrNotExist if there is no such directory; *Error if it holds no node's data, or if its identity was
// never finished or is not valid.
func Read(dir string) (Identity, error) {
	files := vfs.Default
	if _, err := files.Stat(dir); err != nil {
		return Identity{}, err
	}
	path := files.PathJoin(dir, FileName)
	id, found, err := read(files, dir)
	switch {
	case err != nil:
		return Identity{}, err
	case !found:
		return Identity{}, &Error{path, "is missing: this is not a node's data directory, or not a whole one"}
	case !id.Ready:
		return Identity{}, &Error{path, "the directory was never finished: no node has served from it"}
	case id.Partitions == 0:
		return Identity{}, &Error{path, "damaged: it says 0 partitions"}
	}
	return id, nil
}

// DrawClusterID draws the id of a new cluster.
func DrawClusterID(rand io.Reader) (string, error) { return draw(rand, 16) }

// DrawServerID draws the id of a new server of a node.
func DrawServerID(rand io.Reader, nodeID string) (string, error) {
	incarnation, err := draw(rand, 8)
	return nodeID + "-" + incarnation, err
}

func draw(rand io.Reader, n int) (string, error) {
	b := make([]byte, n)
	if _, err := io.ReadFull(rand, b); err != nil {
		return "", err
	}
	return hex.EncodeToString(b), nil
}
