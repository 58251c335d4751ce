package partition

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	commandv1 "perdure/api/command/v1"
)

// Identity is who this node is and what its data directory holds. It is written when the directory is
// made and stamped in every store.
type Identity struct {
	ClusterID string `json:"cluster_id"`
	// ServerID is the node's id with an incarnation drawn when the directory was made: a wiped node comes
	// back as a new server.
	ServerID   string `json:"server_id"`
	NodeID     string `json:"node_id"`
	Partitions uint32 `json:"partitions"`
	LogStore   string `json:"log_store"`
	// Ready is false while the stores are being made; a crash before that loses nothing, since nothing
	// was served, and making them starts over.
	Ready bool `json:"ready"`
	// Expect is how many members have made the cluster; 0 for a node that is its cluster's only one.
	Expect uint32 `json:"expect,omitempty"`
	// Founders are those members, for a server that is one of them; Founder is the one that makes the
	// directory.
	Founders []Founder `json:"founders,omitempty"`
	Founder  bool      `json:"founder,omitempty"`
	// Member: the cluster's directory was there.
	Member bool `json:"member,omitempty"`
	// Since is the directory's epoch at which this server is known to have had its place; 0 if not known yet.
	Since uint64 `json:"since,omitempty"`
	// Successor has the server's place now: nothing is ever served from this directory again. It stays nil as
	// long as the server has not learned of one.
	Successor *Successor `json:"successor,omitempty"`
}

// A Founder is one of the servers that have made a cluster.
type Founder struct {
	NodeID   string `json:"node_id"`
	ServerID string `json:"server_id"`
	PeerAddr string `json:"peer_addr"`
}

func (f Founder) member() *commandv1.DirectoryMember {
	return &commandv1.DirectoryMember{NodeId: f.NodeID, ServerId: f.ServerID, PeerAddr: f.PeerAddr}
}

// alone says that the node is its cluster's only member.
func (id Identity) alone() bool { return id.Expect <= 1 }

// Stamp marks a store as this node's.
func (id Identity) Stamp(store string) []byte {
	return []byte(id.ClusterID + "/" + id.ServerID + "/" + store)
}

const identityFile = "IDENTITY"

// IdentityError says that the identity file cannot be believed.
type IdentityError struct {
	Path   string
	Detail string
}

func (e *IdentityError) Error() string {
	return fmt.Sprintf("partition: identity file %s: %s", e.Path, e.Detail)
}

// identityRecord is the file. The identity is summed as it is written, not as this program understands it: a
// later one may have written more.
type identityRecord struct {
	Identity json.RawMessage `json:"identity"`
	Checksum string          `json:"checksum"`
}

func identitySum(id json.RawMessage) (string, error) {
	var b bytes.Buffer
	err := json.Compact(&b, id)
	return fmt.Sprintf("%016x", xxhash.Sum64(b.Bytes())), err
}

// readIdentity finds the identity of a data directory; ok is false if it has none.
func readIdentity(fs vfs.FS, dir string) (id Identity, ok bool, err error) {
	path := fs.PathJoin(dir, identityFile)
	f, err := fs.Open(path)
	if err != nil {
		if _, statErr := fs.Stat(path); statErr != nil && isNotExist(statErr) {
			return Identity{}, false, nil
		}
		return Identity{}, false, err
	}
	b, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return Identity{}, false, err
	}
	var rec identityRecord
	if err := json.Unmarshal(b, &rec); err != nil {
		return Identity{}, false, &IdentityError{path, "damaged: " + err.Error()}
	}
	sum, err := identitySum(rec.Identity)
	if err != nil || sum != rec.Checksum {
		return Identity{}, false, &IdentityError{path, "damaged: its checksum does not match"}
	}
	if err := json.Unmarshal(rec.Identity, &id); err != nil {
		return Identity{}, false, &IdentityError{path, "damaged: " + err.Error()}
	}
	return id, true, nil
}

// makeDir makes a directory that a power loss does not take away again: the name of each one made is
// synced in the one above.
func makeDir(fs vfs.FS, dir string) error {
	above := fs.PathDir(dir)
	if _, err := fs.Stat(dir); err == nil || above == dir {
		return fs.MkdirAll(dir, 0o755)
	}
	if err := makeDir(fs, above); err != nil {
		return err
	}
	if err := fs.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return syncDir(fs, above)
}

// writeIdentity replaces the identity durably.
func writeIdentity(fs vfs.FS, dir string, id Identity) error {
	raw, err := json.Marshal(id)
	if err != nil {
		return err
	}
	sum, err := identitySum(raw)
	if err != nil {
		return err
	}
	b, err := json.MarshalIndent(identityRecord{raw, sum}, "", "  ")
	if err != nil {
		return err
	}
	tmp := fs.PathJoin(dir, identityFile+".tmp")
	f, err := fs.Create(tmp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if _, err = f.Write(append(b, '\n')); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := fs.Rename(tmp, fs.PathJoin(dir, identityFile)); err != nil {
		return err
	}
	return syncDir(fs, dir)
}

// ForeignError says that a store belongs to another cluster, server or partition, or to nobody. A state
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

// dirStamp is the stamp of a directory that has none of its own: a file in it.
type dirStamp struct {
	fs  vfs.FS
	dir string
}

const stampFile = "STAMP"

// Stamp implements stamped.
func (d dirStamp) Stamp() ([]byte, bool) {
	f, err := d.fs.Open(d.fs.PathJoin(d.dir, stampFile))
	if err != nil {
		return nil, false
	}
	b, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil || len(b) == 0 {
		return nil, false
	}
	return b, true
}

// SetStamp implements stamped.
func (d dirStamp) SetStamp(b []byte) error {
	f, err := d.fs.Create(d.fs.PathJoin(d.dir, stampFile), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if _, err = f.Write(b); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return syncDir(d.fs, d.dir)
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
