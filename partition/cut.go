package partition

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"time"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/cut"
	"perdure/fsm"
	"perdure/internal/clock"
	"perdure/partition/refusal"
)

const (
	// cutPoll is the pause between two looks for the checkpoints of a cut.
	cutPoll = 50 * time.Millisecond
	// stragglerTimeout is how long Cut waits for more replicas once each partition has a checkpoint.
	stragglerTimeout = 3 * time.Second
	// cutCommands bounds the partitions that are asked to enter a cut at once.
	cutCommands = 64
	// chunkBytes is the size of a chunk of a file.
	chunkBytes = 1 << 20
)

// Cut has all partitions enter a new cut, and returns the checkpoints that there are when each partition has one and no
// replica is expected to have one soon. Errors: those of Router.Deliver, FEATURE_LEVEL among them; CHECKPOINT_NOT_FOUND if
// no replica of a partition could make one.
func (o *Operator) Cut(ctx context.Context, _ *perdurev1.CutRequest) (*perdurev1.CutResponse, error) {
	n, err := o.enterNewCut(ctx)
	if err != nil {
		return nil, err
	}
	level, _ := o.n.cluster.Level()
	out := &perdurev1.CutResponse{Cut: n, Cluster: o.n.identity.ClusterID, Partitions: o.n.identity.Partitions, Level: level}
	var enough time.Time // when each partition had a checkpoint
	for {
		found := o.findCheckpoints(ctx, n)
		switch missing, expected := found.missing(out.Partitions); {
		case len(missing) == 0 && (!expected || !enough.IsZero() && o.n.clock.Now().Sub(enough) >= stragglerTimeout):
			out.Checkpoints = found.checkpoints
			return out, nil
		case len(missing) == 0 && enough.IsZero():
			enough = o.n.clock.Now()
		case len(missing) > 0 && !expected:
			return nil, api.Errorf(perdurev1.Reason_REASON_CHECKPOINT_NOT_FOUND, "no node could make the checkpoint of cut %d of partition %d", n, missing[0]).
				With("partition", fmt.Sprint(missing[0])).With("cut", fmt.Sprint(n))
		}
		if !clock.Wait(ctx, o.n.clock, cutPoll) {
			return nil, refusal.TryLater(0, fmt.Sprintf("cut %d is not whole yet, and the caller stopped waiting", n))
		}
	}
}

// enterNewCut has every partition enter a cut that none was in. A later cut of another caller may overtake it in some
// partitions: then it is given up.
func (o *Operator) enterNewCut(ctx context.Context) (uint64, error) {
	for {
		have, err := o.enterCut(ctx, 0)
		if err != nil {
			return 0, err
		}
		n := cut.Next(have)
		now, err := o.enterCut(ctx, n)
		if err != nil {
			return 0, err
		}
		if cut.Required(n, now...) == n {
			return uint64(n), nil
		}
		if ctx.Err() != nil {
			return 0, refusal.TryLater(0, "other cuts overtake this one, and the caller stopped waiting")
		}
	}
}

// enterCut has every partition enter a cut, unless it is in a later one, and returns the cut of each.
func (o *Operator) enterCut(ctx context.Context, n cut.Number) ([]cut.Number, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	now := make([]cut.Number, o.n.identity.Partitions)
	var wg sync.WaitGroup
	var once sync.Once
	var first error // it ends the other attempts, whose errors say less
	slots := make(chan struct{}, cutCommands)
	for p := range now {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			for {
				reply, err := o.n.router.Deliver(ctx, uint32(p), &commandv1.Command{Kind: &commandv1.Command_EnterCut{EnterCut: &commandv1.EnterCut{Cut: uint64(n)}}})
				if err != nil {
					once.Do(func() { first = err; cancel() })
					return
				}
				now[p] = cut.Number(reply.GetEnterCut().GetCut())
				if now[p] >= n { // below: another command of the entry has entered a cut
					return
				}
			}
		})
	}
	wg.Wait()
	return now, first
}

// foundCheckpoints is what the members say of a cut's checkpoints.
type foundCheckpoints struct {
	checkpoints []*perdurev1.Checkpoint // by partition and node
	// expected says by partition that a replica which answers has no checkpoint yet and may still get one.
	expected map[uint32]bool
}

