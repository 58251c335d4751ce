package partition

import (
	"fmt"
	"strings"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition/disk"
)

// TestSnapshotRefusedForDisk: a lagging node refuses, by name, a state that does not fit its disk, and leaves
// no file. It keeps running, and gets the state when there is space. A rebuild does the same, and the replica
// keeps serving.
func TestSnapshotRefusedForDisk(t *testing.T) {
	t.Parallel() // it waits most of the time
	var disks []*fakeDisk
	log, said := newLog(t)
	all := newCluster(t, 1, func(cfg *Config) {
		d := &fakeDisk{}
		d.free.Store(100 * testReserve)
		disks = append(disks, d)
		cfg.DiskReserve, cfg.DiskUsage, cfg.Logger = testReserve, d.usage, log
		cfg.SnapshotThreshold, cfg.TrailingLogs, cfg.SnapshotInterval = 32, 16, 20*time.Millisecond
	})
	made := 0
	create := func(n int) {
		t.Helper()
		for range n {
			must(t, all[made%2].router, createCmd(fmt.Sprintf("p%d", made)))
			made++
		}
	}
	create(10)
	away, space := all[2], disks[2]
	away.stop(t)
	create(300)
	for _, m := range all[:2] {
		waitFor(t, "the log to be cut", func() bool {
			first, err := m.raftlog.Group(0).FirstIndex()
			return err == nil && first > 100
		}, func() string { return "not yet" })
	}
	space.free.Store(2*testReserve + 1000)
	away.start(t)
	waitFor(t, "the state to be refused", func() bool { return said.has("event=content_refused partition=0 received=0") },
		func() string { return "not yet" })
	received := func() (names []string) {
		have, err := away.cfg.FS.List("data")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range have {
			if strings.HasPrefix(name, "received-") {
				names = append(names, name)
			}
		}
		return names
	}
	waitFor(t, "nothing of it to be left", func() bool { return len(received()) == 0 }, func() string { return fmt.Sprint(received()) })
	r := away.router.slots[0].Load()
	if err := r.Halted(); err != nil {
		t.Fatalf("it has halted: %v", err)
	}
	space.free.Store(100 * testReserve)
	equalReplicas(t, all, 0)
	if st, err := r.Store().Status(); err != nil || st.Received == 0 {
		t.Errorf("it caught up without a snapshot: %+v, %v", st, err)
	}

	space.free.Store(testReserve + testReserve/2)
	waitLevel(t, away, disk.Low)
	var err error
	waitFor(t, "a leader to copy from", func() bool {
		_, err = away.rebuilder.Rebuild(bg(t), 0)
		return !strings.Contains(fmt.Sprint(err), "no leader among the others")
	}, func() string { return fmt.Sprint(err) })
	if reasonOf(err) != perdurev1.Reason_REASON_TRY_LATER || !strings.Contains(fmt.Sprint(err), "does not fit the disk of node n3") {
		t.Errorf("rebuilt on a low disk: %v", err)
	}
	if err := r.Halted(); err != nil {
		t.Errorf("it has halted: %v", err)
	}
}
