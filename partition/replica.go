package partition

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/hashicorp/raft"
	"golang.org/x/sync/semaphore"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm"
	"perdure/partition/disk"
	"perdure/partition/raftgroup"
	"perdure/partition/raftlog"
	"perdure/partition/repair"
	"perdure/partition/snapshot"
	"perdure/partition/workers"
)

// Replica is this node's member of one partition's group.
type Replica struct {
	id         uint32
	partitions uint32
	address    string
	log        *slog.Logger
	clock      Clock
	// now is the time that the state sees: see Node.now.
	now        func() time.Time
	disk       *diskSpace // nil in tests of parts
	metrics    metrics
	dispatcher *workers.Dispatcher
	watches    *watches

	raft      *raft.Raft
	store     *fsm.Store
	snapshots *snapshot.Store
	transport raft.Transport
	// acks are the answers to this server's requests in the group; server is its id there.
	acks   raftgroup.Acknowledgements
	server raft.ServerID
	// deliver hands a command to another partition.
	deliver func(ctx context.Context, partition uint32, cmd *commandv1.Command) (*commandv1.Reply, error)
	// shipping is shared by the node's shipments: shipNodeBytes.
	shipping *semaphore.Weighted
	// bulk is shared by the node's large commands.
	bulk    *bulk
	inbound inbound
	// onServing is called when this replica begins to serve.
	onServing func()
	// clusterLevel is the cluster's feature level; nil in tests of parts.
	clusterLevel *clusterLevel
	// mayAnswer returns why the node must not answer without asking the others; see Node.mayAnswer.
	mayAnswer func(leads bool) error

	pending *pending
	slots   chan struct{}
	flights chan *flight
	lead    atomic.Pointer[leadership]
	// leads wakes when a leadership begins to serve, or ends.
	leads signal
	known atomic.Pointer[knownLeader]
	// caught: this replica has caught up with its leader since the start. behind is how many entries it
	// lacked at the last check.
	caught   atomic.Bool
	behind   atomic.Uint64
	confirms confirmer
	// unclaimed counts the entries whose effects found no leadership to perform them.
	unclaimed atomic.Uint64

	// entries caches the log for Raft. group is raft, for code that runs before NewRaft has returned.
	entries       *raftlog.Cache
	group         atomic.Pointer[raft.Raft]
	bounds        logBounds
	snapshotBytes int64
	trailingBytes int64
	trailingLogs  uint64

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
		return k.addr
	}
	return ""
}

func (r *Replica) notifyServing() {
	r.leads.wake()
	r.dispatcher.Serving()
	if r.onServing != nil {
		r.onServing()
	}
}

// halted returns why this replica has stopped for good, or nil.
func (r *Replica) halted() error {
	if p := r.haltErr.Load(); p != nil {
		return *p
	}
	return nil
}

// halt stops this replica alone, for good: its state cannot be trusted. It leaves the files as they are, and
// logs why.
func (r *Replica) halt(err error) {
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
			return r.halted()
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
		return r.halted()
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

// run starts the replica's loops. Raft is running already, unless the replica halted before it could.
func (r *Replica) run() {
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

// ReplicaStatus is a replica's figures for operators.
type ReplicaStatus struct {
	Partition uint32
	State     string
	Leader    string
	Term      uint64
	LastIndex uint64
	Serving   bool
	Halted    string
	fsm.Status
}

// Status reads the replica's figures.
func (r *Replica) Status() ReplicaStatus {
	st := ReplicaStatus{Partition: r.id, State: raft.Shutdown.String(), Leader: r.leaderHint(), Serving: r.serving() != nil}
	if r.raft != nil {
		st.State, st.Term, st.LastIndex = r.raft.State().String(), r.raft.CurrentTerm(), r.raft.LastIndex()
	}
	if err := r.halted(); err != nil {
		st.Halted = err.Error()
		return st
	}
	var err error
	if st.Status, err = r.store.Status(); err != nil {
		st.Halted = err.Error()
	}
	return st
}

// Cover makes the state durable up to what is applied and asks Raft for a marker.
func (r *Replica) Cover() error {
	err := raftgroup.Await(r.raft.Snapshot(), r.killed, nil)
	if errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return nil
	}
	return err
}

// ID is the partition's number.
func (r *Replica) ID() uint32 { return r.id }
