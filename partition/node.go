package partition

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm"
	"perdure/fsm/state"
	"perdure/internal/clock"
	"perdure/partition/addresses"
	"perdure/partition/admission"
	"perdure/partition/auditor"
	"perdure/partition/cluster"
	"perdure/partition/disk"
	"perdure/partition/election"
	"perdure/partition/group"
	"perdure/partition/identity"
	"perdure/partition/peers"
	"perdure/partition/quota"
	"perdure/partition/raftlog"
	"perdure/partition/raftlogger"
	"perdure/partition/repair"
	"perdure/partition/retention"
	"perdure/partition/stable"
	"perdure/partition/transport"
	"perdure/partition/workers"
)

// Config is the configuration of a node's partitions. Start fills in no zero durations and sizes: the caller
// (embed) owns the defaults.
type Config struct {
	DataDir string
	// FS is the file system of all Pebble stores and of the small files; vfs.Default if nil. Raft's
	// stable store is on the real file system unless Stable replaces it.
	FS       vfs.FS
	NodeID   string
	PeerAddr string
	// Partitions is the cluster's number of partitions. 0 takes that of the data directory, and NewPartitions
	// if there is no data yet.
	Partitions, NewPartitions uint32
	LogStore                  string

	HeartbeatTimeout, ElectionTimeout, LeaderLease, CommitTimeout time.Duration
	MaxAppendEntries                                              int
	SnapshotThreshold, TrailingLogs                               uint64
	SnapshotInterval                                              time.Duration
	// SnapshotBytes of log since the last marker ask for a new one. Of the log before a marker TrailingLogs entries are
	// left for followers that lag, and at most TrailingBytes.
	SnapshotBytes, TrailingBytes int64

	CacheBytes         int64
	MemtableBytes      int64
	MaxPendingCommands int
	// PendingBytes bounds the bytes of commands that wait or are in flight; zero fields are DefaultLimits'.
	PendingBytes    admission.Limits
	CheckInvariants bool
	// AuditShare is the part of one processor that audits in the background may take, 0.03 for 3 %; 0 for no
	// audits. AuditInterval is how long after the beginning of one round the next begins, if that is over.
	AuditShare    float64
	AuditInterval time.Duration
	// MaxStreams bounds the streams of clients at this node, over which they get messages for their addresses.
	MaxStreams int
	// ClientRetry is after what time the address of a pending client task is told again, in the partitions that this node
	// leads; 0 means 30 s.
	ClientRetry time.Duration
	// Retention is for how long the partitions that this node leads keep what has ended; RetentionInterval is how long after
	// the beginning of one round of purges the next begins.
	Retention         retention.Policy
	RetentionInterval time.Duration
	// Quotas bound what namespaces use of the cluster.
	Quotas quota.Quotas
	// Backups is the status of the node's schedule of backups; nil if it has none. It must not block.
	Backups func() *perdurev1.BackupSchedule

	// Advertise is the address at which other nodes reach the peer port; its own if empty. TLS secures it.
	Advertise string
	TLS       *tls.Config
	// Network makes the connections of the peer port; nil for TCP.
	Network transport.Network
	// Cluster makes the node a member of a cluster; nil for one that is alone.
	Cluster *identity.Cluster
	// Hints are the servers that gossip knows, this one too; nil for none. It must not block.
	Hints func() []cluster.Hint
	// Ahead is how far the clock is before the median of all members' clocks; nil for a node alone.
	Ahead func() time.Duration

	// DiskReserve is how many bytes of the disk are reserved for what must be written when it is full; 0 for 1 % of
	// the disk within disk.MinReserve and disk.MaxReserve. See package disk for what happens when.
	DiskReserve int64
	// DiskUsage reads the free and total bytes of the data directory's file system; nil for FS.GetDiskUsage.
	DiskUsage func() (free, total int64, err error)

	// AutoUpgrade raises the cluster's feature level as soon as every member knows a newer one, where this
	// node leads the directory or is alone. Without it an operator does, and until then an earlier version
	// can take over again.
	AutoUpgrade bool
	// featureLevel is the level that this node claims to know, in tests of a rolling upgrade; 0 for
	// state.FeatureLevel.
	featureLevel uint64

	Logger     *slog.Logger
	Clock      Clock
	Rand       io.Reader // of ids and of pauses between elections; the machine's if nil
	Registerer prometheus.Registerer
	// Stable replaces Raft's stable store, for simulators.
	Stable stable.Store
}

