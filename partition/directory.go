package partition

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	commandv1 "perdure/api/command/v1"
	"perdure/fsm/directory"
	"perdure/partition/raftgroup"
	"perdure/partition/transport"
)

// directoryGroup is the number of the directory's Raft group. Partitions count from 0.
const directoryGroup = 1 << 31

// directoryReplica is this node's member of the directory group. Its state is small and its log is never
// cut, so it needs no snapshots: the log is replayed at every start.
type directoryReplica struct {
	n         *Node
	raft      *raft.Raft
	transport *transport.RaftTransport
	acks      *transport.Acks
	machine   directory.Machine // the Raft library's goroutine only
	state     atomic.Pointer[commandv1.Directory]
	barrier   atomic.Uint64 // the term in which this replica has passed a barrier; see confirmed
}

// current is the directory as this node knows it, nil before it has heard of one.
func (d *directoryReplica) current() *commandv1.Directory {
	if d == nil {
		return nil
	}
	return d.state.Load()
}

// Apply implements raft.FSM.
func (d *directoryReplica) Apply(l *raft.Log) any {
	cmd := &commandv1.DirectoryCommand{}
	if err := proto.Unmarshal(l.Data, cmd); err != nil {
		d.n.fatal(fmt.Errorf("the directory's log holds something damaged at index %d: %w", l.Index, err))
		return err
	}
	if err := d.machine.Apply(cmd); err != nil {
		return err
	}
	d.n.noteFormer(d.state.Load(), d.machine.State())
	d.state.Store(d.machine.State())
	d.n.poke()
	return nil
}

var errNoSnapshots = errors.New("the directory has no snapshots")

// Snapshot implements raft.FSM.
func (d *directoryReplica) Snapshot() (raft.FSMSnapshot, error) { return nil, errNoSnapshots }

// Restore implements raft.FSM.
func (d *directoryReplica) Restore(content io.ReadCloser) error {
	return errors.Join(errNoSnapshots, content.Close())
}

// startDirectory starts the directory's group.
func (n *Node) startDirectory() error {
	d := &directoryReplica{n: n}
	cfg := n.raftConfig("directory")
	// The log is short and everything there is.
	cfg.SnapshotThreshold, cfg.TrailingLogs, cfg.SnapshotInterval = 1<<62, 1<<62, 24*time.Hour
	cfg.BatchApplyCh = false
	carrier := transport.NewRaftTransport(n.mux.Raft(directoryGroup), transport.RaftOptions{Logger: cfg.Logger, Addresses: n.addresses(), Answered: n.logs.PeerAnswered})
	d.transport, d.acks = carrier, carrier.Acks()
	// Before its group runs: what that applies looks at it.
	n.directory = d
	n.tenure.directory.Store(d)
	var err error
	if d.raft, err = raft.NewRaft(cfg, d, n.raftlog.Group(directoryGroup), n.stable.Group(directoryGroup), raft.NewDiscardSnapshotStore(), d.transport); err != nil {
		n.directory = nil
		return fmt.Errorf("directory: %w", err)
	}
	n.metrics.scraper.followDirectory(d.raft)
	go d.countElections()
	return nil
}

// countElections counts the leaderships of this node, until it stops.
func (d *directoryReplica) countElections() {
	m := d.n.metrics.ofDirectory()
	for {
		select {
		case leads := <-d.raft.LeaderCh():
			if leads {
				m.Elections.Inc()
			} else {
				m.Lost.Inc()
			}
		case <-d.n.stopping:
			return
		}
	}
}

func (d *directoryReplica) leads() bool { return d.raft.State() == raft.Leader }

// leader is the address of the directory's leader, empty if none is known.
func (d *directoryReplica) leader() string {
	addr, _ := d.raft.LeaderWithID()
	return string(addr)
}

// propose puts a command into the directory's log and waits until it is applied here.
func (d *directoryReplica) propose(ctx context.Context, cmd *commandv1.DirectoryCommand) error {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(cmd)
	if err != nil {
		return err
	}
	future := d.raft.Apply(b, raftgroup.EnqueueTimeout)
	if err := raftgroup.Await(future, ctx.Done(), d.n.done); err != nil {
		return errUnknownOutcome(directoryGroup, err.Error())
	}
	if refused, ok := future.Response().(error); ok {
		return refused
	}
	return nil
}

