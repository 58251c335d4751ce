package partition

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/hashicorp/raft"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm"
	"perdure/internal/clock"
	"perdure/internal/fsync"
	"perdure/internal/testkit"
	"perdure/partition/disk"
	"perdure/partition/group"
	"perdure/partition/stable"
)

// testReserve is R of the tests' disks.
const testReserve = 1 << 20

// fakeDisk is the disk of one node. With nothing free every write that adds to a file fails with ENOSPC, as on
// a disk that another program has filled. The reserve takes its space, and gives it back.
type fakeDisk struct {
	free atomic.Int64
	// each is what every write takes, checkpoint what the removal of a checkpoint of a cut gives back.
	each       atomic.Int64
	checkpoint atomic.Int64
	reserve    int64
	held       atomic.Bool
}

func newFakeDisk() *fakeDisk {
	d := &fakeDisk{reserve: testReserve}
	d.free.Store(100 * testReserve)
	return d
}

func (d *fakeDisk) usage() (free, total int64, err error) {
	return max(d.free.Load(), 0), 100 * testReserve, nil
}

func (d *fakeDisk) fs(below vfs.FS) vfs.FS {
	return errorfs.Wrap(below, errorfs.InjectorFunc(func(op errorfs.Op) error {
		reserve := strings.HasSuffix(op.Path, disk.ReserveFile)
		switch op.Kind {
		case errorfs.OpRemove:
			if reserve && d.held.Swap(false) {
				d.free.Add(d.reserve)
			}
		case errorfs.OpFileWrite, errorfs.OpFileWriteAt, errorfs.OpCreate, errorfs.OpMkdirAll, errorfs.OpRename:
			if op.Kind == errorfs.OpRename && strings.Contains(op.Path, ".cuts") && !strings.HasSuffix(op.Path, fsync.TmpSuffix) {
				d.free.Add(d.checkpoint.Load()) // its removal begins so
				return nil
			}
			if d.free.Load() <= 0 {
				return syscall.ENOSPC
			}
			switch {
			case !reserve:
				d.free.Add(-d.each.Load())
			case op.Kind == errorfs.OpCreate && !d.held.Swap(true):
				d.free.Add(-d.reserve)
			}
		}
		return nil
	}))
}

// newDiskCluster is a cluster of three with disks of which the test says how full they are.
func newDiskCluster(t *testing.T) ([]*member, []*fakeDisk) {
	t.Helper()
	var disks []*fakeDisk
	all := newClusterWith(t, 3, neverActs, func(cfg *Config) {
		d := newFakeDisk()
		disks = append(disks, d)
		cfg.DiskReserve, cfg.DiskUsage, cfg.FS = testReserve, d.usage, d.fs(cfg.FS)
	})
	return all, disks
}

// waitLevel waits until a node has noticed how full its disk is.
func waitLevel(t *testing.T, m *member, want disk.Level) {
	t.Helper()
	waitFor(t, fmt.Sprintf("%s to notice that its disk is %v", m.cfg.NodeID, want), func() bool { return m.disk.Level() == want },
		func() string { return m.disk.Level().String() })
}