// Node is the partitions of one node.
type Node struct {
	cfg      Config
	identity identity.Identity
	file     *identity.File // of the identity
	log      *slog.Logger
	clock    Clock

	cache     *pebble.Cache
	metrics   *metricSet
	raftlog   *raftlog.Store
	stable    stable.Store
	mux       *transport.Mux
	peers     *peers.Peers
	replicas  []*group.Replica
	router    *Router
	dispatch  *workers.Dispatcher
	addresses *addresses.Dispatcher
	shared    *group.Shared      // by the groups
	former    *repair.Quarantine // replicas
	contents  *repair.Contents
	rebuilder *repair.Rebuilder
	disk      *diskSpace
	diskDone  chan struct{}
	logs      *raftlogger.Logger // of libraries

	cluster   *cluster.Member
	failover  *election.Failover
	balancer  *election.Balancer
	auditor   *auditor.Auditor
	auditDone chan struct{}
	retention *retention.Retention
	retained  chan struct{} // closed when the retention has ended
	learned   chan struct{} // closed when learnIDs has ended
	quota     *quota.Quota
	metered   chan struct{} // closed when the quotas' exchange has ended
	transfers *election.Transfers
	// deltas is full while a delta of checkpoints is made.
	deltas chan struct{}
	// stopping is closed when the node begins to stop; lifetime ends then.
	stopping    chan struct{}
	lifetime    context.Context
	endLifetime context.CancelFunc

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
	if cfg.Rand == nil {
		cfg.Rand = clock.Entropy
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	n = &Node{cfg: cfg, log: cfg.Logger, clock: cfg.Clock, shared: group.NewShared(cfg.Clock, cfg.PendingBytes), done: make(chan struct{}), ready: make(chan struct{}),
		auditDone: make(chan struct{}), retained: make(chan struct{}), learned: make(chan struct{}), metered: make(chan struct{}), stopping: make(chan struct{}), deltas: make(chan struct{}, 1), diskDone: make(chan struct{})}
	n.disk = &diskSpace{heard: map[string]heardDisk{}, Guard: disk.New(disk.Options{FS: cfg.FS, Dir: cfg.DataDir, Reserve: cfg.DiskReserve,
		Usage: cfg.DiskUsage, Clock: n.clock, Logger: n.log})}
	n.cfg.FS = n.disk.FS()
	cfg = n.cfg
	n.lifetime, n.endLifetime = context.WithCancel(context.Background())
	n.logs = raftlogger.New(raftlogger.Options{Log: n.log, Clock: n.clock,
		ServerOf: func(peer string) string { return n.cluster.ServerAt(peer) }, NodeOf: func(server string) string { return n.cluster.NodeOf(server) }})
	defer func() {
		if err != nil {
			if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EWOULDBLOCK) {
				err = &InUseError{cfg.DataDir, err}
			}
			err = errors.Join(err, n.undo())
			n = nil
		}
	}()
	//   1. The node's identity. A directory that was never finished is made again: no request was served
	//     from it.
	creating, err := n.identify()
	if err != nil {
		return n, err
	}
	n.cluster = cluster.New(cluster.Options{Env: clusterEnv{n}, Identity: n.file, DataDir: cfg.DataDir, Log: n.log, Clock: n.clock,
		Hints: cfg.Hints, Ahead: cfg.Ahead, FeatureLevel: cfg.featureLevel, AutoUpgrade: cfg.AutoUpgrade, Lifetime: n.lifetime, Halted: n.done})
	n.disk.Run()
	n.auditor = newAuditor(n)
	n.retention, n.quota = newRetention(n), newQuota(n)
	n.contents = &repair.Contents{FS: cfg.FS, Dir: cfg.DataDir, NodeID: n.identity.NodeID, Disk: n.disk.Guard, Log: n.log}
	n.contents.Sweep()
	if n.former, err = repair.OpenQuarantine(cfg.FS, cfg.DataDir); err != nil {
		return n, err
	}
	n.rebuilder = repair.NewRebuilder(repair.Options{Env: repairEnv{n}, Contents: n.contents, Quarantine: n.former, NodeID: n.identity.NodeID,
		Alone: n.identity.Alone(), Clock: n.clock, Log: n.log, Lifetime: n.lifetime})
	// 2. The peer port, so that a port in use touches nothing. It refuses connections until groups open.
	if n.mux, err = transport.Listen(cfg.PeerAddr, transport.Options{
		ClusterID: n.identity.ClusterID, ServerID: n.identity.ServerID, Advertise: cfg.Advertise, TLS: cfg.TLS, Clock: n.clock, Network: cfg.Network,
		Logger: n.logs.Named("peer"), OnPeerConnClosed: func(p transport.Peer) { n.failover.ConnectionLost(p.Group, p.ServerID, p.Addr) }, Removed: n.cluster.Removed, Member: n.cluster.IsMember,
	}); err != nil {
		return n, fmt.Errorf("peer port %s: %w", cfg.PeerAddr, err)
	}
	n.cluster.Bind(n.mux)
	if err := n.prepareElections(); err != nil {
		return n, err
	}
	//   3. Each partition's files, checked before any store is opened for writing: Pebble deletes files that
	//     it does not know, and a node that refuses to start must change nothing.
	if n.metrics, err = newMetricSet(cfg.Registerer, n.clock, n.shared.Admission.Held, n.former.Bytes); err != nil {
		return n, err
	}
	n.metrics.disk.follow(n.disk.Guard)
	if cfg.Registerer != nil {
		if err := cfg.Registerer.Register(n.quota); err != nil {
			return n, err
		}
	}
	n.cache = pebble.NewCache(cfg.CacheBytes)
	n.peers = peers.New(n.mux, n.cluster.MayCall, n.metrics.peers.unread.Inc)
	n.router = newRouter(n.identity.Partitions, n.shared, n.clock)
	n.router.others, n.router.client = n.cluster.Others, n.peers.Client
	n.dispatch = n.newDispatcher()
	n.addresses = n.newAddresses()
	n.shared.Dispatcher, n.shared.Addresses = n.dispatch, n.addresses
	if cfg.Registerer != nil {
		for _, c := range n.addresses.Collectors() {
			if err := cfg.Registerer.Register(c); err != nil {
				return n, err
			}
		}
	}
	for p := range n.identity.Partitions {
		r := n.newReplica(p)
		if err := n.tolerate(r, r.Examine(creating)); err != nil {
			return n, err
		}
		n.replicas = append(n.replicas, r)
		n.router.slots[p].Store(r)
	}
	// 4. The stores all groups share: the logs, and terms and votes. The log must fit to each state. They open on a full
	//    disk too.
	n.disk.Opening()
	if err := n.openShared(creating); err != nil {
		return n, err
	}
	n.disk.Opened()
	for _, r := range n.replicas {
		if r.Halted() == nil {
			if err := n.tolerate(r, n.reconcile(r)); err != nil {
				return n, err
			}
		}
	}
	// 5. Each partition's state.
	for _, r := range n.replicas {
		if r.Halted() == nil {
			if err := n.tolerate(r, r.Open(creating)); err != nil {
				return n, err
			}
		}
	}
	//   6. From here on the directory is complete: a store missing at the next start is a loss. Before this,
	//     the node has sent nothing to the other members.
	if creating && !n.identity.Alone() {
		if err := n.finishMaking(); err != nil {
			return n, err
		}
	}
	// 7. The groups.
	if !n.identity.Alone() {
		if err := n.cluster.StartDirectory(n.raftConfig("directory"), n.raftlog.Group(directoryGroup), n.stable.Group(directoryGroup), n.logs.PeerAnswered); err != nil {
			return n, err
		}
		n.metrics.groups.FollowDirectory(n.cluster.Raft())
	}
	if err := n.startLevel(creating); err != nil {
		return n, err
	}
	for _, r := range n.replicas {
		if r.Halted() == nil {
			if err := r.Join(creating && n.identity.Alone()); err != nil {
				return n, err
			}
		}
	}
	if creating && n.identity.Alone() {
		if err := n.finishMaking(); err != nil {
			return n, err
		}
	}
	n.peers.Serve(&peerService{n: n})
	n.metrics.peers.follow(n)
	for _, r := range n.replicas {
		r.Run()
	}
	go func() {
		defer close(n.auditDone)
		n.auditor.Run()
	}()
	go func() {
		defer close(n.retained)
		n.retention.Run()
	}()
	go n.learnIDs()
	go func() {
		defer close(n.metered)
		n.quota.Run()
	}()
	go diskWatch{n}.run()
	if !n.identity.Alone() {
		n.dispatch.Follow()
		n.failover.Start()
		n.balancer.Start()
		n.cluster.Run()
		go repairEnv{n}.comparison().Run(n.lifetime)
	}
	return n, nil
}