// missing lists the partitions without a checkpoint. expected reports whether a checkpoint may still come: of one of those,
// or of any partition if none is missing.
func (f *foundCheckpoints) missing(partitions uint32) (missing []uint32, expected bool) {
	has := map[uint32]bool{}
	for _, c := range f.checkpoints {
		has[c.Partition] = true
	}
	for p := range partitions {
		if !has[p] {
			missing = append(missing, p)
			if !f.expected[p] {
				return []uint32{p}, false
			}
		}
		expected = expected || f.expected[p]
	}
	return missing, expected
}

// findCheckpoints asks all members for their checkpoints of a cut. A member that does not answer counts as one that has
// none and will have none.
func (o *Operator) findCheckpoints(ctx context.Context, n uint64) *foundCheckpoints {
	members, addresses := o.members(), map[string]string{}
	for _, h := range o.n.cluster.Gossip() {
		addresses[h.ServerID] = h.GRPCAddr
	}
	answers := make([]*commandv1.CheckpointsReply, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		wg.Go(func() {
			_ = o.call(ctx, m, func(ctx context.Context, peer checkpointPeer) (err error) {
				answers[i], err = peer.Checkpoints(ctx, &commandv1.CheckpointsRequest{Cut: n})
				return err
			})
		})
	}
	wg.Wait()
	out := &foundCheckpoints{expected: map[uint32]bool{}}
	for i, m := range members {
		for _, r := range answers[i].GetReplicas() {
			if r.Has {
				out.checkpoints = append(out.checkpoints, &perdurev1.Checkpoint{Partition: r.Partition, Node: m.NodeId, Index: r.Index, Address: addresses[m.ServerId]})
			} else if !r.Missed {
				out.expected[r.Partition] = true
			}
		}
	}
	slices.SortStableFunc(out.checkpoints, func(a, b *perdurev1.Checkpoint) int { return int(a.Partition) - int(b.Partition) })
	return out
}

// members are those of the directory, or this node alone.
func (o *Operator) members() []*commandv1.DirectoryMember {
	if dir := o.n.Directory(); dir != nil {
		return dir.Members
	}
	return o.n.cluster.Members()
}

// checkpointPeer is what a member offers about checkpoints.
type checkpointPeer interface {
	Checkpoints(context.Context, *commandv1.CheckpointsRequest) (*commandv1.CheckpointsReply, error)
	ReleaseCut(context.Context, *perdurev1.ReleaseCutRequest) (*perdurev1.ReleaseCutResponse, error)
}

// remotePeer is another member.
type remotePeer struct{ commandv1.PeersClient }

func (p remotePeer) Checkpoints(ctx context.Context, in *commandv1.CheckpointsRequest) (*commandv1.CheckpointsReply, error) {
	return p.PeersClient.Checkpoints(ctx, in)
}

func (p remotePeer) ReleaseCut(ctx context.Context, in *perdurev1.ReleaseCutRequest) (*perdurev1.ReleaseCutResponse, error) {
	return p.PeersClient.ReleaseCut(ctx, in)
}

// call calls a member, for statusTimeout at most; this node answers itself.
func (o *Operator) call(ctx context.Context, m *commandv1.DirectoryMember, fn func(context.Context, checkpointPeer) error) error {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	if m.ServerId == o.n.identity.ServerID {
		return fn(ctx, &peerService{n: o.n})
	}
	client, err := o.n.peers.Client(o.n.cluster.AddressOf(m.ServerId))
	if err != nil {
		return err
	}
	return fn(ctx, remotePeer{client})
}

// Checkpoints implements Peers.
func (s *peerService) Checkpoints(_ context.Context, in *commandv1.CheckpointsRequest) (*commandv1.CheckpointsReply, error) {
	out := &commandv1.CheckpointsReply{}
	for _, r := range s.n.router.Replicas() {
		c, has, missed, err := r.Checkpoint(in.Cut)
		out.Replicas = append(out.Replicas, &commandv1.ReplicaCheckpoint{Partition: r.ID(), Has: has, Index: c.Index, Missed: missed || err != nil})
	}
	return out, nil
}

