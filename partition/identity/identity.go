package identity

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"reflect"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	commandv1 "perdure/api/command/v1"
	"perdure/internal/fsync"
)

// Identity names a node's cluster, server and stores. It is written when the data directory is made and stamped in
// every store.
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
	// Since is the directory's epoch at which this server is known to have been a member; 0 if not known yet.
	Since uint64 `json:"since,omitempty"`
	// FeatureLevel is the cluster's, as far as this server has noted it; a program that does not know it
	// refuses to start.
	FeatureLevel uint64 `json:"feature_level,omitempty"`
	// Successor has replaced this server: nothing is ever served from this directory again. It stays nil as
	// long as the server has not learned of one.
	Successor *Successor `json:"successor,omitempty"`
}

// A Founder is one of the servers that have made a cluster.
type Founder struct {
	NodeID   string `json:"node_id"`
	ServerID string `json:"server_id"`
	PeerAddr string `json:"peer_addr"`
}

// Member is the founder as the directory lists it.
func (f Founder) Member() *commandv1.DirectoryMember {
	return &commandv1.DirectoryMember{NodeId: f.NodeID, ServerId: f.ServerID, PeerAddr: f.PeerAddr}
}

// Successor is what a data directory notes when its server was replaced.
type Successor struct {
	ServerID string `json:"server_id"`
	PeerAddr string `json:"peer_addr"`
	// Epoch is that of the directory which said so.
	Epoch uint64 `json:"epoch"`
}

// Alone reports whether the node is its cluster's only member.
func (id Identity) Alone() bool { return id.Expect <= 1 }

// Stamp marks a store as this server's.
func (id Identity) Stamp(store string) []byte {
	return []byte(id.ClusterID + "/" + id.ServerID + "/" + store)
}

// Replaced returns a *ReplacedError if the identity of dataDir notes a successor, else nil.
func (id Identity) Replaced(dataDir string) error {
	if id.Successor == nil {
		return nil
	}
	return &ReplacedError{ClusterID: id.ClusterID, NodeID: id.NodeID, ServerID: id.ServerID,
		Successor: id.Successor.ServerID, Addr: id.Successor.PeerAddr, Epoch: id.Successor.Epoch, DataDir: dataDir}
}

// ReplacedError reports that the cluster has made another server the member for this node: the node came back
// with a new data directory, so the data of this one is obsolete. The server answers no call once it knows,
// and every later start refuses its data directory.
type ReplacedError struct {
	ClusterID, NodeID string
	// ServerID is the server that was replaced: this one.
	ServerID string
	// Successor has replaced it, Addr is its peer address.
	Successor, Addr string
	// Epoch is that of the directory which says so.
	Epoch   uint64
	DataDir string
}

func (e *ReplacedError) Error() string {
	return fmt.Sprintf("node %s: this server (%s) has been replaced by server %s at %s, by the directory of cluster %s (epoch %d): "+
		"it does not serve any more. Remove its data directory %s or keep it aside, and run node %s with the data of %s only",
		e.NodeID, e.ServerID, e.Successor, e.Addr, e.ClusterID, e.Epoch, e.DataDir, e.NodeID, e.Successor)
}

// FileName is the name of the identity's file in a data directory.
const FileName = "IDENTITY"

// Error reports that the identity file cannot be believed.
type Error struct {
	Path   string
	Detail string
}

func (e *Error) Error() string {
	return fmt.Sprintf("partition: identity file %s: %s", e.Path, e.Detail)
}

// File is the identity of a data directory in use. Its methods may be called concurrently.
type File struct {
	fs  vfs.FS
	dir string

	mu sync.Mutex
	id Identity
}

// Identity returns the identity as it is on disk.
func (f *File) Identity() Identity {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.id
}

// Update changes the identity durably. It writes nothing if change changes nothing.
func (f *File) Update(change func(*Identity)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := f.id
	change(&id)
	if reflect.DeepEqual(id, f.id) {
		return nil
	}
	if err := write(f.fs, f.dir, id); err != nil {
		return err
	}
	f.id = id
	return nil
}

// record is the file's content. The checksum covers the identity as it is written, not as this program understands
// it: a later program may have written more.
type record struct {
	Identity json.RawMessage `json:"identity"`
	Checksum string          `json:"checksum"`
}

func checksum(id json.RawMessage) (string, error) {
	var b bytes.Buffer
	err := json.Compact(&b, id)
	return fmt.Sprintf("%016x", xxhash.Sum64(b.Bytes())), err
}

// read finds the identity of a data directory; ok is false if it has none.
func read(files vfs.FS, dir string) (id Identity, ok bool, err error) {
	path := files.PathJoin(dir, FileName)
	f, err := files.Open(path)
	if err != nil {
		if _, statErr := files.Stat(path); errors.Is(statErr, fs.ErrNotExist) {
			return Identity{}, false, nil
		}
		return Identity{}, false, err
	}
	b, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return Identity{}, false, err
	}
	var rec record
	if err := json.Unmarshal(b, &rec); err != nil {
		return Identity{}, false, &Error{path, "damaged: " + err.Error()}
	}
	sum, err := checksum(rec.Identity)
	if err != nil || sum != rec.Checksum {
		return Identity{}, false, &Error{path, "damaged: its checksum does not match"}
	}
	if err := json.Unmarshal(rec.Identity, &id); err != nil {
		return Identity{}, false, &Error{path, "damaged: " + err.Error()}
	}
	return id, true, nil
}

// write replaces the identity durably.
func write(files vfs.FS, dir string, id Identity) error {
	raw, err := json.Marshal(id)
	if err != nil {
		return err
	}
	sum, err := checksum(raw)
	if err != nil {
		return err
	}
	b, err := json.MarshalIndent(record{raw, sum}, "", "  ")
	if err != nil {
		return err
	}
	return fsync.WriteFile(files, files.PathJoin(dir, FileName), append(b, '\n'))
}
