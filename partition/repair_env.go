package partition

import (
	"context"
	"errors"
	"io"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm"
	"perdure/partition/identity"
	"perdure/partition/repair"
	"perdure/partition/snapshot"
)

// repairEnv is the node as package repair sees it.
type repairEnv struct{ n *Node }

// Replica implements repair.Env.
func (e repairEnv) Replica(p uint32) repair.Replica {
	return repairedReplica{e.n.router.slots[p].Load()}
}

// repairedReplica is a replica as package repair sees it.
type repairedReplica struct{ r *Replica }

// Halted implements repair.Replica.
func (r repairedReplica) Halted() error { return r.r.halted() }

// Serves implements repair.Replica.
func (r repairedReplica) Serves() bool { return r.r.serving() != nil }

// Halt implements repair.Replica.
func (r repairedReplica) Halt(why error) { r.r.halt(why) }

// SetHalted implements repair.Replica.
func (r repairedReplica) SetHalted(why error) { r.r.haltErr.Store(&why) }

// Released implements repair.Replica.
func (r repairedReplica) Released(ctx context.Context) error {
	if err := r.r.released(ctx); err != nil || r.r.raft == nil {
		return err
	}
	return r.r.transport.(interface{ Close() error }).Close()
}

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
		if st, err := n.ask(ctx, m); err == nil && int(p) < len(st.Replicas) && st.Replicas[p].Serving {
			return n.cluster.AddressOf(m.ServerId)
		}
	}
	return ""
}

// CaughtUp implements repair.Env.
func (e repairEnv) CaughtUp(ctx context.Context, p uint32) (applied uint64, ok bool) {
	n, r := e.n, e.n.router.slots[p].Load()
	if r.halted() != nil || r.raft == nil {
		return 0, false
	}
	own := n.statusOf(r)
	if own.Serving {
		return own.Applied, true
	}
	addr, _ := r.leaderElsewhere()
	if addr == "" {
		return 0, false
	}
	st, err := n.statusAt(ctx, addr, p, statusTimeout)
	if err != nil || !st.Serving {
		return 0, false
	}
	own = n.statusOf(r)
	return own.Applied, own.Halted == "" && own.Applied >= st.Applied
}

// Prepare implements repair.Env.
func (e repairEnv) Prepare(p uint32, content string) (start func() error, err error) {
	n, r := e.n, e.n.newReplica(p)
	if err := e.fill(r, content); err != nil {
		return nil, err
	}
	if err := n.examine(r, false); err != nil {
		return nil, err
	}
	if err := n.reconcile(r); err != nil {
		return nil, err
	}
	return func() error {
		if err := n.openState(r, false); err != nil {
			return err
		}
		if err := n.join(r, false); err != nil {
			return errors.Join(err, r.store.Close())
		}
		old := n.router.slots[p].Swap(r)
		r.run()
		go old.retire()
		return nil
	}, nil
}

// fill makes a new state of fetched content. The state is durable and covers the newest marker.
func (e repairEnv) fill(r *Replica, content string) error {
	opts := e.n.stateOptions(r, true)
	opts.OnFatal = func(error) {} // what it would say is in the error
	opts.Flush, opts.Await = nil, nil
	st, err := fsm.Open(e.n.path(identity.StateDir(r.id)), opts)
	if err != nil {
		return err
	}
	f, err := e.n.cfg.FS.Open(content)
	if err == nil {
		err = st.Restore(f)
	}
	if err == nil {
		// When the leader sent this content, it had applied everything that any member's marker covers.
		err = st.Cover(e.newestMarker(r.id))
	}
	return errors.Join(err, st.Close())
}

// newestMarker returns the index of a partition's newest readable snapshot marker, 0 if it has none.
func (e repairEnv) newestMarker(p uint32) uint64 {
	s, err := snapshot.Open(e.n.path(identity.MarkerDir(p)), snapshot.Options{Group: p, FS: e.n.cfg.FS,
		Cover:   func(snapshot.Marker) error { return repair.ErrRebuilding },
		Content: func(snapshot.Marker) (io.ReadCloser, int64, error) { return nil, 0, repair.ErrRebuilding },
		Receive: func(snapshot.Marker) (snapshot.Receiver, error) { return nil, repair.ErrRebuilding },
	})
	if err != nil {
		return 0
	}
	newest := uint64(0)
	for _, m := range s.Markers() {
		newest = max(newest, m.Index)
	}
	return newest
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
			said, _ := n.askAll(ctx, others)
			return said
		},
		Own: func() (out []repair.OwnReplica) {
			for _, r := range n.router.Replicas() {
				if r.halted() == nil && r.store != nil {
					out = append(out, repair.OwnReplica{Status: n.statusOf(r), Halt: r.halt})
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

// ForgetKept implements Peers.
func (s *peerService) ForgetKept(_ context.Context, in *perdurev1.ForgetKeptRequest) (*perdurev1.ForgetKeptResponse, error) {
	if _, err := s.n.router.Replica(in.Partition); err != nil {
		return nil, err
	}
	return s.n.rebuilder.Forget(in.Partition, in.Name)
}