// ReleaseCut implements Peers.
func (s *peerService) ReleaseCut(_ context.Context, in *perdurev1.ReleaseCutRequest) (*perdurev1.ReleaseCutResponse, error) {
	out := &perdurev1.ReleaseCutResponse{}
	var errs []error
	for _, r := range s.n.router.Replicas() {
		released, err := r.ReleaseCut(in.Cut)
		if released {
			out.Released++
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, refusal.TryLater(0, fmt.Sprintf("node %s cannot remove the checkpoints of cut %d: %v", s.n.identity.NodeID, in.Cut, err))
	}
	return out, nil
}

// ReleaseCut removes the checkpoints of a cut on all members that answer. It fails only if this node cannot.
func (o *Operator) ReleaseCut(ctx context.Context, in *perdurev1.ReleaseCutRequest) (*perdurev1.ReleaseCutResponse, error) {
	members := o.members()
	answers, errs := make([]*perdurev1.ReleaseCutResponse, len(members)), make([]error, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		wg.Go(func() {
			errs[i] = o.call(ctx, m, func(ctx context.Context, peer checkpointPeer) (err error) {
				answers[i], err = peer.ReleaseCut(ctx, in)
				return err
			})
		})
	}
	wg.Wait()
	out := &perdurev1.ReleaseCutResponse{}
	for i, m := range members {
		switch {
		case errs[i] == nil:
			out.Released += answers[i].Released
		case m.ServerId == o.n.identity.ServerID:
			return nil, errs[i]
		default:
			out.Unreachable = append(out.Unreachable, m.NodeId)
		}
	}
	return out, nil
}

// ListCheckpoint lists the files of this node's checkpoint of a partition. Errors: CHECKPOINT_NOT_FOUND, PARTITION_NOT_FOUND.
func (o *Operator) ListCheckpoint(_ context.Context, in *perdurev1.ListFilesRequest) (*perdurev1.ListFilesResponse, error) {
	r, err := o.n.router.Replica(in.Partition)
	if err != nil {
		return nil, err
	}
	index, files, err := r.CheckpointFiles(in.Cut)
	if err != nil {
		return nil, checkpointError(in.Partition, err)
	}
	out := &perdurev1.ListFilesResponse{Index: index}
	for _, f := range files {
		out.Files = append(out.Files, &perdurev1.CutFile{Name: f.Name, Size: uint64(f.Size)})
	}
	return out, nil
}

// ReadCheckpoint sends a file of this node's checkpoint of a partition, from an offset on. Errors are those of
// ListCheckpoint, ctx and send.
func (o *Operator) ReadCheckpoint(ctx context.Context, in *perdurev1.ReadFileRequest, send func(*perdurev1.FileChunk) error) (err error) {
	r, err := o.n.router.Replica(in.Partition)
	if err != nil {
		return err
	}
	f, err := r.OpenCheckpointFile(in.Cut, in.Name)
	if err != nil {
		return checkpointError(in.Partition, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return checkpointError(in.Partition, err)
	}
	for at, size := in.Offset, uint64(max(info.Size(), 0)); at < size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		b := make([]byte, min(chunkBytes, size-at)) // gRPC may keep it
		if n, err := f.ReadAt(b, int64(at)); n < len(b) {
			return checkpointError(in.Partition, errors.Join(err, io.ErrUnexpectedEOF))
		}
		if err := send(&perdurev1.FileChunk{Data: b}); err != nil {
			return err
		}
		at += uint64(len(b))
	}
	return nil
}

// MakeDelta writes what leads from one of this node's checkpoints of a partition to another. A node makes one at a time,
// and blocks meanwhile. Errors: CHECKPOINT_NOT_FOUND, PARTITION_NOT_FOUND, ctx.
func (o *Operator) MakeDelta(ctx context.Context, in *perdurev1.DeltaRequest) (*perdurev1.DeltaResponse, error) {
	r, err := o.n.router.Replica(in.Partition)
	if err != nil {
		return nil, err
	}
	select {
	case o.n.deltas <- struct{}{}:
		defer func() { <-o.n.deltas }()
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-o.n.stopping:
		return nil, refusal.TryLater(in.Partition, "the node stops")
	}
	file, err := r.MakeDelta(ctx, fsm.Checkpoint{Cut: in.FromCut, Index: in.FromIndex}, in.Cut, int64(min(in.LimitBytes, math.MaxInt64)))
	if large := (*fsm.DeltaLimitError)(nil); errors.As(err, &large) {
		return &perdurev1.DeltaResponse{}, nil
	}
	if err != nil {
		return nil, checkpointError(in.Partition, err)
	}
	return &perdurev1.DeltaResponse{File: &perdurev1.CutFile{Name: file.Name, Size: uint64(file.Size)}}, nil
}

// checkpointError is the refusal for an error about a checkpoint's files.
func checkpointError(partition uint32, err error) error {
	var refused *api.Error
	if errors.As(err, &refused) {
		return refused
	}
	return refusal.TryLater(partition, "the checkpoint cannot be read: "+err.Error())
}
