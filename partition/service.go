package partition

import (
	"context"
	"io"
	"strconv"
	"time"

	"github.com/hashicorp/raft"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/clock"
	"perdure/partition/raftgroup"
	"perdure/partition/refusal"
)

// peerService answers the other nodes. Nothing that arrives here is passed on to a third node.
type peerService struct {
	commandv1.UnimplementedPeersServer
	n *Node
}

// Propose implements Peers.
func (s *peerService) Propose(ctx context.Context, in *commandv1.ProposeRequest) (*commandv1.Reply, error) {
	r, err := s.n.router.Replica(in.Partition)
	if err != nil {
		return nil, err
	}
	if in.Command == nil {
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "the command is missing")
	}
	if in.ReturnedInTerm > 0 {
		return s.n.returnTask(ctx, r, in.ReturnedInTerm, in.Command)
	}
	return r.Propose(ctx, in.Command)
}

// Query implements Peers.
func (s *peerService) Query(ctx context.Context, in *commandv1.PeerQuery) (*commandv1.PeerQueryReply, error) {
	r, err := s.n.router.Replica(in.Partition)
	if err != nil {
		return nil, err
	}
	if in.Query == nil {
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "the query is missing")
	}
	level := Linearizable
	if in.Stale {
		level = Stale
	}
	reply, index, err := r.Query(ctx, level, in.Query)
	if err != nil {
		return nil, err
	}
	return &commandv1.PeerQueryReply{Reply: reply, Index: index}, nil
}

// Status implements Peers.
func (s *peerService) Status(_ context.Context, in *commandv1.StatusRequest) (*commandv1.NodeStatus, error) {
	if in.Partition != nil {
		r, err := s.n.router.Replica(*in.Partition)
		if err != nil {
			return nil, err
		}
		return &commandv1.NodeStatus{NodeId: s.n.identity.NodeID, ServerId: s.n.identity.ServerID,
			FeatureLevel: s.n.cfg.knownLevel(), Replicas: []*commandv1.ReplicaStatus{s.n.statusOf(r)}}, nil
	}
	return s.n.status(), nil
}

// status returns the state of this node's replicas.
func (n *Node) status() *commandv1.NodeStatus {
	out := &commandv1.NodeStatus{NodeId: n.identity.NodeID, ServerId: n.identity.ServerID, DirectoryEpoch: n.Directory().GetEpoch(), Kept: n.former.List(), Disk: n.diskStatus(),
		FeatureLevel: n.cfg.knownLevel()}
	for _, r := range n.router.Replicas() {
		out.Replicas = append(out.Replicas, n.statusOf(r))
	}
	if g := n.cluster.Raft(); g != nil {
		out.Directory = n.witness(raftStatus(g))
	}
	return out
}

func (n *Node) statusOf(r *Replica) *commandv1.ReplicaStatus {
	st := &commandv1.ReplicaStatus{State: "Shutdown"}
	if r.raft != nil {
		st = n.witness(raftStatus(r.raft))
	}
	st.Partition = r.id
	st.Serving = r.serving() != nil
	st.Rebuilding = n.rebuilder.Running(r.id)
	st.Audit = r.audited.Load()
	if err := r.halted(); err != nil {
		st.Halted, st.State = err.Error(), "Shutdown"
		return st
	}
	have, err := r.store.Status()
	if err != nil {
		st.Halted = err.Error()
		return st
	}
	st.Applied, st.Checksum = have.Applied, have.Checksum
	if st.FeatureLevel, err = r.level(); err != nil {
		st.Halted = err.Error()
		return st
	}
	for _, m := range r.store.Marks() {
		st.Marks = append(st.Marks, &commandv1.ChecksumMark{Index: m.Index, Checksum: m.Checksum})
	}
	return st
}

// witness limits a status's ContactMs to the silence that this node can testify to; see
// election.Failover.Witnessed.
func (n *Node) witness(st *commandv1.ReplicaStatus) *commandv1.ReplicaStatus {
	st.ContactMs = uint64(n.failover.Witnessed(time.Duration(st.ContactMs) * time.Millisecond).Milliseconds())
	return st
}

func raftStatus(g *raft.Raft) *commandv1.ReplicaStatus {
	_, leader := g.LeaderWithID()
	st := &commandv1.ReplicaStatus{State: g.State().String(), Leader: string(leader), Term: g.CurrentTerm(), LastIndex: g.LastIndex(), CommitIndex: g.CommitIndex()}
	if heard := g.LastContact(); g.State() != raft.Leader && !heard.IsZero() {
		st.ContactMs = uint64(max(clock.Since(heard).Milliseconds(), 0))
	}
	st.LastTerm, _ = strconv.ParseUint(g.Stats()["last_log_term"], 10, 64) // always a number
	future := g.GetConfiguration()
	if future.Error() == nil {
		for _, s := range future.Configuration().Servers {
			st.Voters = append(st.Voters, string(s.ID))
		}
	}
	return st
}

// contentChunk bounds a partition's content in one message.
const contentChunk = 1 << 20

// Content implements Peers.
func (s *peerService) Content(in *commandv1.ContentRequest, stream commandv1.Peers_ContentServer) error {
	r, err := s.n.router.Replica(in.Partition)
	if err != nil {
		return err
	}
	if r.serving() == nil {
		return r.notServing()
	}
	// A state read after this barrier covers every entry that any member's snapshot marker covers.
	if err := raftgroup.Await(r.raft.Barrier(raftgroup.EnqueueTimeout), r.killed, stream.Context().Done()); err != nil {
		return refusal.NotLeader(r.id, r.leaderHint())
	}
	read, write := io.Pipe()
	go func() {
		_, err := r.store.WriteContent(write)
		_ = write.CloseWithError(err) // a nil error ends the content
	}()
	defer func() { _ = read.Close() }() // ends the writer
	buf := make([]byte, contentChunk)
	for {
		n, err := io.ReadFull(read, buf)
		if n > 0 {
			if err := stream.Send(&commandv1.ContentChunk{Data: buf[:n]}); err != nil {
				return err
			}
		}
		switch err {
		case nil:
		case io.EOF, io.ErrUnexpectedEOF:
			return nil
		default:
			return refusal.TryLater(r.id, "the content could not be read: "+err.Error())
		}
	}
}

// ShowDirectory implements Peers.
func (s *peerService) ShowDirectory(ctx context.Context, _ *commandv1.ShowDirectoryRequest) (*commandv1.ShowDirectoryReply, error) {
	dir, err := s.n.cluster.Confirmed(ctx)
	if err != nil {
		return nil, err
	}
	return &commandv1.ShowDirectoryReply{Directory: dir}, nil
}

// Join implements Peers.
func (s *peerService) Join(ctx context.Context, in *commandv1.JoinRequest) (*commandv1.JoinReply, error) {
	dir, err := s.n.cluster.Admit(ctx, in)
	if err != nil {
		return nil, err
	}
	return &commandv1.JoinReply{Directory: dir}, nil
}