// TestDiskLow: below the low mark the node refuses by name commands that grow the state, accepts those that
// end something, and reports its disk. Above the mark it accepts all by itself.
func TestDiskLow(t *testing.T) {
	t.Parallel() // it waits for the disk most of the time
	d := newFakeDisk()
	cfg := memConfig(t, vfs.NewMem(), nil, 3)
	cfg.DataDir, cfg.FS = t.TempDir(), vfs.Default
	cfg.DiskReserve, cfg.DiskUsage = testReserve, d.usage
	n := startNode(t, cfg)
	m := &member{cfg: cfg, Node: n}
	must(t, n.router, createCmd("p1"))
	must(t, n.router, startCmd("s1", "x1", "f", "in"))

	d.free.Store(2*testReserve - 1)
	waitLevel(t, m, disk.Low)
	for name, cmd := range map[string]*commandv1.Command{
		"a start":   startCmd("s2", "x2", "f", "in"),
		"a signal":  signalCmd("g1", "x1", "go", "payload"),
		"a promise": createCmd("p2"),
	} {
		_, err := n.router.Propose(bg(t), cmd)
		e, _ := api.FromStatus(err)
		if reasonOf(err) != perdurev1.Reason_REASON_DISK_FULL || e.Meta["rule"] != "disk_low" || !strings.Contains(err.Error(), "2 MiB is the low mark") && !strings.Contains(err.Error(), "2048 KiB is the low mark") {
			t.Errorf("%s on a low disk: %v", name, err)
		}
	}
	must(t, n.router, settleCmd("p1", "v"))
	must(t, n.router, terminateCmd("x1"))
	if err := n.NotReady(); err == nil || !strings.Contains(err.Error(), "the disk is low (2047 KiB of 100 MiB free") {
		t.Errorf("readiness on a low disk: %v", err)
	}
	if st := (report{n}).node().Disk; st.GetLevel() != "low" || st.GetFree() != 2*testReserve-1 || st.GetLowMark() != 2*testReserve {
		t.Errorf("status on a low disk: %v", st)
	}

	d.free.Store(testReserve - 1)
	waitLevel(t, m, disk.Critical)
	r := n.router.slots[n.router.PartitionOf(ns, "x1")].Load()
	term := r.Raft().CurrentTerm()
	_, err := n.router.Propose(bg(t), terminateCmd("x1"))
	if e, _ := api.FromStatus(err); reasonOf(err) != perdurev1.Reason_REASON_DISK_FULL || e.Meta["rule"] != "disk_critical" {
		t.Errorf("a command on a critical disk: %v", err)
	}
	mustQuery(t, n.router, promiseQuery("p1")) // reads continue
	mustQuery(t, n.router, describeQuery("x1"))
	if now := r.Raft().CurrentTerm(); !r.Serving() || now != term {
		t.Errorf("the only node went from term %d to %d: what it cannot store was proposed", term, now)
	}

	d.free.Store(100 * testReserve)
	waitLevel(t, m, disk.OK)
	must(t, n.router, startCmd("s2", "x2", "f", "in"))
	if err := n.NotReady(); err != nil {
		t.Errorf("with space again: %v", err)
	}
}

// TestScarceDiskDropsCheckpoints: checkpoints of cuts go, the oldest first, before they make a node refuse anything; no cut
// makes others until there is space. With space, there are some again.
func TestScarceDiskDropsCheckpoints(t *testing.T) {
	t.Parallel() // it waits for the disk most of the time
	d := newFakeDisk()
	cfg := memConfig(t, vfs.NewMem(), nil, 3)
	cfg.Stable, cfg.MemtableBytes = stable.NewMemory(), 256<<10
	cfg.DiskReserve, cfg.DiskUsage, cfg.FS = testReserve, d.usage, d.fs(cfg.FS)
	levels := &levelLog{Handler: cfg.Logger.Handler()}
	cfg.Logger = slog.New(levels)
	n := startNode(t, cfg)
	enter := func() (uint64, error) {
		got, err := n.Operator().Cut(bg(t), &perdurev1.CutRequest{})
		return got.GetCut(), err
	}
	kept := func(cut uint64) (has int) {
		for p := range uint32(3) {
			if _, err := n.Operator().ListCheckpoint(bg(t), &perdurev1.ListFilesRequest{Cut: cut, Partition: p}); err == nil {
				has++
			}
		}
		return has
	}
	gone := func(cut uint64) {
		t.Helper()
		waitFor(t, fmt.Sprintf("the checkpoints of cut %d to go", cut), func() bool { return kept(cut) == 0 }, func() string { return fmt.Sprint(kept(cut)) })
	}
	first, err := enter()
	if err != nil {
		t.Fatal(err)
	}
	second, err := enter()
	if err != nil || kept(first) != 3 || kept(second) != 3 {
		t.Fatalf("cuts %d and %d: %d and %d checkpoints, %v", first, second, kept(first), kept(second), err)
	}
	const scarce = 5 * testReserve / 2
	d.checkpoint.Store(testReserve)
	d.free.Store(scarce)
	gone(first)
	waitFor(t, "the space to be known", func() bool { return !n.disk.Scarce() }, nil)
	if got := kept(second); got != 3 {
		t.Errorf("with space again %d checkpoints of the newest cut are left", got)
	}
	d.free.Store(scarce)
	gone(second)
	d.free.Store(scarce)
	if cut, err := enter(); reasonOf(err) != perdurev1.Reason_REASON_CHECKPOINT_NOT_FOUND {
		t.Errorf("a cut with little space: %d, %v", cut, err)
	}
	must(t, n.router, startCmd("s1", "x1", "f", "in"))
	if err := n.NotReady(); err != nil || n.disk.Level() != disk.OK {
		t.Errorf("with little space the node is %v, %v", n.disk.Level(), err)
	}
	d.free.Store(100 * testReserve)
	last, err := enter()
	if err != nil || kept(last) != 3 {
		t.Errorf("cut %d with space: %d checkpoints, %v", last, kept(last), err)
	}
	if levels.changed.Load() {
		t.Error("the disk was low meanwhile: checkpoints have cost service")
	}
}

