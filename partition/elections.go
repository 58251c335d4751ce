package partition

import (
	"context"
	"time"

	"github.com/hashicorp/raft"

	commandv1 "perdure/api/command/v1"
	"perdure/internal/clock"
	"perdure/partition/election"
	"perdure/partition/raftgroup"
	"perdure/partition/refusal"
	"perdure/partition/transport"
)

// raftGroup is this node's part in one Raft group: a replica's, or the directory's. It implements election.Group.
type raftGroup struct {
	n         *Node
	id        uint32
	raft      *raft.Raft
	transport *transport.RaftTransport
}

// group returns this node's part in a group; false for one that has halted or does not exist.
func (n *Node) group(id uint32) (g raftGroup, ok bool) {
	if id == directoryGroup {
		return raftGroup{n, id, n.cluster.Raft(), n.cluster.Transport()}, true
	}
	r, err := n.router.Replica(id)
	if err != nil || r.Raft() == nil || r.Halted() != nil {
		return g, false
	}
	return raftGroup{n, id, r.Raft(), r.Transport()}, true
}

func (g raftGroup) ID() uint32            { return g.id }
func (g raftGroup) State() raft.RaftState { return g.raft.State() }
func (g raftGroup) Term() uint64          { return g.raft.CurrentTerm() }
func (g raftGroup) Contact() time.Time    { return g.raft.LastContact() }

func (g raftGroup) Leader() (server, addr string) {
	at, id := g.raft.LeaderWithID()
	return string(id), string(at)
}

func (g raftGroup) Status() *commandv1.ReplicaStatus {
	st := raftgroup.Status(g.raft)
	if g.id != directoryGroup {
		if store := g.n.router.slots[g.id].Load().Store(); store != nil {
			st.Applied = store.Present().Index // Raft's own entries do not count
		}
	}
	return st
}

func (g raftGroup) Serves() bool {
	return g.id != directoryGroup && g.n.router.slots[g.id].Load().Serving()
}

func (g raftGroup) Servers() ([]raft.Server, error) {
	future := g.raft.GetConfiguration()
	return future.Configuration().Servers, future.Error()
}

func (g raftGroup) Campaign(server, addr string) error {
	return g.transport.Campaign(raft.ServerID(server), raft.ServerAddress(addr))
}

func (g raftGroup) Concede(server, addr string, term uint64) error {
	return g.transport.Concede(raft.ServerID(server), raft.ServerAddress(addr), term)
}

func (g raftGroup) Transfer(ctx context.Context, server, addr string) error {
	return raftgroup.Await(g.raft.LeadershipTransferToServer(raft.ServerID(server), raft.ServerAddress(addr)), ctx.Done(), g.n.done)
}

// electionEnv is what elections need of a node. It implements election.Env.
type electionEnv struct{ n *Node }

func (e electionEnv) Group(id uint32) (election.Group, bool) {
	g, ok := e.n.group(id)
	return g, ok
}

func (e electionEnv) Groups() []uint32 {
	ids := []uint32{directoryGroup}
	for _, r := range e.n.router.Replicas() {
		ids = append(ids, r.ID())
	}
	return ids
}

func (e electionEnv) NodeOf(server string) string           { return e.n.cluster.NodeOf(server) }
func (e electionEnv) AddrOf(server string) string           { return e.n.cluster.AddressOf(server) }
func (e electionEnv) Directory() *commandv1.Directory       { return e.n.cluster.Directory() }
func (e electionEnv) Members() []*commandv1.DirectoryMember { return e.n.cluster.Members() }
func (e electionEnv) Halt(err error)                        { e.n.fatal(err) }
func (e electionEnv) Probe(ctx context.Context, addr string) (string, error) {
	return e.n.mux.Probe(ctx, addr)
}

func (e electionEnv) Ask(ctx context.Context, m *commandv1.DirectoryMember) (*commandv1.NodeStatus, error) {
	return memberClient(e).ask(ctx, m)
}

// StatusAt asks the node at an address for its member of a group.
func (e electionEnv) StatusAt(ctx context.Context, addr string, id uint32) (*commandv1.ReplicaStatus, error) {
	client, err := e.n.peers.Client(addr)
	if err != nil {
		return nil, err
	}
	in := &commandv1.StatusRequest{}
	if id != directoryGroup {
		in.Partition = &id
	}
	st, err := client.Status(ctx, in)
	switch {
	case err != nil:
		return nil, err
	case id == directoryGroup && st.Directory != nil:
		return st.Directory, nil
	case id != directoryGroup && len(st.Replicas) == 1:
		return st.Replicas[0], nil
	}
	return nil, refusal.TryLater(id, "the node at "+addr+" has no member of the group")
}

// prepareElections makes the parts of package election, without starting them.
func (n *Node) prepareElections() error {
	random, err := clock.NewRand(n.cfg.Rand)
	if err != nil {
		return err
	}
	opts := election.Options{Env: electionEnv{n}, Server: n.identity.ServerID, Node: n.identity.NodeID, Addr: n.mux.Addr().String(),
		HeartbeatTimeout: n.cfg.HeartbeatTimeout, ElectionTimeout: n.cfg.ElectionTimeout, Clock: n.clock, Rand: random, Log: n.log}
	n.failover, n.transfers = election.NewFailover(n.lifetime, opts), election.NewTransfers(opts)
	n.balancer = election.NewBalancer(n.lifetime, opts, n.transfers)
	return nil
}

// HandOver transfers every group that this node leads to members that can lead it, within 2 s, and ends the
// balancer. It ends the streams of clients, which open them at other nodes. Call it for a node that is about to stop;
// Close does it too.
func (n *Node) HandOver(ctx context.Context) {
	n.addresses.Drain()
	if !n.identity.Alone() {
		n.balancer.Close(ctx)
		n.transfers.TransferAll(ctx)
	}
}
