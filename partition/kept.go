package partition

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/fsync"
)

// keptName is what a folder with a former replica is called: kept-PARTITION-TIME. Nothing else in a data
// directory is called so, and no store is opened by such a name.
var keptName = regexp.MustCompile(`^kept-([0-9]{4,10})-[0-9]{8}T[0-9]{6}\.[0-9]{3}$`)

// keepPrefix is how the names of what is kept of a partition begin.
func keepPrefix(p uint32) string { return fmt.Sprintf("kept-%04d-", p) }

// keptSet knows which former replicas a node keeps aside. Their files do not change, so each is measured once;
// whoever deletes one by hand may do so.
type keptSet struct {
	fs  vfs.FS
	dir string

	mu  sync.Mutex
	all []*perdurev1.KeptReplica // by name
}

// findKept looks into a data directory.
func findKept(fs vfs.FS, dir string) (*keptSet, error) {
	s := &keptSet{fs: fs, dir: dir}
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
func (s *keptSet) add(name string) error {
	m := keptName.FindStringSubmatch(name)
	if m == nil {
		return nil
	}
	p, err := strconv.ParseUint(m[1], 10, 32)
	if err != nil || keepPrefix(uint32(p)) != name[:len(m[1])+len("kept--")] {
		return nil // not a name that this program gives
	}
	bytes, err := sizeOf(s.fs, s.fs.PathJoin(s.dir, name))
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, &perdurev1.KeptReplica{Partition: uint32(p), Name: name, Bytes: bytes})
	slices.SortFunc(s.all, func(a, b *perdurev1.KeptReplica) int { return strings.Compare(a.Name, b.Name) })
	return nil
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

// list is what is kept, by partition and time. It asks the disk only where there was something.
func (s *keptSet) list() []*perdurev1.KeptReplica {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(k *perdurev1.KeptReplica) bool {
		_, err := s.fs.Stat(s.fs.PathJoin(s.dir, k.Name))
		return err != nil && isNotExist(err)
	})
	return slices.Clone(s.all)
}

// bytes is what is kept of a partition.
func (s *keptSet) bytes(p uint32) (sum uint64) {
	if s == nil {
		return 0
	}
	for _, k := range s.list() {
		if k.Partition == p {
			sum += k.Bytes
		}
	}
	return sum
}

// forget deletes what is kept of a partition: the one of that name, or all.
func (s *keptSet) forget(p uint32, name string) (forgotten []*perdurev1.KeptReplica, err error) {
	for _, k := range s.list() {
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

// forgetKept deletes what this node keeps of former replicas of a partition. What is there must work: while it
// is halted or being made anew, what was kept may be the best there is.
func (n *Node) forgetKept(p uint32, name string) (*perdurev1.ForgetKeptResponse, error) {
	if name != "" && (!keptName.MatchString(name) || !strings.HasPrefix(name, keepPrefix(p))) {
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "no former replica of partition %d is called so: it would be %sTIME", p, keepPrefix(p))
	}
	r, err := n.router.Replica(p)
	if err != nil {
		return nil, err
	}
	// Nothing is moved aside meanwhile.
	n.rebuildMu.Lock()
	defer n.rebuildMu.Unlock()
	if n.rebuilds[p] {
		return nil, errTryLater(p, "the replica is being rebuilt; what was kept of it stays until that is done")
	}
	if halted := r.halted(); halted != nil {
		return nil, api.Errorf(perdurev1.Reason_REASON_MEMBERSHIP_REFUSED,
			"partition %d has halted on node %s, and what was kept of it stays until it has been rebuilt: %v", p, n.identity.NodeID, halted)
	}
	forgotten, err := n.kept.forget(p, name)
	for _, k := range forgotten {
		n.log.Info("a former replica that was kept aside is deleted", "event", "kept_forgotten", "partition", p, "name", k.Name, "bytes", k.Bytes)
	}
	if err != nil {
		return nil, errTryLater(p, "what is kept could not be deleted: "+err.Error())
	}
	return &perdurev1.ForgetKeptResponse{Forgotten: forgotten}, nil
}

// ForgetKept implements Peers.
func (s *peerService) ForgetKept(_ context.Context, in *perdurev1.ForgetKeptRequest) (*perdurev1.ForgetKeptResponse, error) {
	return s.n.forgetKept(in.Partition, in.Name)
}

// ForgetKept has one node delete what it keeps of former replicas of a partition.
func (o *Operator) ForgetKept(ctx context.Context, in *perdurev1.ForgetKeptRequest) (*perdurev1.ForgetKeptResponse, error) {
	n := o.n
	m, err := n.memberNamed(in.NodeId)
	if err != nil {
		return nil, err
	}
	if m.ServerId == n.identity.ServerID {
		return n.forgetKept(in.Partition, in.Name)
	}
	client, err := n.reach(ctx, m)
	if err != nil {
		return nil, errTryLater(in.Partition, fmt.Sprintf("node %s cannot be asked: %v", in.NodeId, err))
	}
	reply, err := client.ForgetKept(ctx, in)
	if err != nil {
		if e, ours := api.FromStatus(err); ours {
			return nil, e
		}
		return nil, errTryLater(in.Partition, fmt.Sprintf("node %s did not answer: %v", in.NodeId, err))
	}
	return reply, nil
}