// levelLog notes whether a log says that the level of a disk has changed.
type levelLog struct {
	slog.Handler
	changed atomic.Bool
}

// Handle implements slog.Handler.
func (l *levelLog) Handle(ctx context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "event" && a.Value.String() == "disk_level" {
			l.changed.Store(true)
		}
		return true
	})
	return l.Handler.Handle(ctx, r)
}

// TestOneDiskFull: a node whose disk is full, with writes in flight that find no space, does not end. The
// others lead and continue; when there is space again the node catches up.
func TestOneDiskFull(t *testing.T) {
	t.Parallel() // it waits most of the time
	all, disks := newDiskCluster(t)
	made := 0
	create := func(n int, at ...*member) {
		t.Helper()
		for range n {
			m := at[made%len(at)]
			// The full node's groups refuse writes until another member leads them.
			waitFor(t, "a promise to be created", func() bool {
				_, err := m.router.Propose(bg(t), createCmd(fmt.Sprintf("p%d", made)))
				if err != nil && reasonOf(err) != perdurev1.Reason_REASON_DISK_FULL && reasonOf(err) != perdurev1.Reason_REASON_OUTCOME_UNKNOWN {
					t.Fatalf("p%d: %v", made, err)
				}
				return err == nil
			}, func() string { return "refused" })
			made++
		}
	}
	create(30, all...)
	victim := leaderOf(t, all, 1)
	var others []*member
	for i, m := range all {
		if m == victim {
			disks[i].free.Store(0)
			defer disks[i].free.Store(100 * testReserve)
		} else {
			others = append(others, m)
		}
	}
	create(60, others...)
	for p := range uint32(3) {
		waitFor(t, "the node whose disk is full to lead nothing", func() bool { return !leads(victim, p) }, func() string { return fmt.Sprintf("it leads partition %d", p) })
	}
	if err := victim.Err(); err != nil || victim.NotReady() == nil {
		t.Errorf("the full node: %v, %v", err, victim.NotReady())
	}
	for i := range all {
		disks[i].free.Store(100 * testReserve)
	}
	create(30, all...)
	for p := range uint32(3) {
		equalReplicas(t, all, p)
	}
	ready(t, victim.Node)
}

// creators make promises until they are stopped, whatever the answers, and note what was acknowledged.
type creators struct {
	acked sync.Map
	end   context.CancelFunc
	wg    sync.WaitGroup
}

func startCreators(t *testing.T, routers ...*Router) *creators {
	l := &creators{}
	var busy context.Context
	busy, l.end = context.WithCancel(bg(t))
	t.Cleanup(l.stop)
	for w := range 4 {
		l.wg.Go(func() {
			for i := 0; busy.Err() == nil; i++ {
				id := fmt.Sprintf("w%d-%d", w, i)
				ctx, cancel := context.WithTimeout(busy, 5*time.Second)
				if _, err := routers[(w+i)%len(routers)].Propose(ctx, createCmd(id)); err == nil {
					l.acked.Store(id, true)
				} else {
					clock.Wait(busy, clock.System{}, 10*time.Millisecond)
				}
				cancel()
			}
		})
	}
	return l
}

func (l *creators) stop() { l.end(); l.wg.Wait() }

func (l *creators) count() (n int) {
	l.acked.Range(func(any, any) bool { n++; return true })
	return n
}

// more waits until n more writes are acknowledged.
func (l *creators) more(t *testing.T, what string, n int) {
	t.Helper()
	from := l.count()
	waitFor(t, what, func() bool { return l.count() >= from+n }, func() string { return fmt.Sprint(l.count() - from) })
}

