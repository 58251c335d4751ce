package partition

import (
	"encoding/hex"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// FindIdentity reads whose data directory cfg names, and refuses one that does not agree with cfg. found is
// false for a directory without data, or without any. One whose server was replaced is a *ReplacedError. An identity that is not Ready was never finished;
// a member of a cluster goes on with it.
func FindIdentity(cfg Config) (id Identity, found bool, err error) {
	fs := cfg.FS
	if fs == nil {
		fs = vfs.Default
	}
	path := fs.PathJoin(cfg.DataDir, identityFile)
	id, found, err = readIdentity(fs, cfg.DataDir)
	if err != nil {
		return Identity{}, false, err
	}
	refuse := func(format string, args ...any) error {
		return &IdentityError{path, fmt.Sprintf(format, args...)}
	}
	expect := uint32(0)
	if cfg.Cluster != nil {
		expect = cfg.Cluster.Expect
	}
	switch {
	case found && (id.Ready || !id.alone()):
		switch {
		case cfg.Partitions != 0 && cfg.Partitions != id.Partitions:
			return id, true, refuse("the data has %d partitions, the configuration says %d; their number is fixed when the cluster is made", id.Partitions, cfg.Partitions)
		case cfg.NodeID != id.NodeID:
			return id, true, refuse("the data belongs to node %q, the configuration says %q", id.NodeID, cfg.NodeID)
		case id.alone() && expect > 1:
			return id, true, refuse("the data is that of a node that is its cluster's only member; it cannot become one of %d (--bootstrap-expect)", expect)
		case !id.alone() && expect <= 1:
			return id, true, refuse("the data is that of one of %d members; start the node with --bootstrap-expect %d and --join", id.Expect, id.Expect)
		case !id.alone() && expect != id.Expect:
			return id, true, refuse("the data is that of one of %d members, the configuration says %d (--bootstrap-expect)", id.Expect, expect)
		}
		return id, true, id.replaced(cfg.DataDir)
	case found:
		return id, true, nil
	}
	// Stores without an identity are somebody's data, not a beginning.
	names, err := fs.List(cfg.DataDir)
	if err != nil {
		if _, statErr := fs.Stat(cfg.DataDir); statErr != nil && isNotExist(statErr) {
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

// DrawClusterID is the id of a new cluster.
func DrawClusterID(rand io.Reader) (string, error) { return draw(rand, 16) }

// DrawServerID is the id of a new server of a node.
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