// verified is the directory once this node is known to lead it and to have applied what was decided before.
func (d *directoryReplica) verified(ctx context.Context) (*commandv1.Directory, error) {
	if !d.leads() {
		e := errNotLeader(directoryGroup, d.leader())
		e.Message = "this node does not lead the directory"
		return nil, e
	}
	if err := raftgroup.Await(d.raft.Barrier(raftgroup.EnqueueTimeout), ctx.Done(), d.n.done); err != nil {
		return nil, errTryLater(directoryGroup, "the directory's leadership could not be confirmed: "+err.Error())
	}
	if d.current() == nil {
		return nil, errTryLater(directoryGroup, "the cluster is still being made")
	}
	return d.current(), nil
}

// addresses translates server ids into where those servers are now: by hearsay first, since a node that
// has moved says so at once.
func (n *Node) addresses() raft.ServerAddressProvider {
	if n.identity.Alone() {
		return nil
	}
	return addressBook{n}
}

type addressBook struct{ n *Node }

// ServerAddr implements raft.ServerAddressProvider. An error means that the address in the configuration
// is used.
func (b addressBook) ServerAddr(server raft.ServerID) (raft.ServerAddress, error) {
	if addr := b.n.addressOf(string(server)); addr != "" {
		return raft.ServerAddress(addr), nil
	}
	return "", fmt.Errorf("nothing is known of server %s", server)
}

// addressOf is where a server is, empty if unknown. Raft asks before every message.
func (n *Node) addressOf(server string) string {
	if book := n.book.Load(); book != nil {
		return (*book)[server]
	}
	return n.lookUp()[server]
}

// lookUp gathers where the servers are.
func (n *Node) lookUp() map[string]string {
	book := map[string]string{}
	for _, f := range n.identity.Founders {
		book[f.ServerID] = f.PeerAddr
	}
	for _, m := range n.directory.current().GetMembers() {
		book[m.ServerId] = m.PeerAddr
	}
	for _, h := range n.hints() {
		book[h.ServerID] = h.PeerAddr
	}
	return book
}

// members are the servers of the cluster: by the directory, or by the founding before there is one.
func (n *Node) members() []*commandv1.DirectoryMember {
	if d := n.directory.current(); d != nil {
		return d.Members
	}
	var out []*commandv1.DirectoryMember
	for _, f := range n.identity.Founders {
		out = append(out, f.Member())
	}
	return out
}

// others are the peer addresses of the other members.
func (n *Node) others() []string {
	var out []string
	for _, m := range n.members() {
		if m.ServerId != n.identity.ServerID {
			if addr := n.addressOf(m.ServerId); addr != "" {
				out = append(out, addr)
			}
		}
	}
	return out
}

// nodeOf is the node id of a server, or the server's own id if it is not a member.
func (n *Node) nodeOf(server string) string {
	if server == n.identity.ServerID {
		return n.identity.NodeID
	}
	for _, m := range n.members() {
		if m.ServerId == server {
			return m.NodeId
		}
	}
	return server
}

// serverAt is the server id of a peer given by server id or address, or the argument if this node does not know it.
func (n *Node) serverAt(peer string) string {
	peer, server, _ := strings.Cut(peer, "#")
	if server != "" {
		return server
	}
	for server, addr := range n.lookUp() {
		if addr == peer {
			return server
		}
	}
	return peer
}

// A Hint is what is heard of another server; see Config.Hints.
type Hint struct {
	NodeID, ServerID, PeerAddr, GRPCAddr, HTTPAddr, Version string
	// ClockOffset is how far its clock is before the median of all; 0 if unknown.
	ClockOffset time.Duration
}

func (n *Node) hints() []Hint {
	if n.cfg.Hints == nil {
		return nil
	}
	return n.cfg.Hints()
}

// Directory is the cluster's directory as this node knows it; nil before there is one. A node that is
// alone has one that says so. The caller must not change it.
func (n *Node) Directory() *commandv1.Directory {
	if n.identity.Alone() {
		d := directory.New(n.identity.ClusterID, n.identity.LogStore, n.identity.Partitions, []*commandv1.DirectoryMember{
			{NodeId: n.identity.NodeID, ServerId: n.identity.ServerID, PeerAddr: n.mux.Addr().String()}})
		for _, p := range d.Placements {
			p.Made = true
		}
		d.State = commandv1.DirectoryState_DIRECTORY_STATE_READY
		return d
	}
	return n.directory.current()
}
