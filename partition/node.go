package partition

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"perdure/fsm"
	"perdure/fsm/machine"
	"perdure/partition/raftlog"
	"perdure/partition/snapshot"
	"perdure/partition/stable"
	"perdure/partition/transport"
)

// Config is what the partitions of a node need. Zero durations and sizes are not filled in: the caller
// (embed) owns the defaults.
type Config struct {
	DataDir string
	// FS is the file system of all Pebble stores and of the small files; vfs.Default if nil. Raft's
	// stable store is on the real file system unless Stable replaces it.
	FS       vfs.FS
	NodeID   string
	PeerAddr string
	// Partitions is how many the cluster has; 0 accepts what the data says, and NewPartitions when there
	// is no data yet.
	Partitions, NewPartitions uint32
	LogStore                  string

	HeartbeatTimeout, ElectionTimeout, LeaderLease, CommitTimeout time.Duration
	MaxAppendEntries                                              int
	SnapshotThreshold, TrailingLogs                               uint64
	SnapshotInterval                                              time.Duration
	// SnapshotBytes of log since the last marker ask for a new one.
	SnapshotBytes int64

	CacheBytes         int64
	MemtableBytes      int64
	MaxPendingCommands int
	CheckInvariants    bool

	Logger     *slog.Logger
	Clock      Clock
	Rand       io.Reader // of cluster and server ids
	Registerer prometheus.Registerer
	// Stable replaces Raft's stable store, for simulators.
	Stable stable.Store
}

// Node is the partitions of one node.
type Node struct {
	cfg      Config
	identity Identity
	log      *slog.Logger
	clock    Clock

	cache    *pebble.Cache
	raftlog  *raftlog.Store
	stable   stable.Store
	mux      *transport.Mux
	replicas []*Replica
	router   *Router
	dispatch *Dispatcher
	watches  watches

	fatalOnce sync.Once
	fatalErr  error
	done      chan struct{}
	ready     chan struct{}
	readyOnce sync.Once
	closeOnce sync.Once
	closeErr  error
}

