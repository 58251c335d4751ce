package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/internal/clock"
	"perdure/internal/credit"
	"perdure/internal/testkit"
	"perdure/partition/addresses"
	"perdure/partition/admission"
	"perdure/partition/disk"
	"perdure/partition/groupmetrics"
	"perdure/partition/grouptest"
	"perdure/partition/identity"
	"perdure/partition/raftlog"
	"perdure/partition/raftlogger"
	"perdure/partition/refusal"
	"perdure/partition/repair"
	"perdure/partition/stable"
	"perdure/partition/transport"
	"perdure/partition/workers"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// The ledgers of credit here panic once an inequality of theirs is broken.
func init() { credit.Assert = true }

const ns = grouptest.Namespace

// waitLimit is how long a test waits for a state that must come. It is long, since only a failure uses it up.
const waitLimit = 3 * time.Minute

// config is the configuration of a node of its own.
type config struct {
	FS         vfs.FS
	Stable     *stable.Memory
	Partitions uint32
	Clock      clock.Clock
	MaxPending int
	Limits     admission.Limits
	Registry   *prometheus.Registry
	Level      uint64 // the cluster's feature level
}

func memConfig(fs vfs.FS, st *stable.Memory, partitions uint32) config {
	return config{FS: fs, Stable: st, Partitions: partitions, Clock: clock.System{}, MaxPending: 4096, Level: state.FeatureLevel}
}

// node is a node without others: its groups, and what they need of it.
type node struct {
	config
	t        testing.TB
	log      *slog.Logger
	shared   *Shared
	dispatch *workers.Dispatcher
	router   *router
	metrics  *groupmetrics.Set
	raftlog  *raftlog.Store

	guard   *disk.Guard
	port    *transport.Mux
	cache   *pebble.Cache
	library *raftlogger.Logger
	end     context.CancelFunc
	closed  bool
}

// open opens a node's groups, which are new if the file system has none. It does not wait until they serve.
func open(t testing.TB, cfg config) (*node, error) {
	n := &node{config: cfg, t: t, log: newLog(t), shared: NewShared(cfg.Clock, cfg.Limits)}
	creating := false
	if _, err := cfg.FS.Stat("data"); err != nil {
		creating = true
		if err := cfg.FS.MkdirAll("data", 0o755); err != nil {
			return nil, err
		}
	}
	n.guard = disk.New(disk.Options{FS: cfg.FS, Dir: "data", Clock: cfg.Clock, Logger: n.log})
	fs := n.guard.FS()
	n.library = raftlogger.New(raftlogger.Options{Log: n.log, Clock: cfg.Clock})
	id := identity.Identity{ClusterID: "c1", ServerID: "n1-0001", NodeID: "n1", Partitions: cfg.Partitions, LogStore: "pebble"}
	var lifetime context.Context
	lifetime, n.end = context.WithCancel(context.Background())
	var err error
	if n.port, err = transport.Listen("127.0.0.1:0", transport.Options{ClusterID: id.ClusterID, ServerID: id.ServerID, Logger: n.library.Named("peer")}); err != nil {
		return nil, err
	}
	n.cache = pebble.NewCache(4 << 20)
	n.metrics = groupmetrics.New(cfg.Clock, prometheus.NewCounter(prometheus.CounterOpts{Name: "refusals"}), func(uint32) uint64 { return 0 })
	if cfg.Registry != nil {
		for _, c := range n.metrics.Collectors() {
			if err := cfg.Registry.Register(c); err != nil {
				return nil, err
			}
		}
	}
	n.router = &router{n: n}
	n.dispatch = workers.New(workers.Env{Clock: cfg.Clock, Lifetime: lifetime, PartitionOf: n.router.PartitionOf,
		Term: func(namespace, id string) uint64 { return n.router.Of(namespace, id).Term() }})
	n.shared.Dispatcher = n.dispatch
	n.shared.Addresses = addresses.New(addresses.Env{Clock: cfg.Clock, Lifetime: lifetime, ServerID: id.ServerID})
	fatal := func(err error) { t.Errorf("fatal: %v", err) }
	for p := range cfg.Partitions {
		r := New(Options{ID: p, Partitions: cfg.Partitions, Identity: id, FS: fs, Dir: "data", Cache: n.cache, MemTableBytes: 1 << 20, CheckInvariants: true,
			MaxPending: cfg.MaxPending, SnapshotBytes: 64 << 20, TrailingBytes: 64 << 20, Raft: n.raftConfig, Port: n.port, Address: n.port.Addr().String(), Disk: n.guard,
			Contents: &repair.Contents{FS: fs, Dir: "data", NodeID: "n1", Disk: n.guard, Log: n.log}, Shared: n.shared, Metrics: n.metrics,
			Libraries: n.library, Log: n.log, Clock: cfg.Clock,
			Env: Env{Now: cfg.Clock.Now, Deliver: n.router.Deliver, Changed: func() {}, MayAnswer: func(bool) error { return nil },
				ClusterLevel: func() (uint64, <-chan struct{}) { return cfg.Level, nil }, DiskLevel: n.guard.Level}})
		n.router.all = append(n.router.all, r)
		if err := r.Examine(creating); err != nil {
			return nil, err
		}
	}
	if n.raftlog, err = raftlog.Open("data/"+identity.RaftLogDir, raftlog.Options{Backend: raftlog.Backend("pebble"), MustCreate: creating, MustExist: !creating,
		FS: fs, Logger: n.library.Named("raftlog"), Cache: n.cache, MemTableBytes: 1 << 20, OnFatal: fatal, Clock: cfg.Clock}); err != nil {
		return nil, err
	}
	for _, r := range n.router.all {
		if err := errors.Join(r.Reconcile(n.raftlog.Group(r.ID()), cfg.Stable.Group(r.ID())), r.Open(creating), r.Join(creating)); err != nil {
			return nil, err
		}
	}
	for _, r := range n.router.all {
		r.Run()
	}
	return n, nil
}