// finishMaking notes that the stores are complete.
func (n *Node) finishMaking() error {
	err := n.file.Update(func(id *identity.Identity) { id.Ready = true })
	n.identity = n.file.Identity()
	return err
}

// tolerate keeps a member of a cluster running when a partition's own stores are lost or damaged: that
// replica halts, the others of the partition serve, and it can be rebuilt from them. It returns err if the
// node is alone, or if the stores belong to another node or have a feature level that this program does not
// know.
func (n *Node) tolerate(r *group.Replica, err error) error {
	var foreign *identity.ForeignError
	var foreignState *fsm.ForeignError
	var newer *state.LevelError
	if err == nil || n.identity.Alone() || errors.As(err, &foreign) || errors.As(err, &foreignState) || errors.As(err, &newer) {
		return err
	}
	r.Halt(err)
	return nil
}

// MayFound records that every founder takes part, so that the founder may make the directory.
func (n *Node) MayFound() { n.cluster.MayFound() }

// MembershipChecked is closed once this server knows whether it is a member, or no member answered one round of
// questions: see cluster.Member.Checked.
func (n *Node) MembershipChecked() <-chan struct{} { return n.cluster.Checked() }

// Directory is the cluster's directory as this node knows it; nil before there is one. The caller must not change it.
func (n *Node) Directory() *commandv1.Directory { return n.cluster.Directory() }

