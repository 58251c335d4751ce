package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"golang.org/x/sync/semaphore"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm"
	"perdure/internal/clock"
	"perdure/partition/disk"
	"perdure/partition/identity"
	"perdure/partition/raftgroup"
	"perdure/partition/raftlog"
	"perdure/partition/raftlogger"
	"perdure/partition/repair"
	"perdure/partition/snapshot"
	"perdure/partition/transport"
	"perdure/partition/workers"
)

// Env is what a group needs of the node around it. Any goroutine may call its functions.
type Env struct {
	// Now is the time that the state sees: see cluster.Member.Now.
	Now func() time.Time
	// Deliver puts a command into another partition's log, on whichever node leads it. It blocks until that
	// node has answered, or ctx ends.
	Deliver func(ctx context.Context, partition uint32, cmd *commandv1.Command) (*commandv1.Reply, error)
	// Changed is called when the replica begins to serve, and when it learns of another leader. It must not
	// block.
	Changed func()
	// MayAnswer returns why the node must not answer a read without asking the others, or nil; leads says that
	// this replica serves. It must not block.
	MayAnswer func(leads bool) error
	// ClusterLevel is the cluster's feature level, and a channel that is closed when it rises. Nil in tests of
	// parts: every command passes.
	ClusterLevel func() (level uint64, changed <-chan struct{})
	// DiskLevel is the level at which a majority of the replicas can store an entry of this node. It must not
	// block.
	DiskLevel func() disk.Level
}

// Shared is what all groups of a node share. It is safe for concurrent use.
type Shared struct {
	Watches    Watches
	Admission  *Admission
	Dispatcher *workers.Dispatcher // set before the first group is opened
	bulk       *bulk
	// shipping is the groups' shipments under way: shipNodeBytes.
	shipping *semaphore.Weighted
}

// NewShared makes what the groups of a node share.
func NewShared(c clock.Clock, limits Limits) *Shared {
	return &Shared{Admission: newAdmission(limits), bulk: newBulk(c), shipping: semaphore.NewWeighted(shipNodeBytes)}
}

// Options are New's. None of them changes.
type Options struct {
	ID, Partitions uint32
	// Identity is the server's, whose stamps its stores carry. They are in Dir on FS.
	Identity identity.Identity
	FS       vfs.FS
	Dir      string
	// Cache and MemTableBytes are for the state's store.
	Cache           *pebble.Cache
	MemTableBytes   uint64
	CheckInvariants bool
	// MaxPending bounds how many commands wait for the log.
	MaxPending int
	// SnapshotBytes of log since the last marker ask for a new one; at most TrailingBytes stay before a marker.
	SnapshotBytes, TrailingBytes int64

	// Raft makes the configuration of the group, to be logged under a name.
	Raft func(name string) *raft.Config
	// Port is the peer port; Addresses finds the other members.
	Port      *transport.Mux
	Addresses raft.ServerAddressProvider

	Disk      *disk.Guard // nil in tests of parts
	Contents  *repair.Contents
	Shared    *Shared
	Metrics   *MetricSet
	Libraries *raftlogger.Logger
	Log       *slog.Logger
	Clock     clock.Clock
	Env       Env
}

// Replica is this node's member of one partition's group.
type Replica struct {
	opts       Options
	id         uint32
	address    string // of the node's peer port
	log        *slog.Logger
	clock      clock.Clock
	env        Env
	disk       *disk.Guard // nil in tests of parts
	metrics    metrics
	dispatcher *workers.Dispatcher
	watches    *Watches

	raft      *raft.Raft
	store     *fsm.Store
	snapshots *snapshot.Store
	transport *transport.RaftTransport
	// acks are the answers to this server's requests in the group; server is its id there.
	acks   raftgroup.Acknowledgements
	server raft.ServerID
	// shipping is shared by the node's shipments: shipNodeBytes.
	shipping *semaphore.Weighted
	// bulk is shared by the node's large commands.
	bulk    *bulk
	inbound inbound

	pending *pending
	slots   chan struct{}
	flights chan *flight
	lead    atomic.Pointer[leadership]
	// leads wakes when a leadership begins to serve, or ends.
	leads signal
	known atomic.Pointer[Leader]
	// caught: this replica has caught up with its leader since the start. behind is how many entries it
	// lacked at the last check.
	caught   atomic.Bool
	behind   atomic.Uint64
	confirms confirmer
	// unclaimed counts the entries whose effects found no leadership to perform them.
	unclaimed atomic.Uint64

	// entries caches the log for Raft. group is raft, for code that runs before NewRaft has returned.
	entries      *raftlog.Cache
	group        atomic.Pointer[raft.Raft]
	bounds       logBounds
	trailingLogs uint64

	// logs and terms are the group's in the stores that all groups of the node share.
	logs  raftlog.Log
	terms raft.StableStore

	// Found at start: the state's figures, the newest marker's index, and the marker whose
	// received content is not installed yet.
	found   fsm.Status
	marked  uint64
	install string

	haltOnce sync.Once
	haltErr  atomic.Pointer[error]
	halting  chan struct{} // closed when haltErr is set

	// stopping: no new work. ledDone: the leader loop has ended. resolved: the last entry was answered.
	// raftDown: nothing of Raft runs any more. killed: futures are abandoned. storeClosed: the state is
	// closed. stopped: no caller will get an answer any more.
	stopping, ledDone, resolved, raftDown, killed, storeClosed, stopped chan struct{}

	stopOnce, downOnce, closeOnce sync.Once
	downErr, closeErr             error // set before raftDown and storeClosed are closed

	// audited is the report of the last background audit; nil before the first has ended.
	audited atomic.Pointer[perdurev1.ReplicaAudit]

	// opening is closed when the last database that await opened is open, refused, or closed again.
	opening atomic.Pointer[chan struct{}]
}