// lost reports what was acknowledged and cannot be read.
func (l *creators) lost(t *testing.T, at *Router) {
	t.Helper()
	l.acked.Range(func(id, _ any) bool {
		if reply, _, err := at.Query(bg(t), group.Linearizable, promiseQuery(id.(string))); err != nil || reply.GetPromise() == nil {
			t.Errorf("%v was acknowledged: %v, %v", id, reply, err)
		}
		return true
	})
}

// answersReads waits until every partition answers a linearizable read at every node.
func answersReads(t *testing.T, limit time.Duration, partitions uint32, at ...*member) {
	t.Helper()
	for _, m := range at {
		for p := range partitions {
			var err error
			testkit.Eventually(t, limit, fmt.Sprintf("partition %d to answer a read at %s", p, m.cfg.NodeID), func() bool {
				ctx, cancel := context.WithTimeout(bg(t), time.Second)
				defer cancel()
				_, _, err = m.router.Query(ctx, group.Linearizable, promiseQuery(idIn(m.router, p, "r")))
				return err == nil || reasonOf(err) == perdurev1.Reason_REASON_PROMISE_NOT_FOUND
			}, func() string { return fmt.Sprint(err) })
		}
	}
}

// refusesWrites waits until every partition refuses a write for want of space, at every node.
func refusesWrites(t *testing.T, limit time.Duration, partitions uint32, at ...*member) {
	t.Helper()
	for _, m := range at {
		for p := range partitions {
			var err error
			testkit.Eventually(t, limit, fmt.Sprintf("partition %d to refuse a write at %s by name", p, m.cfg.NodeID), func() bool {
				ctx, cancel := context.WithTimeout(bg(t), time.Second)
				defer cancel()
				_, err = m.router.Propose(ctx, createCmd(idIn(m.router, p, "late")))
				return reasonOf(err) == perdurev1.Reason_REASON_DISK_FULL
			}, func() string { return fmt.Sprint(err) })
		}
	}
}

// proposedIn returns the commands in a node's log that the leader of a term has proposed.
func proposedIn(t *testing.T, m *member, p uint32, term uint64) (out []*commandv1.Command) {
	t.Helper()
	logs := m.raftlog.Group(p)
	first, err := logs.FirstIndex()
	if err != nil {
		t.Fatal(err)
	}
	last, err := logs.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	for i := first; i <= last; i++ {
		var l raft.Log
		if err := logs.GetLog(i, &l); err != nil {
			t.Fatal(err)
		}
		if l.Term != term || l.Type != raft.LogCommand {
			continue
		}
		e, err := fsm.DecodeEntry(l.Data)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e.Commands...)
	}
	return out
}

// answeredWithin bounds how long reads wait on full disks: for an election, and for news of the others' disks.
const answeredWithin = 10 * time.Second