func (n *node) raftConfig(name string) *raft.Config {
	cfg := raft.DefaultConfig()
	cfg.LocalID = "n1-0001"
	cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLeaseTimeout = 20*time.Millisecond, 20*time.Millisecond, 20*time.Millisecond
	cfg.CommitTimeout, cfg.SnapshotInterval = 5*time.Millisecond, time.Minute
	cfg.BatchApplyCh, cfg.NoLegacyTelemetry, cfg.NoSnapshotRestoreOnStart, cfg.ShutdownOnRemove = true, true, true, false
	cfg.Logger = n.library.Named(name)
	return cfg
}

// close closes the node, once, as package partition does.
func (n *node) close(ctx context.Context) error {
	if n.closed {
		return nil
	}
	n.closed = true
	n.end()
	var errs []error
	for _, r := range n.router.all {
		r.Stop()
	}
	for _, r := range n.router.all {
		r.Drain(ctx)
	}
	for _, r := range n.router.all {
		errs = append(errs, r.Shutdown())
	}
	errs = append(errs, n.port.Close())
	for _, r := range n.router.all {
		errs = append(errs, r.Close(ctx))
	}
	n.dispatch.Close()
	errs = append(errs, n.raftlog.Close())
	n.cache.Unref()
	n.library.Close()
	n.guard.Close()
	return errors.Join(errs...)
}

// startNode opens a node, waits until it serves, and closes it when the test ends.
func startNode(t testing.TB, cfg config) *node {
	t.Helper()
	n, err := open(t, cfg)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() { closeNode(t, n) })
	for _, r := range n.router.all {
		waitFor(t, fmt.Sprintf("partition %d to serve", r.ID()), r.Serving, func() string { return fmt.Sprint(r.Status()) })
	}
	return n
}

func closeNode(t testing.TB, n *node) {
	t.Helper()
	if err := n.close(bg(t)); err != nil {
		t.Errorf("close: %v", err)
	}
}

func newMemNode(t testing.TB, partitions uint32) *node {
	t.Helper()
	return startNode(t, memConfig(vfs.NewMem(), stable.NewMemory(), partitions))
}

// newGatedNode is a node whose log can be held back.
func newGatedNode(t testing.TB, partitions uint32, change ...func(*config)) (*node, *grouptest.GatedDisk) {
	t.Helper()
	disk := grouptest.NewGatedDisk(vfs.NewMem())
	cfg := memConfig(disk, stable.NewMemory(), partitions)
	for _, f := range change {
		f(&cfg)
	}
	n := startNode(t, cfg)
	t.Cleanup(disk.Release) // before the node is closed
	return n, disk
}

func (n *node) Router() *router                 { return n.router }
func (n *node) Dispatcher() *workers.Dispatcher { return n.dispatch }

// router brings commands to the groups of a node. It tries once.
type router struct {
	n   *node
	all []*Replica
}

func (r *router) Replicas() []*Replica { return r.all }
func (r *router) Partitions() uint32   { return uint32(len(r.all)) }
func (r *router) PartitionOf(namespace, id string) uint32 {
	return state.PartitionOf(namespace, id, r.Partitions())
}
func (r *router) Of(namespace, id string) *Replica { return r.all[r.PartitionOf(namespace, id)] }

func (r *router) Propose(ctx context.Context, cmd *commandv1.Command) (*commandv1.Reply, error) {
	return r.Of(cmd.Namespace, cmd.Id).Propose(ctx, cmd)
}

func (r *router) Deliver(ctx context.Context, partition uint32, cmd *commandv1.Command) (*commandv1.Reply, error) {
	if partition >= r.Partitions() {
		return nil, refusal.TryLater(partition, "there is no such partition")
	}
	return r.all[partition].Propose(ctx, cmd)
}

func (r *router) Query(ctx context.Context, level Level, q *commandv1.Query) (*commandv1.QueryReply, uint64, error) {
	return r.Of(q.Namespace, q.Id).Query(ctx, level, q)
}