// New makes a replica whose stores are not opened yet.
func New(o Options) *Replica {
	return &Replica{
		opts: o, id: o.ID, address: o.Port.Addr().String(), log: o.Log, clock: o.Clock, env: o.Env, disk: o.Disk, metrics: o.Metrics.of(o.ID),
		dispatcher: o.Shared.Dispatcher, watches: &o.Shared.Watches, shipping: o.Shared.shipping, bulk: o.Shared.bulk,
		pending: newPending(o.MaxPending, o.Shared.Admission, o.Shared.bulk),
		slots:   make(chan struct{}, maxInFlight), flights: make(chan *flight, maxInFlight),
		stopping: make(chan struct{}), halting: make(chan struct{}), raftDown: make(chan struct{}), storeClosed: make(chan struct{}),
		ledDone: make(chan struct{}), resolved: make(chan struct{}),
		killed: make(chan struct{}), stopped: make(chan struct{}),
	}
}

// ID is the partition's number.
func (r *Replica) ID() uint32 { return r.id }

// Raft is this server's member of the group; nil until Join, and for a replica that halted before it.
func (r *Replica) Raft() *raft.Raft { return r.raft }

// Term is the latest term that this server knows of the group; 0 until Join.
func (r *Replica) Term() uint64 {
	if r.raft == nil {
		return 0
	}
	return r.raft.CurrentTerm()
}

// Transport carries the group's messages; nil until Join.
func (r *Replica) Transport() *transport.RaftTransport { return r.transport }

// Store is the replica's state, for reads; nil until Open.
func (r *Replica) Store() *fsm.Store { return r.store }

// Stopping is closed when the replica begins to stop.
func (r *Replica) Stopping() <-chan struct{} { return r.stopping }

// Serving reports whether this replica leads the group and serves it.
func (r *Replica) Serving() bool { return r.serving() != nil }

// serving returns the present leadership, or nil.
func (r *Replica) serving() *leadership { return r.lead.Load() }

func (r *Replica) isStopping() bool {
	select {
	case <-r.stopping:
		return true
	default:
		return false
	}
}

func (r *Replica) leaderHint() string {
	if k := r.known.Load(); k != nil {
		return k.Addr
	}
	return ""
}

func (r *Replica) notifyServing() {
	r.leads.wake()
	r.dispatcher.Serving()
	r.changed()
}

// changed reports a change of the leader to the node.
func (r *Replica) changed() {
	if r.env.Changed != nil {
		r.env.Changed()
	}
}

// Halted returns why this replica has stopped for good, or nil.
func (r *Replica) Halted() error {
	if p := r.haltErr.Load(); p != nil {
		return *p
	}
	return nil
}

// Halt stops this replica alone, for good: its state cannot be trusted. It leaves the files as they are, and
// logs why.
func (r *Replica) Halt(err error) {
	r.haltOnce.Do(func() {
		r.haltErr.Store(&err)
		if l := r.lead.Swap(nil); l != nil {
			l.cancel()
		}
		if errors.Is(err, repair.ErrRebuilding) {
			r.log.Info("replica taken down for a rebuild", "event", "replica_rebuilding", "partition", r.id)
		} else {
			r.log.Error("partition halted", "event", "partition_halted", "partition", r.id, "error", err)
		}
		close(r.halting)
	})
}

// SetHalted replaces the reason why this replica has halted.
func (r *Replica) SetHalted(why error) { r.haltErr.Store(&why) }

// flush makes the state durable, and blocks meanwhile. It gives up when the replica has halted, since Pebble
// retries for ever what cannot succeed.
func (r *Replica) flush(db *pebble.DB) error {
	flushed, err := db.AsyncFlush()
	if err != nil {
		return err
	}
	for {
		c, stop := r.clock.After(time.Second)
		select {
		case <-flushed:
			stop()
			return nil
		case <-r.halting:
			stop()
			return r.Halted()
		case <-c:
		}
		// A node that stops does not wait for space: the log has what the state lacks.
		if r.isStopping() && r.disk != nil && r.disk.Level() == disk.Full {
			return fmt.Errorf("the state is not flushed: %w", r.disk.Check(0, disk.Full))
		}
	}
}

// await blocks until a database of the state is open. It gives up when the replica has halted, for the same
// reason as flush. The abandoned database holds the directory until opening is closed.
func (r *Replica) await(open func() error) error {
	opened, over := make(chan error, 1), make(chan struct{})
	r.opening.Store(&over)
	go func() {
		defer close(over)
		opened <- open()
	}()
	select {
	case err := <-opened:
		return err
	case <-r.halting:
		return r.Halted()
	}
}

// lifetime is a context that ends with the replica, for commands of its own.
func (r *Replica) lifetime() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	go func() {
		select {
		case <-r.stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// Run starts the replica's loops, which end with Close. Join comes before it, unless the replica has halted. The
// metrics show this replica from now on, instead of an earlier one of the partition.
func (r *Replica) Run() {
	r.metrics.scraper.follow(r)
	if r.raft == nil {
		close(r.ledDone)
		close(r.resolved)
		r.shutdown()
		// Damage found after the state was opened has left it open.
		go r.closeState()
		return
	}
	go r.proposeLoop()
	go r.bulkLoop()
	go r.resolveLoop()
	go r.leaderLoop()
	go r.followLeader()
}

// Cover makes the state durable up to what is applied and asks Raft for a marker.
func (r *Replica) Cover() error {
	err := raftgroup.Await(r.raft.Snapshot(), r.killed, nil)
	if errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return nil
	}
	return err
}
