package partition

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/freeport"
	"perdure/internal/testkit"
	"perdure/partition/cluster"
	"perdure/partition/group"
	"perdure/partition/identity"
	"perdure/partition/stable"
)

// member is one node of a cluster in this process, with a disk that outlives its restarts.
type member struct {
	cfg Config
	*Node
}

// freeAddr returns an address without a listener that no other test gets.
func freeAddr(t *testing.T) string { return freeport.Partition.Addr(t) }

// newCluster founds a cluster of three nodes in memory and waits until all are ready. change edits each
// node's configuration.
func newCluster(t *testing.T, partitions uint32, change ...func(*Config)) []*member {
	t.Helper()
	var founders []identity.Founder
	for i := range 3 {
		node := fmt.Sprintf("n%d", i+1)
		founders = append(founders, identity.Founder{NodeID: node, ServerID: node + "-0001", PeerAddr: freeAddr(t)})
	}
	var all []*member
	for i, f := range founders {
		cfg := memConfig(t, vfs.NewMem(), stable.NewMemory(), partitions)
		cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLease = wide, wide, wide/2
		cfg.NodeID, cfg.PeerAddr, cfg.Partitions = f.NodeID, f.PeerAddr, partitions
		cfg.Cluster = &identity.Cluster{Expect: 3, ClusterID: "c1", ServerID: f.ServerID, Founders: founders, Founder: i == 0}
		for _, c := range change {
			c(&cfg)
		}
		all = append(all, &member{cfg: cfg})
	}
	for _, m := range all {
		m.start(t)
	}
	all[0].MayFound()
	for _, m := range all {
		ready(t, m.Node)
	}
	return all
}

func (m *member) start(t *testing.T) {
	t.Helper()
	n, err := Start(m.cfg)
	if err != nil {
		t.Fatalf("%s: %v", m.cfg.NodeID, err)
	}
	m.Node = n
	t.Cleanup(func() {
		if m.Node == n {
			closeNode(t, n)
		}
	})
}

// stop closes the node in order.
func (m *member) stop(t *testing.T) {
	t.Helper()
	closeNode(t, m.Node)
	m.Node = nil
	m.cfg.Stable = m.cfg.Stable.(*stable.Memory).Clone() // a closed store is opened again
}

// leaderOf is the node that serves a partition.
func leaderOf(t *testing.T, all []*member, p uint32) *member {
	t.Helper()
	var found *member
	waitFor(t, fmt.Sprintf("partition %d has a leader", p), func() bool {
		for _, m := range all {
			if m.Node != nil && m.router.slots[p].Load().Serving() {
				found = m
				return true
			}
		}
		return false
	}, func() string { return "none" })
	return found
}

// TestClusterForms: three nodes become one cluster, each leads its share, and each answers for all.
func TestClusterForms(t *testing.T) {
	t.Parallel() // it waits most of the time
	all := newCluster(t, 4)
	for p := range uint32(4) {
		want := all[int(p)%3]
		waitFor(t, fmt.Sprintf("%s leads partition %d", want.cfg.NodeID, p), func() bool {
			return leads(want, p)
		}, func() string { return leaderOf(t, all, p).cfg.NodeID + " does" })
	}
	ctx := bg(t)
	for i := range 40 {
		id := fmt.Sprintf("p%d", i)
		if _, err := all[i%3].router.Propose(ctx, createCmd(id)); err != nil {
			t.Fatalf("%s at %s: %v", id, all[i%3].cfg.NodeID, err)
		}
		for _, m := range all {
			reply, _, err := m.router.Query(ctx, group.Linearizable, promiseQuery(id))
			if err != nil || reply.GetPromise().GetPromise().GetId() != id {
				t.Fatalf("%s read at %s: %v, %v", id, m.cfg.NodeID, reply, err)
			}
		}
	}
	for p := range uint32(4) {
		equalReplicas(t, all, p)
	}
}

func createCmd(id string) *commandv1.Command {
	cmd := promiseCmd(id, 3_600_000)
	cmd.Request = rid("create " + id)
	return cmd
}

// equalReplicas waits until all replicas of a partition have applied the same and compares their checksums.
func equalReplicas(t *testing.T, all []*member, p uint32) {
	t.Helper()
	var seen []string
	waitFor(t, fmt.Sprintf("partition %d is the same on all nodes", p), func() bool {
		seen = nil
		same := true
		var first *commandv1.ReplicaStatus
		for _, m := range all {
			st := report{m.Node}.replica(m.router.slots[p].Load())
			seen = append(seen, fmt.Sprintf("%s: %d %x %s", m.cfg.NodeID, st.Applied, st.Checksum, st.Halted))
			if first == nil {
				first = st
			}
			same = same && st.Halted == "" && st.Applied == first.Applied
			if st.Applied == first.Applied && st.Checksum != first.Checksum {
				t.Fatalf("partition %d differs: %v", p, seen)
			}
		}
		return same
	}, func() string { return fmt.Sprint(seen) })
}

// TestClusterLosesANode: whichever node goes, the others serve everything that was acknowledged; it comes
// back and catches up.
func TestClusterLosesANode(t *testing.T) {
	t.Parallel() // it waits most of the time
	all := newCluster(t, 3)
	ctx := bg(t)
	made := 0
	create := func(at *member, n int) {
		t.Helper()
		for range n {
			if _, err := at.router.Propose(ctx, createCmd(fmt.Sprintf("p%d", made))); err != nil {
				t.Fatalf("p%d at %s: %v", made, at.cfg.NodeID, err)
			}
			made++
		}
	}
	create(all[0], 30)
	for i, gone := range all {
		gone.stop(t)
		at := all[(i+1)%3]
		create(at, 30)
		for k := range made {
			id := fmt.Sprintf("p%d", k)
			if _, _, err := at.router.Query(ctx, group.Linearizable, promiseQuery(id)); err != nil {
				t.Fatalf("%s is gone with %s: %v", id, gone.cfg.NodeID, err)
			}
		}
		gone.start(t)
		ready(t, gone.Node)
		for p := range uint32(3) {
			equalReplicas(t, all, p)
		}
	}
}

