package partition

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition/stable"
)

// The log that is kept behind a marker is bounded by bytes, on the leader and on the followers.
func TestTrailingLogByBytes(t *testing.T) {
	t.Parallel() // it waits most of the time
	const bound = 1 << 20
	all := newCluster(t, 3, func(c *Config) { c.SnapshotBytes, c.TrailingBytes = bound, bound })
	r := all[0].Router()
	const count, size = 150, 64 << 10
	for i := range count {
		id := idIn(r, 0, fmt.Sprint("p", i))
		// The balancer may hand the partition on meanwhile: with a request id the router repeats what was cut off.
		for k, cmd := range []*commandv1.Command{createCmd(id), settleCmd(id, strings.Repeat("v", size))} {
			cmd.Request = &perdurev1.RequestID{Id: fmt.Appendf(nil, "%s %d", id, k)}
			must(t, r, cmd)
		}
	}
	for _, m := range all {
		logs := m.raftlog.Group(0)
		kept := func() (bytes int64, first uint64) {
			first, err := logs.FirstIndex()
			if err != nil {
				return 1 << 62, 0
			}
			last, err := logs.LastIndex()
			if err != nil {
				return 1 << 62, 0
			}
			for i := first; i <= last; i++ {
				var l raft.Log
				if logs.GetLog(i, &l) == nil { // or it was cut meanwhile
					bytes += int64(len(l.Data))
				}
			}
			return bytes, first
		}
		config := func() raft.ReloadableConfig { return m.router.Replicas()[0].Raft().ReloadableConfig() }
		waitFor(t, "the log of "+m.cfg.NodeID+" to be cut", func() bool {
			bytes, _ := kept()
			return bytes <= 3*bound
		}, func() string {
			bytes, first := kept()
			return fmt.Sprintf("%d bytes from entry %d on, %+v", bytes, first, config())
		})
		if got := config().TrailingLogs; got >= 8192 {
			t.Errorf("%s keeps %d entries", m.cfg.NodeID, got)
		}
	}
	equalReplicas(t, all, 0)
}

// TestOverdueMarker: a process that dies before Raft looks at its threshold leaves a longer log to each start. The next
// process makes the marker as soon as it has applied that log, and not before the threshold.
func TestOverdueMarker(t *testing.T) {
	t.Parallel()
	const threshold = 64
	marked := func(m *member) (index uint64) {
		if _, err := fmt.Sscan(m.Router().Replicas()[0].Raft().Stats()["last_snapshot_index"], &index); err != nil {
			t.Fatal(err)
		}
		return index
	}
	m := &member{cfg: memConfig(t, vfs.NewMem(), stable.NewMemory(), 1)}
	m.cfg.SnapshotThreshold, m.cfg.SnapshotInterval = threshold, 24*time.Hour
	run := func(writes int, name string) {
		m.start(t)
		ready(t, m.Node)
		for i := range writes {
			must(t, m.Router(), createCmd(fmt.Sprint(name, i)))
		}
	}
	run(threshold/2, "a")
	m.stop(t)
	run(threshold, "b")
	if index := marked(m); index != 0 {
		t.Errorf("a marker at %d, the log found was below the threshold", index)
	}
	end := m.Router().Replicas()[0].Raft().LastIndex()
	m.stop(t)
	run(1, "c")
	waitFor(t, "the overdue marker", func() bool { return marked(m) >= end },
		func() string { return fmt.Sprintf("the newest covers entry %d of %d", marked(m), end) })
}
