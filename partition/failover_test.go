package partition

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"perdure/internal/testkit"
	"perdure/partition/election"
	"perdure/partition/group"
	"perdure/partition/identity"
	"perdure/partition/stable"
)

// Timeouts that do not act within a test of failover, also on a machine that stalls for seconds. A failover
// must end before the first of them could act: the probe of a silent leader.
const (
	neverActs = time.Minute
	soon      = neverActs / 4
)

// timeouts are the usual ones, for clusters in virtual time. A failover that takes longer than atOnce has
// waited for the first of them, the probe of a silent leader.
const (
	timeouts = 2 * time.Second
	atOnce   = timeouts / 4
)

// on puts a node on a network in memory.
func on(net *testkit.Network) func(*Config) {
	return func(cfg *Config) { cfg.Network, cfg.PeerAddr = net.Host(cfg.NodeID), cfg.NodeID+":1" }
}

// newClusterWith founds a cluster of three nodes in memory with time-outs of its own.
func newClusterWith(t *testing.T, partitions uint32, timeout time.Duration, change ...func(*Config)) []*member {
	t.Helper()
	var founders []identity.Founder
	var all []*member
	for i := range 3 {
		cfg := memConfig(t, vfs.NewMem(), stable.NewMemory(), partitions)
		cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLease = timeout, timeout, timeout/2
		cfg.NodeID, cfg.PeerAddr, cfg.Partitions = fmt.Sprintf("n%d", i+1), freeAddr(t), partitions
		for _, fn := range change {
			fn(&cfg)
		}
		f := identity.Founder{NodeID: cfg.NodeID, ServerID: cfg.NodeID + "-0001", PeerAddr: cfg.PeerAddr}
		if cfg.Advertise != "" {
			f.PeerAddr = cfg.Advertise
		}
		founders = append(founders, f)
		cfg.Cluster = &identity.Cluster{Expect: 3, ClusterID: "c1", ServerID: f.ServerID, Founder: i == 0}
		all = append(all, &member{cfg: cfg})
	}
	for _, m := range all {
		m.cfg.Cluster.Founders = founders
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

// termsOf are the terms of all groups on a node.
func termsOf(m *member) map[uint32]uint64 {
	out := map[uint32]uint64{directoryGroup: m.cluster.Raft().CurrentTerm()}
	for _, r := range m.router.Replicas() {
		out[r.ID()] = r.Raft().CurrentTerm()
	}
	return out
}

// kill ends all that others see of a node at once, as the end of its process does.
func (m *member) kill(t *testing.T) {
	t.Helper()
	if err := m.mux.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestKilledLeader: whichever node is killed, the others lead its groups long before the timeouts would act,
// and nothing acknowledged is lost.
func TestKilledLeader(t *testing.T) {
	for victim := range 3 {
		t.Run(fmt.Sprintf("n%d", victim+1), func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T, net *testkit.Network) {
				all := newClusterWith(t, 4, timeouts, on(net))
				ctx := bg(t)
				for i := range 40 {
					if _, err := all[i%3].router.Propose(ctx, createCmd(fmt.Sprintf("p%d", i))); err != nil {
						t.Fatal(err)
					}
				}
				gone := all[victim]
				var rest []*member
				for _, m := range all {
					if m != gone {
						rest = append(rest, m)
					}
				}
				began := time.Now()
				gone.kill(t)
				for _, g := range append([]uint32{directoryGroup}, 0, 1, 2, 3) {
					waitFor(t, fmt.Sprintf("%v has another leader", election.GroupName(g)), func() bool {
						for _, m := range rest {
							if leads(m, g) {
								return true
							}
						}
						return false
					}, func() string { return fmt.Sprint(report{rest[0].Node}.node(), report{rest[1].Node}.node()) })
				}
				took := time.Since(began)
				t.Logf("all groups had a leader after %v", took)
				if took > atOnce {
					t.Errorf("all groups had a leader only after %v", took)
				}
				for i := range 80 {
					id := fmt.Sprintf("p%d", i)
					if i >= 40 {
						if _, err := rest[i%2].router.Propose(ctx, createCmd(id)); err != nil {
							t.Fatal(err)
						}
					}
					if _, _, err := rest[i%2].router.Query(ctx, group.Linearizable, promiseQuery(id)); err != nil {
						t.Fatalf("%s: %v", id, err)
					}
				}
			})
		})
	}
}

// leads says that a node serves a group as its leader.
func leads(m *member, g uint32) bool {
	if g == directoryGroup {
		return m.cluster.Leads()
	}
	return m.router.slots[g].Load().Serving()
}

// TestDroppedConnection: a leader whose process runs stays the leader although connections to it break.
func TestDroppedConnection(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, net *testkit.Network) {
		log, logged := newLog(t)
		all := newClusterWith(t, 3, timeouts, on(net), func(cfg *Config) { cfg.Logger = log })
		before := termsOf(all[0])
		ctx := bg(t)
		for round := range 3 {
			// Both ends of each of the four groups' connections to their two followers.
			waitFor(t, "all connections to be there", func() bool { return net.Conns() >= 4*2*2 }, func() string { return fmt.Sprint(net.Conns()) })
			net.CutAll()
			// They are made again, and every group works.
			for i, m := range all {
				if _, err := m.router.Propose(ctx, createCmd(fmt.Sprintf("p%d-%d", round, i))); err != nil {
					t.Fatal(err)
				}
			}
			for _, m := range all {
				waitFor(t, m.cfg.NodeID+" has looked", func() bool {
					return m.failover.Checking() == 0
				}, func() string { return "it still looks" })
			}
		}
		if logged.has("event=campaign_started") || !logged.has("event=leader_connection_broke") {
			t.Errorf("no campaign and the breaks were expected")
		}
		for _, m := range all {
			for g, term := range termsOf(m) {
				if term != before[g] {
					t.Errorf("%s: group %v went from term %d to %d", m.cfg.NodeID, election.GroupName(g), before[g], term)
				}
			}
		}
	})
}

// TestDeadMemberInTheLog: a dead peer of a real cluster is a few lines, and so is its return.
func TestDeadMemberInTheLog(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, net *testkit.Network) {
		logs := map[string]*logBuffer{}
		// No peer is late enough for a leader to report a running one.
		all := newClusterWith(t, 2, timeouts, on(net), func(cfg *Config) {
			logs[cfg.NodeID] = &logBuffer{}
			cfg.Logger = slog.New(slog.NewTextHandler(logs[cfg.NodeID], nil))
		})
		equalReplicas(t, all, 0)
		gone := all[2]
		gone.stop(t)
		logged := func(event string) int {
			return strings.Count(logs[all[0].cfg.NodeID].String(), event) + strings.Count(logs[all[1].cfg.NodeID].String(), event)
		}
		waitFor(t, "the dead peer to be logged", func() bool { return logged("event=peer_unreachable node=n3") > 0 }, func() string { return "" })
		gone.start(t)
		waitFor(t, "its return to be logged", func() bool { return logged("event=peer_reachable node=n3") > 0 }, func() string { return "" })
		if n := logged("event=peer_unreachable"); n > 4 {
			t.Errorf("%d lines of one dead peer on two nodes", n)
		}
		if n := logged("level=ERROR"); n > 0 {
			t.Errorf("%d errors because a node was stopped", n)
		}
	})
}
