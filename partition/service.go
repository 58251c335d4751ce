package partition

import (
	"context"
	"time"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition/group"
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
		return r.ReturnTask(ctx, in.ReturnedInTerm, in.Command)
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
	level := group.Linearizable
	if in.Stale {
		level = group.Stale
	}
	reply, index, err := r.Query(ctx, level, in.Query)
	if err != nil {
		return nil, err
	}
	return &commandv1.PeerQueryReply{Reply: reply, Index: index}, nil
}

// Await implements Peers.
func (s *peerService) Await(ctx context.Context, in *commandv1.PeerAwait) (*commandv1.PeerQueryReply, error) {
	r, err := s.n.router.Replica(in.Partition)
	if err != nil {
		return nil, err
	}
	if in.Query == nil {
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "the query is missing")
	}
	reply, index, err := r.Await(ctx, in.Query, min(time.Duration(in.WaitMs)*time.Millisecond, maxAwait))
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
			FeatureLevel: s.n.cfg.knownLevel(), Replicas: []*commandv1.ReplicaStatus{report{s.n}.replica(r)}}, nil
	}
	return report{s.n}.node(), nil
}

// Content implements Peers.
func (s *peerService) Content(in *commandv1.ContentRequest, stream commandv1.Peers_ContentServer) error {
	r, err := s.n.router.Replica(in.Partition)
	if err != nil {
		return err
	}
	return r.SendContent(stream.Context(), func(data []byte) error { return stream.Send(&commandv1.ContentChunk{Data: data}) })
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