// InUseError reports that another running process has the data directory open. Nothing was changed.
type InUseError struct {
	Dir string
	Err error
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("data directory %s is in use by another running process: stop that one first, or choose another directory (%v)", e.Dir, e.Err)
}

// Unwrap answers what the lock said.
func (e *InUseError) Unwrap() error { return e.Err }

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// identify reads this node's identity, or decides it.
func (n *Node) identify() (creating bool, err error) {
	n.file, creating, err = identity.Open(identity.Options{
		Config:  identity.Config{FS: n.cfg.FS, Dir: n.cfg.DataDir, NodeID: n.cfg.NodeID, Partitions: n.cfg.Partitions, FeatureLevel: n.cfg.featureLevel},
		Cluster: n.cfg.Cluster, NewPartitions: n.cfg.NewPartitions, LogStore: n.cfg.LogStore, Rand: n.cfg.Rand,
	})
	if err == nil {
		n.identity = n.file.Identity()
	}
	return creating, err
}

func (n *Node) path(name string) string { return n.cfg.FS.PathJoin(n.cfg.DataDir, name) }

// stamp marks a new store, or checks that an existing one is this node's.
func (n *Node) stamp(s identity.Stamped, name string, creating bool) error {
	return n.identity.Check(s, name, n.path(name), creating)
}

