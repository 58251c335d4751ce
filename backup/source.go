package backup

import (
	"context"
	"errors"
	"fmt"
	"io"

	perdurev1 "perdure/api/perdure/v1"
)

// Cut is a cut of a cluster whose checkpoints can be copied.
type Cut struct {
	Number uint64 `json:"number"`
	// Cluster is the cluster's id; empty of a node alone.
	Cluster     string       `json:"cluster"`
	Partitions  uint32       `json:"partitions"`
	Level       uint64       `json:"level"`
	Checkpoints []Checkpoint `json:"checkpoints"`
}

// Checkpoint is one partition's state in a cut, on the disk of one node. Those of one partition have the same rows and
// not the same files.
type Checkpoint struct {
	Partition uint32 `json:"partition"`
	Node      string `json:"node"`
	Address   string `json:"address"`
	Index     uint64 `json:"index"`
}

// Listed is a file of a checkpoint.
type Listed struct {
	Name string
	Size int64
}

// Base is a state that a backup has and from which a later one differs by a delta.
type Base struct{ Cut, Index uint64 }

// ErrDeltaTooLarge says that a delta has more bytes than the caller wants.
var ErrDeltaTooLarge = errors.New("the delta has more bytes than the limit")

// CutOf is the answer to Backups.Cut.
func CutOf(resp *perdurev1.CutResponse) Cut {
	cut := Cut{Number: resp.GetCut(), Cluster: resp.GetCluster(), Partitions: resp.GetPartitions(), Level: resp.GetLevel()}
	for _, at := range resp.GetCheckpoints() {
		cut.Checkpoints = append(cut.Checkpoints, Checkpoint{Partition: at.GetPartition(), Node: at.GetNode(), Address: at.GetAddress(), Index: at.GetIndex()})
	}
	return cut
}

// ListedOf is the answer to Backups.List.
func ListedOf(resp *perdurev1.ListFilesResponse) (files []Listed) {
	for _, f := range resp.GetFiles() {
		files = append(files, Listed{Name: f.GetName(), Size: int64(f.GetSize())})
	}
	return files
}

// Source is the cluster that is copied. It is safe for concurrent use. Every call ends within a bound of its own.
type Source interface {
	// Cluster returns the cluster's id; "" of a node alone.
	Cluster(ctx context.Context) (string, error)
	// Cut has all partitions enter a new cut.
	Cut(ctx context.Context) (Cut, error)
	// List returns a checkpoint's index and files. The error is a *GoneError if the node does not have it.
	List(ctx context.Context, cut uint64, at Checkpoint) (index uint64, files []Listed, err error)
	// Read opens a file at an offset. A node that does not have it is a *GoneError, here or when it is read.
	Read(ctx context.Context, cut uint64, at Checkpoint, name string, offset int64) (io.ReadCloser, error)
	// Hash has the node compute a file's hash in the form of File.SHA256.
	Hash(ctx context.Context, cut uint64, at Checkpoint, name string) (string, error)
	// Delta has the node write what leads from its checkpoint of an earlier cut to that of a cut into a file of at most
	// limit bytes, for Read and Hash. The error is a *GoneError if the node cannot, and ErrDeltaTooLarge.
	Delta(ctx context.Context, cut uint64, at Checkpoint, from Base, limit int64) (Listed, error)
	// Release removes a cut's checkpoints.
	Release(ctx context.Context, cut uint64) error
}

// GoneError says that a node has no checkpoint of a cut, or not this file.
type GoneError struct {
	Cut       uint64
	Partition uint32
	Node      string
	Err       error
}

func (e *GoneError) Error() string {
	return fmt.Sprintf("node %s has no checkpoint of partition %d in cut %d: %v", e.Node, e.Partition, e.Cut, e.Err)
}
func (e *GoneError) Unwrap() error { return e.Err }

// ReplicasError says that no replica of a partition could be copied, with the last error of each.
type ReplicasError struct {
	Cut       uint64
	Partition uint32
	Errs      []error
}

func (e *ReplicasError) Error() string {
	return fmt.Sprintf("partition %d cannot be copied from any of %d replicas in cut %d: %v", e.Partition, len(e.Errs), e.Cut, e.Errs)
}
func (e *ReplicasError) Unwrap() []error { return e.Errs }

// StoreError says that the store of the backups failed.
type StoreError struct {
	Object string
	Err    error
}

func (e *StoreError) Error() string { return fmt.Sprintf("cannot store %s: %v", e.Object, e.Err) }
func (e *StoreError) Unwrap() error { return e.Err }