// Start opens or makes the stores of a node and starts its partitions. It refuses, by name, stores that
// are missing, foreign, damaged or newer than this program; nothing in them is changed. It returns
// before the partitions have leaders: see Ready.
func Start(cfg Config) (n *Node, err error) {
	if cfg.FS == nil {
		cfg.FS = vfs.Default
	}
	if cfg.Clock == nil {
		cfg.Clock = SystemClock{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	n = &Node{cfg: cfg, log: cfg.Logger, clock: cfg.Clock, dispatch: newDispatcher(), done: make(chan struct{}), ready: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.closeStores())
			n = nil
		}
	}()
	// 1. Who this node is. A directory that was never finished is made again: nothing was served from it.
	creating, err := n.identify()
	if err != nil {
		return n, err
	}
	// 2. The stores all groups share: the logs, and terms and votes.
	n.cache = pebble.NewCache(cfg.CacheBytes)
	if err := n.openShared(creating); err != nil {
		return n, err
	}
	// 3. The peer port, before any group that talks through it.
	if n.mux, err = transport.Listen(cfg.PeerAddr, transport.Options{
		ClusterID: n.identity.ClusterID, ServerID: n.identity.ServerID, Logger: raftLogger(n.log, "peer"),
	}); err != nil {
		return n, fmt.Errorf("peer port %s: %w", cfg.PeerAddr, err)
	}
	// 4. Each partition's state and markers, then its group.
	metrics, err := newMetricSet(cfg.Registerer)
	if err != nil {
		return n, err
	}
	n.router = &Router{watches: &n.watches}
	for p := range n.identity.Partitions {
		r, err := n.open(p, creating, metrics)
		if err != nil {
			return n, err
		}
		n.replicas = append(n.replicas, r)
	}
	n.router.replicas = n.replicas
	for _, r := range n.replicas {
		if err := n.join(r, creating); err != nil {
			return n, err
		}
	}
	// 5. From here on the directory counts: a store missing at the next start is a loss, not a beginning.
	if creating {
		n.identity.Ready = true
		if err := writeIdentity(cfg.FS, cfg.DataDir, n.identity); err != nil {
			return n, err
		}
	}
	for _, r := range n.replicas {
		r.run()
	}
	return n, nil
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// identify reads who this node is, or decides it.
func (n *Node) identify() (creating bool, err error) {
	cfg := &n.cfg
	if err := cfg.FS.MkdirAll(cfg.DataDir, 0o755); err != nil {
		return false, fmt.Errorf("data directory %s: %w", cfg.DataDir, err)
	}
	id, found, err := readIdentity(cfg.FS, cfg.DataDir)
	if err != nil {
		return false, err
	}
	if found && id.Ready {
		switch {
		case cfg.Partitions != 0 && cfg.Partitions != id.Partitions:
			return false, &IdentityError{cfg.FS.PathJoin(cfg.DataDir, identityFile),
				fmt.Sprintf("the data has %d partitions, the configuration says %d; their number is fixed when the cluster is made", id.Partitions, cfg.Partitions)}
		case cfg.NodeID != id.NodeID:
			return false, &IdentityError{cfg.FS.PathJoin(cfg.DataDir, identityFile),
				fmt.Sprintf("the data belongs to node %q, the configuration says %q", id.NodeID, cfg.NodeID)}
		}
		n.identity = id
		return false, nil
	}
	if !found {
		// Stores without an identity are somebody's data, not a beginning.
		names, err := cfg.FS.List(cfg.DataDir)
		if err != nil {
			return false, err
		}
		for _, name := range names {
			if isStoreName(name) {
				return false, &IdentityError{cfg.FS.PathJoin(cfg.DataDir, identityFile),
					"is missing, but the directory holds " + name + ": restore the file, or start with an empty directory"}
			}
		}
	}
	var random [24]byte
	if _, err := io.ReadFull(cfg.Rand, random[:]); err != nil {
		return false, err
	}
	if cfg.Partitions == 0 {
		cfg.Partitions = cfg.NewPartitions
	}
	n.identity = Identity{
		ClusterID: hex.EncodeToString(random[:16]), ServerID: cfg.NodeID + "-" + hex.EncodeToString(random[16:]),
		NodeID: cfg.NodeID, Partitions: cfg.Partitions, LogStore: cfg.LogStore,
	}
	if err := n.sweep(); err != nil {
		return false, err
	}
	return true, writeIdentity(cfg.FS, cfg.DataDir, n.identity)
}

const (
	raftLogDir = "raft-log"
	stableFile = "raft-stable.db"
)

func stateDir(p uint32) string  { return fmt.Sprintf("state-%04d", p) }
func markerDir(p uint32) string { return fmt.Sprintf("markers-%04d", p) }

func isStoreName(name string) bool {
	return name == raftLogDir || name == stableFile ||
		len(name) > 6 && name[:6] == "state-" || len(name) > 8 && name[:8] == "markers-"
}

// sweep removes the remains of a directory whose making was interrupted.
func (n *Node) sweep() error {
	names, err := n.cfg.FS.List(n.cfg.DataDir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if isStoreName(name) {
			if err := n.cfg.FS.RemoveAll(n.path(name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *Node) path(name string) string { return n.cfg.FS.PathJoin(n.cfg.DataDir, name) }

type stamped interface {
	Stamp() ([]byte, bool)
	SetStamp([]byte) error
}

// stamp marks a new store, or checks that an existing one is this node's.
func (n *Node) stamp(s stamped, name string, creating bool) error {
	want := n.identity.Stamp(name)
	if creating {
		return s.SetStamp(want)
	}
	have, ok := s.Stamp()
	if !ok {
		return &fsm.ForeignError{Dir: n.path(name), Have: nil, Want: want}
	}
	if string(have) != string(want) {
		return &fsm.ForeignError{Dir: n.path(name), Have: have, Want: want}
	}
	return nil
}

func (n *Node) openShared(creating bool) (err error) {
	if n.raftlog, err = raftlog.Open(n.path(raftLogDir), raftlog.Options{
		Backend: raftlog.Backend(n.identity.LogStore), MustCreate: creating, MustExist: !creating, FS: n.cfg.FS,
		Logger: raftLogger(n.log, "raftlog"), Cache: n.cache, MemTableBytes: uint64(n.cfg.MemtableBytes / 2), OnFatal: n.fatal,
	}); err != nil {
		return err
	}
	if err := n.stamp(n.raftlog, raftLogDir, creating); err != nil {
		return err
	}
	if n.cfg.Stable != nil {
		n.stable = n.cfg.Stable
	} else {
		file, err := stable.Open(n.path(stableFile), stable.Options{MustCreate: creating, MustExist: !creating, OnFatal: n.fatal})
		if err != nil {
			return err
		}
		n.stable = file
	}
	return n.stamp(n.stable, stableFile, creating)
}

// open opens what a partition keeps: its state and its markers.
func (n *Node) open(p uint32, creating bool, metrics *metricSet) (*Replica, error) {
	r := &Replica{
		id: p, partitions: n.identity.Partitions, address: n.mux.Addr().String(), log: n.log, clock: n.clock,
		metrics: metrics.of(p), dispatcher: n.dispatch, watches: &n.watches, deliver: n.router.Deliver,
		onServing: n.noteReady, queue: make(chan *proposal, n.cfg.MaxPendingCommands),
		slots: make(chan struct{}, maxInFlight), flights: make(chan *flight, maxInFlight),
		snapshotBytes: n.cfg.SnapshotBytes,
		stopping:      make(chan struct{}), ledDone: make(chan struct{}), resolved: make(chan struct{}),
		killed: make(chan struct{}), stopped: make(chan struct{}),
	}
	dir := n.path(stateDir(p))
	if !creating {
		if err := fsm.Recover(n.cfg.FS, dir); err != nil {
			return nil, err
		}
	}
	var err error
	if r.store, err = fsm.Open(dir, fsm.Options{
		FS: n.cfg.FS, Cache: n.cache, MemTableBytes: uint64(n.cfg.MemtableBytes) / uint64(n.identity.Partitions),
		Machine: machine.Config{Partition: p, Partitions: n.identity.Partitions, CheckInvariants: n.cfg.CheckInvariants},
		Create:  creating, Stamp: n.identity.Stamp(stateDir(p)),
		Logger: pebbleLogger{n.log, r.halt}, OnFatal: r.halt,
	}); err != nil {
		return nil, err
	}
	if r.snapshots, err = snapshot.Open(n.path(markerDir(p)), snapshot.Options{
		Group: p, FS: n.cfg.FS, Logger: raftLogger(n.log, "markers"), MustCreate: creating,
		Cover:   func(m snapshot.Marker) error { return r.store.Cover(m.Index) },
		Content: n.content(r), Receive: n.receive(r), Discard: n.discard(r),
	}); err != nil {
		return nil, errors.Join(err, r.store.Close())
	}
	if err := n.reconcile(r); err != nil {
		return nil, errors.Join(err, r.store.Close())
	}
	return r, nil
}

// LostError says that two stores of a partition do not fit together: something acknowledged is missing.
type LostError struct {
	Partition uint32
	Detail    string
}

func (e *LostError) Error() string {
	return fmt.Sprintf("partition %d: refusing to serve: %s", e.Partition, e.Detail)
}

// reconcile checks that state, markers and log fit together before anything is served.
func (n *Node) reconcile(r *Replica) error {
	st, err := r.store.Status()
	if err != nil {
		return err
	}
	log := n.raftlog.Group(r.id)
	first, err := log.FirstIndex()
	if err != nil {
		return err
	}
	last, err := log.LastIndex()
	if err != nil {
		return err
	}
	marked := uint64(0)
	if markers := r.snapshots.Markers(); len(markers) > 0 {
		newest := markers[0]
		for _, m := range markers {
			if m.Seq > newest.Seq {
				newest = m
			}
		}
		marked = newest.Index
		if newest.Origin == snapshot.Received && marked > max(st.Covered, st.Applied) {
			// Received and not installed before a crash.
			_, content, err := r.snapshots.Open(newest.ID)
			if err != nil {
				return err
			}
			if err := r.store.Restore(content); err != nil {
				return err
			}
			if err := r.store.Cover(marked); err != nil {
				return err
			}
			if st, err = r.store.Status(); err != nil {
				return err
			}
		}
	}
	switch {
	case marked > max(st.Covered, st.Applied):
		return &LostError{r.id, fmt.Sprintf("a marker says that the state covers index %d, the state covers %d: state was lost", marked, max(st.Covered, st.Applied))}
	case st.Applied > max(last, marked):
		return &LostError{r.id, fmt.Sprintf("the state has index %d, the log ends at %d: log entries were lost", st.Applied, last)}
	case first > marked+1:
		return &LostError{r.id, fmt.Sprintf("the log begins at index %d, the newest marker is at %d: entries between are missing", first, marked)}
	}
	return nil
}

// join starts a partition's group.
func (n *Node) join(r *Replica, creating bool) error {
	cfg := raft.DefaultConfig()
	cfg.LocalID = raft.ServerID(n.identity.ServerID)
	cfg.HeartbeatTimeout, cfg.ElectionTimeout = n.cfg.HeartbeatTimeout, n.cfg.ElectionTimeout
	cfg.LeaderLeaseTimeout, cfg.CommitTimeout = n.cfg.LeaderLease, n.cfg.CommitTimeout
	cfg.MaxAppendEntries = n.cfg.MaxAppendEntries
	cfg.SnapshotThreshold, cfg.SnapshotInterval, cfg.TrailingLogs = n.cfg.SnapshotThreshold, n.cfg.SnapshotInterval, n.cfg.TrailingLogs
	cfg.BatchApplyCh = true
	cfg.NoLegacyTelemetry = true
	// The state is durable by itself; reconcile has checked that it covers the newest marker.
	cfg.NoSnapshotRestoreOnStart = true
	cfg.ShutdownOnRemove = false
	cfg.Logger = raftLogger(n.log, fmt.Sprintf("raft-%d", r.id))
	logs, err := raft.NewLogCache(512, n.raftlog.Group(r.id))
	if err != nil {
		return err
	}
	terms := n.stable.Group(r.id)
	r.transport = transport.NewRaftTransport(n.mux.Raft(r.id), transport.RaftOptions{Logger: cfg.Logger})
	if creating {
		if err := raft.BootstrapCluster(cfg, logs, terms, r.snapshots, r.transport, raft.Configuration{
			Servers: []raft.Server{{ID: cfg.LocalID, Address: raft.ServerAddress(r.address)}},
		}); err != nil {
			return fmt.Errorf("partition %d: bootstrap: %w", r.id, err)
		}
	}
	if r.raft, err = raft.NewRaft(cfg, r.store, logs, terms, r.snapshots, r.transport); err != nil {
		return fmt.Errorf("partition %d: %w", r.id, err)
	}
	return nil
}

// fatal ends the node: a store that all groups share cannot be trusted any more.
func (n *Node) fatal(err error) {
	n.fatalOnce.Do(func() {
		n.fatalErr = err
		n.log.Error("node halted", "event", "node_halted", "error", err)
		close(n.done)
	})
}

// Done is closed when the node has halted by itself; Err says why.
func (n *Node) Done() <-chan struct{} { return n.done }

// Err is why the node has halted, or nil.
func (n *Node) Err() error {
	select {
	case <-n.done:
		return n.fatalErr
	default:
		return nil
	}
}

func (n *Node) noteReady() {
	if n.NotReady() == nil {
		n.readyOnce.Do(func() { close(n.ready) })
	}
}

// Ready is closed once every partition has served.
func (n *Node) Ready() <-chan struct{} { return n.ready }

// NotReady says why the node cannot serve every partition now, or nil.
func (n *Node) NotReady() error {
	if err := n.Err(); err != nil {
		return err
	}
	var errs []error
	for _, r := range n.router.replicas {
		switch halted := r.halted(); {
		case halted != nil:
			errs = append(errs, fmt.Errorf("partition %d has halted: %w", r.id, halted))
		case r.serving() == nil:
			errs = append(errs, fmt.Errorf("partition %d has no serving leader", r.id))
		}
	}
	return errors.Join(errs...)
}

// Identity is who the node is.
func (n *Node) Identity() Identity { return n.identity }

// Router brings requests to partitions.
func (n *Node) Router() *Router { return n.router }

// Dispatcher brings tasks to workers.
func (n *Node) Dispatcher() *Dispatcher { return n.dispatch }

// PeerAddr is the address of the peer port.
func (n *Node) PeerAddr() string { return n.mux.ListenAddr().String() }

// Close stops the partitions in order: no new work, Raft down, connections closed, states flushed, logs
// closed. It waits at most until ctx ends for Raft; then it closes the stores all the same.
func (n *Node) Close(ctx context.Context) error {
	n.closeOnce.Do(func() {
		var errs []error
		shutdowns := make([]raft.Future, len(n.replicas))
		for i, r := range n.replicas {
			shutdowns[i] = r.beginStop()
			if t, ok := r.transport.(raft.WithClose); ok {
				errs = append(errs, t.Close())
			}
		}
		errs = append(errs, n.mux.Close())
		for i, r := range n.replicas {
			errs = append(errs, r.finishStop(ctx, shutdowns[i]))
		}
		n.replicas = nil
		errs = append(errs, n.closeStores())
		n.closeErr = errors.Join(errs...)
	})
	return n.closeErr
}

// closeStores closes what Start has opened, also when it failed halfway.
func (n *Node) closeStores() error {
	var errs []error
	for _, r := range n.replicas {
		if r.raft != nil {
			errs = append(errs, r.raft.Shutdown().Error())
		}
		errs = append(errs, r.store.Close())
	}
	if n.mux != nil {
		errs = append(errs, n.mux.Close())
	}
	if n.raftlog != nil {
		errs = append(errs, n.raftlog.Close())
	}
	if n.stable != nil {
		errs = append(errs, n.stable.Close())
	}
	if n.cache != nil {
		n.cache.Unref()
		n.cache = nil
	}
	return errors.Join(errs...)
}