// openShared opens terms and votes, then the logs: those change when they are opened, terms and votes do
// not.
func (n *Node) openShared(creating bool) (err error) {
	if n.cfg.Stable != nil {
		n.stable = n.cfg.Stable
	} else {
		file, err := stable.Open(n.path(identity.StableFile), stable.Options{MustCreate: creating, MustExist: !creating, OnFatal: n.fatal, Insist: n.disk.Insist})
		if err != nil {
			return err
		}
		n.stable = file
	}
	if err := n.stamp(n.stable, identity.StableFile, creating); err != nil {
		return err
	}
	if n.raftlog, err = raftlog.Open(n.path(identity.RaftLogDir), raftlog.Options{
		Backend: raftlog.Backend(n.identity.LogStore), MustCreate: creating, MustExist: !creating, FS: n.cfg.FS,
		Logger: n.logs.Named("raftlog"), Cache: n.cache, MemTableBytes: uint64(n.cfg.MemtableBytes / 4), OnSync: n.metrics.synced, OnFatal: n.fatal,
		Insist: n.disk.Insist, Clock: n.clock,
	}); err != nil {
		return err
	}
	return n.stamp(n.raftlog, identity.RaftLogDir, creating)
}

func (n *Node) newReplica(p uint32) *group.Replica {
	return group.New(group.Options{
		ID: p, Partitions: n.identity.Partitions, Identity: n.identity, FS: n.cfg.FS, Dir: n.cfg.DataDir,
		Cache: n.cache, MemTableBytes: uint64(n.cfg.MemtableBytes) / 2 / uint64(n.identity.Partitions), CheckInvariants: n.cfg.CheckInvariants,
		MaxPending: n.cfg.MaxPendingCommands, SnapshotBytes: n.cfg.SnapshotBytes, TrailingBytes: n.cfg.TrailingBytes,
		Raft: n.raftConfig, Port: n.mux, Address: n.mux.Addr().String(), Addresses: n.cluster.Addresses(),
		Disk: n.disk.Guard, Contents: n.contents, Shared: n.shared, Metrics: n.metrics.groups, Libraries: n.logs, Log: n.log, Clock: n.clock,
		Env: group.Env{Now: n.cluster.Now, Deliver: n.router.Deliver, Changed: n.signal, MayAnswer: n.cluster.MayAnswer, ClusterLevel: n.cluster.Level, Admit: n.quota.Admit,
			DiskLevel:   func() disk.Level { return n.disk.majority(n.clock.Now()) },
			DisksStuck:  func() bool { return n.disk.quorum(n.clock.Now()) >= disk.Critical },
			ClientRetry: n.cfg.ClientRetry},
	})
}

// reconcile checks that a replica's state, markers and log fit together.
func (n *Node) reconcile(r *group.Replica) error {
	return r.Reconcile(n.raftlog.Group(r.ID()), n.stable.Group(r.ID()))
}

// raftConfig is what all groups have in common.
func (n *Node) raftConfig(name string) *raft.Config {
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
	cfg.Logger = n.logs.Named(name)
	return cfg
}

// fatal halts the node: a store that all groups share cannot be trusted any more.
func (n *Node) fatal(err error) {
	n.fatalOnce.Do(func() {
		n.fatalErr = err
		n.log.Error("node halted", "event", "node_halted", "error", err)
		close(n.done)
	})
}

// Done is closed when the node has halted by itself; Err says why.
func (n *Node) Done() <-chan struct{} { return n.done }

// Err returns why the node has halted, or nil.
func (n *Node) Err() error {
	select {
	case <-n.done:
		return n.fatalErr
	default:
		return nil
	}
}

// Leads returns the partitions that this node serves as their leader.
func (n *Node) Leads() []uint32 {
	var out []uint32
	for _, r := range n.router.Replicas() {
		if r.Serving() {
			out = append(out, r.ID())
		}
	}
	return out
}

// Identity returns the node's identity.
func (n *Node) Identity() identity.Identity { return n.identity }

// Router returns the router of requests to partitions.
func (n *Node) Router() *Router { return n.router }

// Dispatcher returns the dispatcher of tasks to workers.
func (n *Node) Dispatcher() *workers.Dispatcher { return n.dispatch }

// PeerAddr returns the address of the peer port.
func (n *Node) PeerAddr() string { return n.mux.ListenAddr().String() }
