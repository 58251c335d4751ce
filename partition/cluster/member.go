package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	commandv1 "perdure/api/command/v1"
	dirfsm "perdure/fsm/directory"
	"perdure/internal/clock"
	"perdure/partition/identity"
	"perdure/partition/transport"
)

// Group is the number of the directory's Raft group. Partitions count from 0.
const Group = 1 << 31

// changeTimeout bounds one change of a group or of the directory.
const changeTimeout = 10 * time.Second

// Env is what a member needs of the node around it.
type Env interface {
	// Group returns this node's member of a partition's group, nil while it does not run, and whether the replica has
	// halted.
	Group(partition uint32) (g *raft.Raft, halted bool)
	// Campaign has this node campaign for a group that it has just made. It does not block.
	Campaign(group uint32)
	// Peer is the Peers service of the node at an address. It does no I/O.
	Peer(addr string) (commandv1.PeersClient, error)
	// Halt stops the node for good. It does not block.
	Halt(why error)
	// Changed is called after each change of the directory, with no lock held. It must not block.
	Changed()
	// Check is called in each round of control, while ctx lasts.
	Check(ctx context.Context)
	// ClockJumped is called when Now has jumped, so that timers are set again.
	ClockJumped()
	// Levels asks members which feature levels their programs know, by server id; it leaves out those that do
	// not answer.
	Levels(ctx context.Context, members []*commandv1.DirectoryMember) map[string]uint64
	// StateLevel is the highest feature level that a state on this node has reached.
	StateLevel() uint64
	// Elected is called when this node begins or ceases to lead the directory.
	Elected(leads bool)
}

// A Hint is one server's gossip report.
type Hint struct {
	NodeID, ServerID, PeerAddr, GRPCAddr, HTTPAddr, Version string
	// ClockOffset is how far its clock is before the median of all; 0 if unknown.
	ClockOffset time.Duration
}

// Options are New's.
type Options struct {
	Env      Env
	Identity *identity.File
	DataDir  string
	Log      *slog.Logger
	Clock    clock.Clock
	// Hints are the servers that gossip knows, this one too; nil for none. It must not block.
	Hints func() []Hint
	// Ahead is how far the clock is before the median of all members' clocks; nil for a node alone.
	Ahead func() time.Duration
	// FeatureLevel is the newest that this program knows; 0 for state.FeatureLevel. AutoUpgrade raises the
	// cluster's as soon as every member knows a newer one.
	FeatureLevel uint64
	AutoUpgrade  bool
	// Lifetime ends when the node begins to stop, Halted is closed when it has halted by itself.
	Lifetime context.Context
	Halted   <-chan struct{}
}

// Member is this server's membership in its cluster. A node alone has one too: it is always the only member, has no
// directory group and runs no loops. All methods may be called concurrently, once Bind has returned.
type Member struct {
	Options                   // none of them changes
	self    identity.Identity // ids, founders and number of members do not change
	port    *transport.Mux
	skew    skew

	// The directory's group: nil for a node alone. machine belongs to the Raft library's goroutine.
	raft      *raft.Raft
	transport *transport.RaftTransport
	machine   dirfsm.Machine
	state     atomic.Pointer[commandv1.Directory]
	confirmed atomic.Uint64 // the term in which this replica has passed a barrier

	mayFound atomic.Bool
	signal   chan struct{}                     // has control begin a round
	book     atomic.Pointer[map[string]string] // peer addresses by server id
	noted    bool                              // by control: the identity says that this server is a member, and since when

	common    common
	announced announcing // control's

	replaced atomic.Pointer[error] // set once this server is known to have been replaced
	former   sync.Map              // server ids that were members and are none any more
	checked  chan struct{}         // closed when the membership is known, or no member answered one round of questions
	once     sync.Once

	mu     sync.Mutex
	warned map[string]time.Time // when a server's refused calls were last logged

	loops sync.WaitGroup
}

// New makes the membership of a node. Before Bind, only IsMember, Removed, NodeOf and ServerAt may be called.
func New(o Options) *Member {
	m := &Member{Options: o, self: o.Identity.Identity(), signal: make(chan struct{}, 1), checked: make(chan struct{})}
	m.skew = skew{clock: o.Clock, ahead: o.Ahead, log: o.Log}
	return m
}

// Bind gives the member its peer port. A node alone has its directory from here on.
func (m *Member) Bind(port *transport.Mux) {
	m.port = port
	if !m.self.Alone() {
		return
	}
	d := dirfsm.New(m.self.ClusterID, m.self.LogStore, m.self.Partitions, []*commandv1.DirectoryMember{
		{NodeId: m.self.NodeID, ServerId: m.self.ServerID, PeerAddr: port.Addr().String()}})
	for _, p := range d.Placements {
		p.Created = true
	}
	d.State = commandv1.DirectoryState_DIRECTORY_STATE_READY
	m.state.Store(d)
	close(m.checked)
}

// StartDirectory starts the directory's group. cfg is changed; answered is called with each server that answers.
func (m *Member) StartDirectory(cfg *raft.Config, logs raft.LogStore, terms raft.StableStore, answered func(peer string)) (err error) {
	// Snapshots are off: the log is short, and it is the only copy of the directory.
	cfg.SnapshotThreshold, cfg.TrailingLogs, cfg.SnapshotInterval = 1<<62, 1<<62, 24*time.Hour
	cfg.BatchApplyCh = false
	m.transport = transport.NewRaftTransport(m.port.Raft(Group), transport.RaftOptions{Logger: cfg.Logger, Addresses: m.Addresses(), Answered: answered})
	if m.raft, err = raft.NewRaft(cfg, fsm{m}, logs, terms, raft.NewDiscardSnapshotStore(), m.transport); err != nil {
		return fmt.Errorf("directory: %w", err)
	}
	m.loops.Go(m.watchElections)
	return nil
}

// watchElections reports the leaderships of this node, until it stops.
func (m *Member) watchElections() {
	for {
		select {
		case leads := <-m.raft.LeaderCh():
			m.Env.Elected(leads)
		case <-m.Lifetime.Done():
			return
		}
	}
}

// Run starts control and the membership check, which run until Lifetime ends. A node alone has neither.
func (m *Member) Run() {
	if m.self.Alone() {
		return
	}
	m.loops.Go(m.control)
	m.loops.Go(m.watchMembership)
}

// Stop waits until the loops have ended, or ctx ends. Lifetime must have ended.
func (m *Member) Stop(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		m.loops.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// Shutdown takes the directory's group down. The future's Error waits for it; nil for a node alone.
func (m *Member) Shutdown() raft.Future {
	if m.raft == nil {
		return nil
	}
	return m.raft.Shutdown()
}

// CloseTransport ends the connections of the directory's group.
func (m *Member) CloseTransport() error {
	if m.transport == nil {
		return nil
	}
	return m.transport.Close()
}

// pause waits for d; false if ctx ended before.
func (m *Member) pause(ctx context.Context, d time.Duration) bool {
	c, stop := m.Clock.After(d)
	defer stop()
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}
