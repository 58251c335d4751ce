package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"golang.org/x/sync/semaphore"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm"
	"perdure/internal/clock"
	"perdure/partition/addresses"
	"perdure/partition/admission"
	"perdure/partition/disk"
	"perdure/partition/groupmetrics"
	"perdure/partition/identity"
	"perdure/partition/quota"
	"perdure/partition/raftgroup"
	"perdure/partition/raftlog"
	"perdure/partition/raftlogger"
	"perdure/partition/repair"
	"perdure/partition/snapshot"
	"perdure/partition/transport"
	"perdure/partition/watch"
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
	// Admit charges a command to its namespace's quotas, or refuses it; exists reports whether the execution that it would start
	// exists. Nil without quotas.
	Admit func(cmd *commandv1.Command, exists func() bool) (quota.Charge, *api.Error)
	// DisksStuck reports that a majority's disks are critical, so that no leader proposes. It must not block.
	DisksStuck func() bool
	// ClientRetry is after what time a leader tells the address of a pending client task again; 0 means 30 s.
	ClientRetry time.Duration
}

// Shared is what all groups of a node share. It is safe for concurrent use.
type Shared struct {
	Watches    watch.Set
	Admission  *admission.Pool
	Dispatcher *workers.Dispatcher   // set before the first group is opened
	Addresses  *addresses.Dispatcher // likewise
	bulk       *bulk
	// shipping is the groups' shipments under way: shipNodeBytes.
	shipping *semaphore.Weighted
}

// NewShared makes what the groups of a node share.
func NewShared(c clock.Clock, limits admission.Limits) *Shared {
	return &Shared{Admission: admission.New(limits), bulk: newBulk(c), shipping: semaphore.NewWeighted(shipNodeBytes)}
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
	// Port is the peer port, and Address its; Addresses finds the other members.
	Port      *transport.Mux
	Address   string
	Addresses raft.ServerAddressProvider

	Disk      *disk.Guard // nil in tests of parts
	Contents  *repair.Contents
	Shared    *Shared
	Metrics   *groupmetrics.Set
	Libraries *raftlogger.Logger
	Log       *slog.Logger
	Clock     clock.Clock
	Env       Env
}

// Replica is this node's member of one partition's group. It is made of parts: the proposer puts commands into
// the log, the reader answers reads, the leader performs a leader's duties, the trailing part bounds the log.
type Replica struct {
	core
	proposer
	reader
	leader
	trailing

	snapshots *snapshot.Store
	transport *transport.RaftTransport
	// logs and terms are the group's in the stores that all groups of the node share.
	logs  raftlog.Log
	terms raft.StableStore

	// Found at start: the state's figures, the newest marker's index, and the marker whose
	// received content is not installed yet.
	found   fsm.Status
	marked  uint64
	install string

	// caught: this replica has caught up with its leader since the start. behind is how many entries it
	// lacked at the last check.
	caught atomic.Bool
	behind atomic.Uint64
	// cutEnded is the last cut whose checkpoint was made, or failed, or was there at the start.
	cutEnded atomic.Uint64
	// audited is the report of the last background audit; nil before the first has ended.
	audited atomic.Pointer[perdurev1.ReplicaAudit]

	// opening is closed when the last database that await opened is open, refused, or closed again.
	opening atomic.Pointer[chan struct{}]
	// hung: Pebble has met a fatal error, after which its calls never return.
	hung atomic.Bool
}

// New makes a replica whose stores are not opened yet.
func New(o Options) *Replica {
	r := &Replica{core: core{
		opts: o, id: o.ID, log: o.Log, clock: o.Clock, env: o.Env, disk: o.Disk, metrics: o.Metrics.Of(o.ID),
		dispatcher: o.Shared.Dispatcher, addresses: o.Shared.Addresses, watches: &o.Shared.Watches,
		tracker: tracker{address: o.Address, changed: o.Env.Changed},
	}}
	r.lifecycle.init()
	r.leader = leader{core: &r.core, member: forWorkers{r}, commands: &r.proposer, shipping: o.Shared.shipping, takeDown: r.takeDown}
	r.proposer = proposer{core: &r.core, perform: r.leader.perform, bulk: o.Shared.bulk, pending: newPending(o.MaxPending, o.Shared.Admission, o.Shared.bulk),
		slots: make(chan struct{}, maxInFlight), flights: make(chan *flight, maxInFlight), landings: make(chan landing, maxInFlight)}
	r.reader = reader{core: &r.core}
	r.trailing = trailing{core: &r.core}
	return r
}

// Transport carries the group's messages; nil until Join.
func (r *Replica) Transport() *transport.RaftTransport { return r.transport }

// Store is the replica's state, for reads; nil until Open.
func (r *Replica) Store() *fsm.Store { return r.store }

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
		if r.isStopping() && r.disk != nil {
			if err := r.disk.CheckFlush(); err != nil {
				return fmt.Errorf("the state is not flushed: %w", err)
			}
		}
	}
}

// hang halts the replica after a fatal error of Pebble.
func (r *Replica) hang(err error) {
	r.hung.Store(true)
	r.Halt(err)
}

// await blocks until a database of the state is open. It gives up when the replica has halted, for the same
// reason as flush. The abandoned database holds the directory until opening is closed; Close waits for that.
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

// Run starts the replica's loops, which end with Close. Join comes before it, unless the replica has halted. The
// metrics show this replica from now on, instead of an earlier one of the partition.
func (r *Replica) Run() {
	r.opts.Metrics.Follow(figures{r}, r.raft)
	if r.raft == nil {
		close(r.ledDone)
		close(r.resolved)
		r.takeDown() // damage found after the state was opened has left it open
		return
	}
	go r.proposeLoop()
	go r.bulkLoop()
	go r.resolveLoop()
	go r.leaderLoop()
	go r.follow(r.raft, r.stopping, r.halting)
}

// Cover makes the state durable up to what is applied and asks Raft for a marker.
func (r *Replica) Cover() error {
	err := raftgroup.Await(r.raft.Snapshot(), r.killed, nil)
	if errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return nil
	}
	return err
}