// TestStrangersAreRefused: a server that may not join gets the reason, and nothing changes.
func TestStrangersAreRefused(t *testing.T) {
	t.Parallel() // it waits most of the time
	all := newCluster(t, 3)
	before := all[0].Directory().Epoch
	var addrs []string
	for _, m := range all {
		addrs = append(addrs, m.cfg.PeerAddr)
	}
	for name, in := range map[string]*commandv1.JoinRequest{
		"a fourth node":    {Member: &commandv1.DirectoryMember{NodeId: "n4", ServerId: "n4-1", PeerAddr: "127.0.0.1:1"}},
		"other partitions": {Member: &commandv1.DirectoryMember{NodeId: "n1", ServerId: "n1-2", PeerAddr: "127.0.0.1:1"}, Partitions: 7},
		"other number":     {Member: &commandv1.DirectoryMember{NodeId: "n1", ServerId: "n1-2", PeerAddr: "127.0.0.1:1"}, BootstrapExpect: 5},
		"a second n1":      {Member: &commandv1.DirectoryMember{NodeId: "n1", ServerId: "n1-2", PeerAddr: "127.0.0.1:1"}},
	} {
		_, err := cluster.AskToJoin(bg(t), "c1", transportOptions(), addrs, in)
		var e *api.Error
		if !errors.As(err, &e) || e.Reason != perdurev1.Reason_REASON_MEMBERSHIP_REFUSED {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithTimeout(bg(t), wide)
	defer cancel()
	if _, err := cluster.AskToJoin(ctx, "c2", transportOptions(), addrs, &commandv1.JoinRequest{
		Member: &commandv1.DirectoryMember{NodeId: "n1", ServerId: "n1-2", PeerAddr: "127.0.0.1:1"}}); err == nil {
		t.Error("a server of another cluster was let in")
	}
	if now := all[0].Directory().Epoch; now != before {
		t.Errorf("the directory went from epoch %d to %d", before, now)
	}
}

// TestWipedNode: a node whose data is gone comes back as a new server, replaces its former member, and
// catches up.
func TestWipedNode(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, net *testkit.Network) {
		all := newClusterWith(t, 3, timeouts, on(net))
		ctx := bg(t)
		for i := range 100 {
			if _, err := all[0].router.Propose(ctx, createCmd(fmt.Sprintf("p%d", i))); err != nil {
				t.Fatal(err)
			}
		}
		gone := all[2]
		gone.stop(t)
		dir, err := cluster.AskToJoin(ctx, "c1", optionsOf(all[0]), []string{all[0].cfg.PeerAddr, all[1].cfg.PeerAddr}, &commandv1.JoinRequest{
			Member: &commandv1.DirectoryMember{NodeId: "n3", ServerId: "n3-0002", PeerAddr: gone.cfg.PeerAddr}, Partitions: 3, BootstrapExpect: 3})
		if err != nil {
			t.Fatal(err)
		}
		gone.cfg.FS, gone.cfg.Stable = vfs.NewMem(), stable.NewMemory()
		gone.cfg.Cluster = &identity.Cluster{Expect: 3, ClusterID: dir.ClusterId, ServerID: "n3-0002"}
		gone.start(t)
		ready(t, gone.Node)
		for p := range uint32(3) {
			equalReplicas(t, all, p)
		}
		for _, m := range all {
			waitFor(t, m.cfg.NodeID+" knows the new server", func() bool {
				return m.Directory().Members[2].ServerId == "n3-0002"
			}, func() string { return fmt.Sprint(m.Directory().Members) })
		}
	})
}

// TestLaggingNode: a node that was away for longer than the others keep their logs gets a whole state and
// continues from it, also when it is stopped and started again right after.
func TestLaggingNode(t *testing.T) {
	t.Parallel() // it waits most of the time
	all := newCluster(t, 3, func(c *Config) {
		c.SnapshotThreshold, c.TrailingLogs, c.SnapshotInterval = 32, 16, 20*time.Millisecond
	})
	made := 0
	create := func(n int) {
		t.Helper()
		for range n {
			must(t, all[made%2].router, createCmd(fmt.Sprintf("p%d", made)))
			made++
		}
	}
	create(30)
	away := all[2]
	for range 2 {
		away.stop(t)
		before := away.cfg.FS
		create(600)
		for p := range uint32(3) {
			// Either may lead when it comes back.
			for _, m := range all[:2] {
				waitFor(t, "the log to be cut", func() bool {
					first, err := m.raftlog.Group(p).FirstIndex()
					return err == nil && first > 100
				}, func() string { return "not yet" })
			}
		}
		away.start(t)
		ready(t, away.Node)
		for p := range uint32(3) {
			equalReplicas(t, all, p)
			if st, err := away.router.slots[p].Load().Store().Status(); err != nil || st.Received == 0 {
				t.Errorf("partition %d caught up without a snapshot: %+v, %v", p, st, err)
			}
		}
		names, err := before.List("data")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if strings.HasPrefix(name, "sending-") {
				t.Errorf("%s is left", name)
			}
		}
	}
	away.stop(t)
	create(10)
	away.start(t)
	for p := range uint32(3) {
		equalReplicas(t, all, p)
	}
}
