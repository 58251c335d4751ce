package partition

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/testkit"
	"perdure/partition/identity"
)

// The status and a metric show the states that a rebuild has quarantined, also after a restart. Only an
// operator's command deletes them: nothing else, and none while the present replica does not work.
func TestQuarantinedReplicas(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, net *testkit.Network) {
		all := newClusterWith(t, 2, timeouts, on(net), func(cfg *Config) { cfg.Registerer = prometheus.NewRegistry() })
		ctx, victim, op := bg(t), all[2], all[0].Operator()
		registry := func() *prometheus.Registry { return victim.cfg.Registerer.(*prometheus.Registry) }
		for i := range 30 {
			if _, err := all[0].router.Propose(ctx, createCmd(fmt.Sprintf("p%d", i))); err != nil {
				t.Fatal(err)
			}
		}
		quarantined := func() []*perdurev1.QuarantinedReplica {
			t.Helper()
			var s *perdurev1.ClusterStatus
			waitFor(t, "all to answer", func() bool { // one has just started
				var err error
				if s, err = op.ClusterStatus(ctx); err != nil {
					t.Fatal(err)
				}
				return !slices.ContainsFunc(s.Nodes, func(n *perdurev1.ClusterNode) bool { return !n.Reachable })
			}, func() string { return fmt.Sprint(s) })
			for _, n := range s.Nodes[:2] {
				if len(n.Quarantined) > 0 {
					t.Errorf("%s keeps %v", n.NodeId, n.Quarantined)
				}
			}
			return s.Nodes[2].Quarantined
		}
		// Either may get TRY_LATER from a node that does not answer in time.
		forget := func(p uint32, name string) (r *perdurev1.ForgetQuarantinedResponse, err error) {
			t.Helper()
			waitFor(t, "it to be forgotten or refused", func() bool {
				r, err = op.ForgetQuarantined(ctx, &perdurev1.ForgetQuarantinedRequest{NodeId: "n3", Partition: p, Name: name})
				return reasonOf(err) != perdurev1.Reason_REASON_TRY_LATER
			}, func() string { return fmt.Sprint(err) })
			return r, err
		}
		rebuild := func(p uint32) {
			t.Helper()
			var err error
			waitFor(t, "it to be rebuilt", func() bool {
				_, err = op.Rebuild(ctx, &perdurev1.RebuildReplicaRequest{NodeId: "n3", Partition: p})
				return reasonOf(err) != perdurev1.Reason_REASON_TRY_LATER
			}, func() string { return fmt.Sprint(err) })
			if err != nil {
				t.Fatal(err)
			}
		}
		if have := quarantined(); len(have) > 0 {
			t.Fatalf("it keeps %v", have)
		}
		if r, err := forget(1, ""); err != nil || len(r.Forgotten) > 0 {
			t.Errorf("nothing is quarantined: %v, %v", r, err)
		}
		shows(t, registry(), "kept_bytes{1}", "0", equals(0))
		rebuild(0)
		rebuild(1)

		victim.stop(t)
		damage(t, victim.cfg.FS, "data/"+identity.StateDir(1))
		// Neither of these is a former replica.
		for _, name := range []string{"data/kept-0001-mine", "data/kept-1-20260102T030405.000", "data/kept-0001-20260102T030405.000.tar"} {
			if err := victim.cfg.FS.MkdirAll(name, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		victim.cfg.Registerer = prometheus.NewRegistry()
		victim.start(t)
		waitFor(t, "the replica to halt", func() bool { return victim.router.slots[1].Load().Halted() != nil }, func() string { return fmt.Sprint(victim.NotReady()) })
		have := quarantined()
		if len(have) != 2 || have[0].Partition != 0 || have[1].Partition != 1 || have[1].Bytes == 0 {
			t.Fatalf("it keeps %v", have)
		}
		shows(t, registry(), "kept_bytes{1}", "what the status says", equals(float64(have[1].Bytes)))
		if _, err := forget(1, ""); reasonOf(err) != perdurev1.Reason_REASON_MEMBERSHIP_REFUSED {
			t.Errorf("a halted replica's: %v", err)
		}
		if len(quarantined()) != 2 {
			t.Error("it was deleted nevertheless")
		}
		rebuild(1)
		have = quarantined()
		if len(have) != 3 || have[1].Name >= have[2].Name {
			t.Fatalf("it keeps %v", have)
		}
		for _, name := range []string{identity.StateDir(1), "..", "kept-0001-mine", have[0].Name, "kept-0001-20260102T030405.000/../state-0001"} {
			if _, err := forget(1, name); reasonOf(err) != perdurev1.Reason_REASON_BAD_REQUEST {
				t.Errorf("%s of partition 1: %v", name, err)
			}
		}
		if _, err := forget(7, ""); reasonOf(err) != perdurev1.Reason_REASON_PARTITION_NOT_FOUND {
			t.Errorf("no such partition: %v", err)
		}
		if _, err := op.ForgetQuarantined(ctx, &perdurev1.ForgetQuarantinedRequest{NodeId: "n9"}); reasonOf(err) != perdurev1.Reason_REASON_NODE_NOT_FOUND {
			t.Errorf("no such node: %v", err)
		}
		if r, err := forget(1, "kept-0001-20200102T030405.000"); err != nil || len(r.Forgotten) > 0 || len(quarantined()) != 3 {
			t.Errorf("one that is not there: %v, %v", r, err)
		}

		r, err := forget(1, have[2].Name)
		if err != nil || len(r.Forgotten) != 1 || r.Forgotten[0].Name != have[2].Name || len(quarantined()) != 2 {
			t.Errorf("by its name: %v, %v", r, err)
		}
		if r, err = forget(1, ""); err != nil || len(r.Forgotten) != 1 || len(quarantined()) != 1 {
			t.Errorf("all: %v, %v", r, err)
		}
		shows(t, registry(), "kept_bytes{1}", "0", equals(0))
		names, err := victim.cfg.FS.List("data")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{identity.StateDir(0), identity.StateDir(1), identity.MarkerDir(1), have[0].Name, "kept-0001-mine", "kept-1-20260102T030405.000"} {
			if !slices.Contains(names, name) {
				t.Errorf("%s is gone", name)
			}
		}
		// An operator may delete one by hand; a node notices it.
		if err := victim.cfg.FS.RemoveAll("data/" + have[0].Name); err != nil {
			t.Fatal(err)
		}
		if have := quarantined(); len(have) > 0 {
			t.Errorf("it keeps %v", have)
		}
		if r, err := victim.Operator().ForgetQuarantined(ctx, &perdurev1.ForgetQuarantinedRequest{NodeId: "n3"}); err != nil || len(r.Forgotten) > 0 {
			t.Errorf("%v, %v", r, err)
		}
		equalReplicas(t, all, 1)
	})
}

// While a replica is being rebuilt, nothing of it is deleted.
func TestQuarantineWhileRebuilding(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, net *testkit.Network) {
		all := newClusterWith(t, 1, timeouts, on(net))
		fs := all[1].cfg.FS
		name := "kept-0000-20260102T030405.000"
		if err := fs.MkdirAll("data/"+name, 0o755); err != nil {
			t.Fatal(err)
		}
		f, err := fs.Create("data/"+name+"/000001.sst", vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(make([]byte, 1234)); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		all[1].stop(t)
		all[1].start(t)
		n := all[1].Node
		if n.former.Bytes(0) != 1234 {
			t.Errorf("%d bytes are quarantined", n.former.Bytes(0))
		}
		if r, err := n.rebuilder.Forget(0, ""); err != nil || len(r.Forgotten) != 1 || r.Forgotten[0].Bytes != 1234 {
			t.Errorf("%v, %v", r, err)
		}
		if _, err := fs.Stat("data/" + name); !isNotExist(err) {
			t.Errorf("it is there: %v", err)
		}
	})
}
