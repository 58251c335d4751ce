package partition

import (
	"context"
	"errors"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition/repair"
)

// repairEnv is the node as package repair sees it.
type repairEnv struct{ n *Node }

// Replica implements repair.Env.
func (e repairEnv) Replica(p uint32) repair.Replica { return e.n.router.slots[p].Load() }

// HandOver implements repair.Env.
func (e repairEnv) HandOver(ctx context.Context, p uint32) error {
	_, err := e.n.Transfer(ctx, p, "")
	return err
}

// Peer implements repair.Env.
func (e repairEnv) Peer(addr string) (commandv1.PeersClient, error) { return e.n.peers.Client(addr) }

// Leader implements repair.Env.
func (e repairEnv) Leader(ctx context.Context, p uint32) string {
	n := e.n
	for _, m := range n.cluster.Members() {
		if m.ServerId == n.identity.ServerID {
			continue
		}
		if st, err := (memberClient{n}).ask(ctx, m); err == nil && int(p) < len(st.Replicas) && st.Replicas[p].Serving {
			return n.cluster.AddressOf(m.ServerId)
		}
	}
	return ""
}

// CaughtUp implements repair.Env.
func (e repairEnv) CaughtUp(ctx context.Context, p uint32) (applied uint64, ok bool) {
	n, r := e.n, e.n.router.slots[p].Load()
	if r.Halted() != nil || r.Raft() == nil {
		return 0, false
	}
	own := report{n}.replica(r)
	if own.Serving {
		return own.Applied, true
	}
	leader, ok := r.LeaderElsewhere()
	if !ok {
		return 0, false
	}
	st, err := memberClient{n}.statusAt(ctx, leader.Addr, p, statusTimeout)
	if err != nil || !st.Serving {
		return 0, false
	}
	own = report{n}.replica(r)
	return own.Applied, own.Halted == "" && own.Applied >= st.Applied
}

// Prepare implements repair.Env.
func (e repairEnv) Prepare(p uint32, content string) (start func() error, err error) {
	n, r := e.n, e.n.newReplica(p)
	if err := r.Fill(content); err != nil {
		return nil, err
	}
	if err := r.Examine(false); err != nil {
		return nil, err
	}
	if err := n.reconcile(r); err != nil {
		return nil, err
	}
	return func() error {
		if err := r.Open(false); err != nil {
			return err
		}
		if err := r.Join(false); err != nil {
			return errors.Join(err, r.Abort())
		}
		old := n.router.slots[p].Swap(r)
		r.Run()
		go old.Retire()
		return nil
	}, nil
}

// comparison compares this node's replicas with the others'.
func (e repairEnv) comparison() *repair.Comparison {
	n := e.n
	return &repair.Comparison{Clock: n.clock, Log: n.log,
		Members: func() int { return len(n.cluster.Members()) },
		Others: func(ctx context.Context) []*commandv1.NodeStatus {
			var others []*commandv1.DirectoryMember
			for _, m := range n.cluster.Members() {
				if m.ServerId != n.identity.ServerID {
					others = append(others, m)
				}
			}
			answers, _ := memberClient{n}.askAll(ctx, others)
			return answers
		},
		Own: func() (out []repair.OwnReplica) {
			for _, r := range n.router.Replicas() {
				if r.Halted() == nil && r.Store() != nil {
					out = append(out, repair.OwnReplica{Status: report{n}.replica(r), Halt: r.Halt})
				}
			}
			return out
		},
	}
}

// Rebuild implements Peers.
func (s *peerService) Rebuild(ctx context.Context, in *commandv1.RebuildRequest) (*commandv1.RebuildReply, error) {
	if _, err := s.n.router.Replica(in.Partition); err != nil {
		return nil, err
	}
	reply, err := s.n.rebuilder.Rebuild(ctx, in.Partition)
	if err != nil {
		return nil, err
	}
	return &commandv1.RebuildReply{Applied: reply.Applied, DoneMsAgo: reply.DoneMsAgo}, nil
}

// ForgetQuarantined implements Peers.
func (s *peerService) ForgetQuarantined(_ context.Context, in *perdurev1.ForgetQuarantinedRequest) (*perdurev1.ForgetQuarantinedResponse, error) {
	if _, err := s.n.router.Replica(in.Partition); err != nil {
		return nil, err
	}
	return s.n.rebuilder.Forget(in.Partition, in.Name)
}