// TestAllDisksFull: when all disks fill at once, under a load of writes, every partition has a leader that
// answers reads and refuses writes by name: also when the leaders vanish then, and when they come back. With
// space, writes continue by themselves, and nothing that was acknowledged is lost.
func TestAllDisksFull(t *testing.T) {
	const (
		partitions = 4
		reserve    = 8 * testReserve
	)
	for _, c := range []struct {
		name string
		free int64
	}{{"nothing is free", 0}, {"less than the last mark is free", reserve / 4}} {
		for _, loss := range []string{"killed", "cut off"} {
			t.Run(c.name+", leaders are "+loss, func(t *testing.T) {
				testkit.Bubble(t, func(t *testing.T, net *testkit.Network) {
					var disks []*fakeDisk
					all := newClusterWith(t, partitions, timeouts, on(net), func(cfg *Config) {
						d := newFakeDisk()
						d.reserve = reserve
						disks = append(disks, d)
						cfg.DiskReserve, cfg.DiskUsage, cfg.FS = reserve, d.usage, d.fs(cfg.FS)
					})
					fill := func(free int64) {
						for _, d := range disks {
							d.each.Store(512)
							d.free.Store(free)
						}
					}
					defer fill(100 * testReserve)
					defer net.Open()
					var routers []*Router
					for _, m := range all {
						routers = append(routers, m.router)
					}
					// Tasks whose leases a new leader has to extend.
					w := all[2].Dispatcher().Attach(spec("w", partitions, "f"))
					defer w.Detach()
					for p := range uint32(partitions) {
						startIn(t, all[2].router, p, "x")
					}
					for range partitions {
						deliver(t, w)
					}
					writers := startCreators(t, routers...)
					writers.more(t, "some writes", 50)
					// A successor of n1 needs n3, whose log lacks entries.
					net.Block("n1", "n3")
					for i := range 20 {
						must(t, all[0].router, createCmd(idIn(all[0].router, 0, fmt.Sprintf("lacking%d", i))))
					}
					fill(c.free)
					for _, m := range all[1:] {
						waitFor(t, "the full disks to be known", func() bool { return m.disk.quorum(m.clock.Now()) >= disk.Critical }, nil)
					}
					lacking := all[2].router.slots[0].Load().Raft()
					if last := all[1].router.slots[0].Load().Raft().LastIndex(); lacking.LastIndex() >= last {
						t.Fatalf("n3 lacks nothing: %d of %d", lacking.LastIndex(), last)
					}
					net.Open()
					gone, rest := all[0], all[1:]
					if loss == "killed" {
						gone.kill(t)
					} else {
						net.Block("n1", "n2")
						net.Block("n1", "n3")
					}
					answersReads(t, answeredWithin, partitions, rest...)
					refusesWrites(t, answeredWithin, partitions, rest...)
					lead := leaderOf(t, rest, 0)
					term := lead.router.slots[0].Load().Raft().CurrentTerm()
					if own := proposedIn(t, lead, 0, term); len(own) > 0 {
						t.Errorf("a leader that began on full disks has proposed %v", own)
					}
					net.Open()
					if loss == "killed" {
						writers.stop()
						gone.stop(t)
						gone.start(t)
						routers[0] = gone.router
						acked := writers
						writers = startCreators(t, routers...)
						defer acked.lost(t, gone.router)
					}
					answersReads(t, answeredWithin, partitions, all...)
					refusesWrites(t, answeredWithin, partitions, all...)

					for _, m := range all {
						m.balancer.Pin(0) // with space, leadership would go back to n1
					}
					lead = leaderOf(t, all, 0)
					term = lead.router.slots[0].Load().Raft().CurrentTerm()
					fill(100 * testReserve)
					var own []*commandv1.Command
					waitFor(t, "the leader to extend the leases, or another leader", func() bool {
						own = proposedIn(t, lead, 0, term)
						return len(own) > 0 || lead.router.slots[0].Load().Raft().CurrentTerm() != term
					}, nil)
					if len(own) == 0 || own[0].GetInheritLeases() == nil {
						t.Errorf("a leader that began on full disks has proposed %v when there was space", own)
					}
					writers.more(t, "writes to go on by themselves", 50)
					for p := range uint32(partitions) {
						var err error
						waitFor(t, fmt.Sprintf("partition %d to accept a write", p), func() bool {
							_, err = all[1].router.Propose(bg(t), createCmd(idIn(all[1].router, p, "afterwards")))
							return err == nil
						}, func() string { return fmt.Sprint(err) })
					}
					writers.stop()
					writers.lost(t, all[2].router)
					for p := range uint32(partitions) {
						equalReplicas(t, all, p)
					}
					for _, m := range all {
						if err := m.Err(); err != nil {
							t.Errorf("%s halted: %v", m.cfg.NodeID, err)
						}
					}
				})
			})
		}
	}
}

func TestQuorumLevel(t *testing.T) {
	for _, c := range []struct {
		levels []disk.Level
		n      int
		want   disk.Level
	}{
		{nil, 3, disk.OK},
		{[]disk.Level{disk.Full}, 3, disk.OK},
		{[]disk.Level{disk.Full, disk.Low}, 3, disk.Low},
		{[]disk.Level{disk.Full, disk.Low, disk.Critical}, 3, disk.Critical},
		{[]disk.Level{disk.Full, disk.Full}, 5, disk.OK},
		{[]disk.Level{disk.Full, disk.Full, disk.Low}, 5, disk.Low},
		{[]disk.Level{disk.Critical}, 1, disk.Critical},
	} {
		if got := quorumLevel(c.levels, c.n); got != c.want {
			t.Errorf("%v of %d: %v, want %v", c.levels, c.n, got, c.want)
		}
	}
}