// newLog is a logger whose lines are shown if the test fails.
func newLog(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// waitFor waits until a state is there; see says it in words.
func waitFor(t testing.TB, what string, is func() bool, see func() string) {
	t.Helper()
	testkit.Eventually(t, waitLimit, what, is, see)
}

// Commands, queries and events.
var (
	startCmd      = grouptest.StartCmd
	signalCmd     = grouptest.SignalCmd
	promiseCmd    = grouptest.PromiseCmd
	settleCmd     = grouptest.SettleCmd
	commitCmd     = grouptest.CommitCmd
	terminateCmd  = grouptest.TerminateCmd
	tickCmd       = grouptest.TickCmd
	describeQuery = grouptest.DescribeQuery
	journalQuery  = grouptest.JournalQuery
	promiseQuery  = grouptest.PromiseQuery
	childEvent    = grouptest.ChildEvent
	timerEvent    = grouptest.TimerEvent
	awaitEvent    = grouptest.AwaitEvent
	returnEvent   = grouptest.ReturnEvent
	callCmd       = grouptest.CallCmd
	childID       = grouptest.ChildID
	scrape        = grouptest.Scrape
)

func bg(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	t.Cleanup(cancel)
	return ctx
}

func reasonOf(err error) perdurev1.Reason {
	var e *api.Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return perdurev1.Reason_REASON_UNSPECIFIED
}

// must proposes a command that must be accepted.
func must(t testing.TB, r *router, cmd *commandv1.Command) *commandv1.Reply {
	t.Helper()
	reply, err := r.Propose(bg(t), cmd)
	if err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	return reply
}

// mustQuery reads what must be there.
func mustQuery(t testing.TB, r *router, q *commandv1.Query) *commandv1.QueryReply {
	t.Helper()
	reply, _, err := r.Query(bg(t), Linearizable, q)
	if err != nil {
		t.Fatalf("%v: %v", q, err)
	}
	return reply
}

// idIn is an id that a partition owns.
func idIn(r *router, partition uint32, name string) string {
	for n := 0; ; n++ {
		if id := fmt.Sprintf("%s-%d", name, n); r.PartitionOf(ns, id) == partition {
			return id
		}
	}
}

func startIn(t testing.TB, r *router, p uint32, name string) string {
	t.Helper()
	id := idIn(r, p, name)
	must(t, r, startCmd("start "+id, id, "f", ""))
	return id
}

// deliver takes a worker's next delivery; it must be a task.
func deliver(t testing.TB, w *workers.Worker) *perdurev1.TaskToken {
	t.Helper()
	d, ok := w.Next(bg(t))
	if !ok || d.Cancelling {
		t.Fatalf("%s received %+v, %v", w.ID, d, ok)
	}
	return d.Token
}

// nothing checks that a worker has received nothing, and will not for what has happened so far. A command
// proposed now proves it once it is answered: effects are performed in the order of the log.
func nothing(t testing.TB, n *node, w *workers.Worker) {
	t.Helper()
	for p := range n.Router().Partitions() {
		must(t, n.Router(), promiseCmd(idIn(n.Router(), p, "probe"), 1<<40))
	}
	if k := w.Queued(); k > 0 {
		t.Errorf("%s received %d deliveries", w.ID, k)
	}
}

func spec(id string, capacity int, functions ...string) workers.Spec {
	return workers.Spec{ID: id, Namespace: ns, Functions: functions, LeaseMS: 600_000, Capacity: capacity}
}

// stuck holds the log back and waits until as many entries as may be are under way: nothing that is
// proposed from now on gets into one of them.
func stuck(t *testing.T, n *node, disk *grouptest.GatedDisk, partition uint32) {
	t.Helper()
	r := n.router.Replicas()[partition]
	disk.Hold()
	for k := range maxInFlight {
		go func() {
			_, _ = n.Router().Deliver(bg(t), partition, promiseCmd(idIn(n.Router(), partition, "stuck"), 1<<40))
		}()
		waitFor(t, "an entry to be under way", func() bool { return len(r.slots) == k+1 }, func() string { return "" })
	}
	// Both are with Raft: the one that the resolver waits for, and the next.
	waitFor(t, "the log to be held back", func() bool { return disk.Held() > 0 && len(r.flights) == maxInFlight-1 }, func() string { return "" })
}

// queued waits until as many proposals wait for the log.
func queued(t *testing.T, r *Replica, want int) {
	t.Helper()
	waitFor(t, "proposals to wait", func() bool { return r.pending.len() >= want }, func() string { return "" })
}

// enqueued proposes a command without waiting.
func enqueued(t *testing.T, r *Replica, cmd *commandv1.Command) *waiter {
	t.Helper()
	w, err := r.enqueue(cmd)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// wait waits for the outcome as the log gave it.
func (w *waiter) wait() proposalResult {
	<-w.p.done
	w.close()
	return w.p.result
}

// counted reads a counter or gauge.
func counted(t *testing.T, c prometheus.Collector) int {
	t.Helper()
	reg := prometheus.NewRegistry()
	if err := reg.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil || len(families) != 1 || len(families[0].GetMetric()) != 1 {
		t.Fatalf("%v, %v", families, err)
	}
	m := families[0].GetMetric()[0]
	return int(m.GetCounter().GetValue() + m.GetGauge().GetValue())
}
