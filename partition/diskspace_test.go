package partition

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition/disk"
	"perdure/partition/group"
)

// testReserve is R of the tests' disks.
const testReserve = 1 << 20

// fakeDisk is the free space that a test reports for one node's disk. With nothing free every write that adds
// to a file fails with ENOSPC, as on a disk that another program has filled.
type fakeDisk struct{ free atomic.Int64 }

func (d *fakeDisk) usage() (free, total int64, err error) {
	return d.free.Load(), 100 * testReserve, nil
}

func (d *fakeDisk) fs(below vfs.FS) vfs.FS {
	return errorfs.Wrap(below, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileWrite, errorfs.OpFileWriteAt, errorfs.OpCreate, errorfs.OpMkdirAll, errorfs.OpRename:
			if d.free.Load() == 0 {
				return syscall.ENOSPC
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
		d := &fakeDisk{}
		d.free.Store(100 * testReserve)
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
	d := &fakeDisk{}
	d.free.Store(100 * testReserve)
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
	if st := n.status().Disk; st.GetLevel() != "low" || st.GetFree() != 2*testReserve-1 || st.GetLowMark() != 2*testReserve {
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

// TestOneDiskFull: a node whose disk is full, with writes in flight that find no space, does not end. The
// others lead and continue; when there is space again the node catches up.
func TestOneDiskFull(t *testing.T) {
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

// TestAllDisksFull: with all disks full, writes are refused by name and reads continue. With space, writes
// continue by themselves, and nothing that was acknowledged is lost.
func TestAllDisksFull(t *testing.T) {
	all, disks := newDiskCluster(t)
	var acked sync.Map
	busy, quiet := context.WithCancel(bg(t))
	var writers sync.WaitGroup
	t.Cleanup(func() { quiet(); writers.Wait() })
	for w := range 4 {
		writers.Go(func() {
			for i := 0; busy.Err() == nil; i++ {
				id := fmt.Sprintf("w%d-%d", w, i)
				ctx, cancel := context.WithTimeout(busy, 5*time.Second)
				if _, err := all[i%3].router.Propose(ctx, createCmd(id)); err == nil {
					acked.Store(id, true)
				}
				cancel()
			}
		})
	}
	count := func() (n int) { acked.Range(func(any, any) bool { n++; return true }); return n }
	waitFor(t, "some writes", func() bool { return count() > 50 }, func() string { return fmt.Sprint(count()) })
	fill := func(free int64, level disk.Level) {
		t.Helper()
		for _, d := range disks {
			d.free.Store(free)
		}
		for _, m := range all {
			waitLevel(t, m, level)
		}
	}
	defer func() {
		for _, d := range disks {
			d.free.Store(100 * testReserve)
		}
	}()
	// Disks fill while their nodes watch: what is critical keeps new entries out of the logs before nothing fits any
	// more. A leader whose log refuses an entry steps down, and its successor cannot begin on full disks.
	fill(testReserve*3/4, disk.Critical)
	for p := range uint32(3) {
		waitFor(t, "every partition to be served", func() bool {
			_, _, err := all[0].router.Query(bg(t), group.Linearizable, promiseQuery(idIn(all[0].router, p, "r")))
			return err == nil || reasonOf(err) == perdurev1.Reason_REASON_PROMISE_NOT_FOUND
		}, func() string { return fmt.Sprintf("not partition %d", p) })
	}
	fill(0, disk.Full)
	// The nodes notice it one after the other, and the first may still hand a leadership to a node that cannot begin one
	// any more. The partitions whose leader stays refuse by name, and answer reads.
	anywhere := func(what string, ok func(ctx context.Context, p uint32) bool) {
		t.Helper()
		waitFor(t, what, func() bool {
			for p := range uint32(3) {
				ctx, cancel := context.WithTimeout(bg(t), time.Second)
				found := ok(ctx, p)
				cancel()
				if found {
					return true
				}
			}
			return false
		}, func() string { return "not yet" })
	}
	anywhere("writes to be refused by name", func(ctx context.Context, p uint32) bool {
		_, err := all[0].router.Propose(ctx, createCmd(idIn(all[0].router, p, "late")))
		return reasonOf(err) == perdurev1.Reason_REASON_DISK_FULL
	})
	anywhere("a read to be answered", func(ctx context.Context, p uint32) bool {
		_, _, err := all[1].router.Query(ctx, group.Linearizable, promiseQuery(idIn(all[1].router, p, "r")))
		return err == nil || reasonOf(err) == perdurev1.Reason_REASON_PROMISE_NOT_FOUND
	})
	for _, d := range disks {
		d.free.Store(100 * testReserve)
	}
	before := count()
	waitFor(t, "writes to go on by themselves", func() bool { return count() > before+50 }, func() string { return fmt.Sprint(count() - before) })
	quiet()
	writers.Wait()
	acked.Range(func(id, _ any) bool {
		if reply, _, err := all[2].router.Query(bg(t), group.Linearizable, promiseQuery(id.(string))); err != nil || reply.GetPromise() == nil {
			t.Errorf("%v was acknowledged: %v, %v", id, reply, err)
		}
		return true
	})
	for p := range uint32(3) {
		equalReplicas(t, all, p)
	}
	for _, m := range all {
		if err := m.Err(); err != nil {
			t.Errorf("%s halted: %v", m.cfg.NodeID, err)
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
