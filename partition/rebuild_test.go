package partition

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/clock"
	"perdure/internal/testkit"
	"perdure/partition/group"
	"perdure/partition/identity"
)

// TestRebuild: a replica whose state is lost halts and blocks no other. One command at any node rebuilds it
// from the others.
func TestRebuild(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, net *testkit.Network) {
		all := newClusterWith(t, 3, timeouts, on(net))
		made := 0
		create := func(n int) {
			t.Helper()
			for range n {
				at := all[made%3]
				if at.Node == nil {
					at = all[0]
				}
				if _, err := at.router.Propose(bg(t), createCmd(fmt.Sprintf("p%d", made))); err != nil {
					t.Fatalf("p%d at %s: %v", made, at.cfg.NodeID, err)
				}
				made++
			}
		}
		create(60)
		for _, c := range []struct {
			name string
			harm func(m *member)
		}{
			{"a healthy follower", nil},
			{"a lost state", func(m *member) {
				if err := m.cfg.FS.RemoveAll("data/" + identity.StateDir(1)); err != nil {
					t.Fatal(err)
				}
			}},
			{"a damaged state", func(m *member) { damage(t, m.cfg.FS, "data/"+identity.StateDir(1)) }},
			{"one that came back a moment ago", nil},
		} {
			name, harm := c.name, c.harm
			t.Log(name)
			victim := all[2]
			if harm != nil {
				victim.stop(t)
				harm(victim)
				victim.start(t)
				waitFor(t, "the replica to halt", func() bool { return victim.router.slots[1].Load().Halted() != nil },
					func() string { return fmt.Sprint(victim.NotReady()) })
				// Node 3 still answers for partition 1.
				create(30)
				if _, _, err := victim.router.Query(bg(t), group.Stale, promiseQuery(idIn(all[0].router, 1, "p"))); err == nil {
					t.Error("a promise that no caller made was found")
				}
			}
			// Writes continue meanwhile, and the victim makes markers: none of them may cover what the new state
			// lacks.
			busy, quiet := context.WithCancel(context.Background())
			var writers sync.WaitGroup
			t.Cleanup(func() { quiet(); writers.Wait() }) // also if the test ends before
			writers.Go(func() {
				for busy.Err() == nil {
					id := fmt.Sprintf("p%d", made)
					if _, err := all[0].router.Propose(bg(t), createCmd(id)); err != nil {
						t.Errorf("%s: %v", id, err)
						return
					}
					made++
					if r := victim.router.slots[1].Load(); r.Raft() != nil {
						_ = r.Cover() // it may be on its way down
					}
					clock.Wait(busy, clock.System{}, 5*time.Millisecond)
				}
			})
			reply, err := rebuildAt(t, all[0], &perdurev1.RebuildReplicaRequest{Partition: 1, NodeId: "n3"})
			quiet()
			writers.Wait()
			if err != nil || reply.Applied == 0 {
				t.Fatalf("%s: %v, %v", name, reply, err)
			}
			ready(t, victim.Node)
			create(30)
			for p := range uint32(3) {
				equalReplicas(t, all, p)
			}
			// The rebuilt replica survives a restart.
			victim.stop(t)
			create(9)
			victim.start(t)
			ready(t, victim.Node)
			for p := range uint32(3) {
				equalReplicas(t, all, p)
			}
		}
	})
}

// TestRebuildRepeated: the same command again does nothing, and says that it did nothing.
func TestRebuildRepeated(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, net *testkit.Network) {
		log, logged := newLog(t)
		all := newClusterWith(t, 3, timeouts, on(net), func(cfg *Config) { cfg.Logger = log })
		in := &perdurev1.RebuildReplicaRequest{Partition: 1, NodeId: "n3"}
		if first, err := rebuildAt(t, all[0], in); err != nil || first.DoneMsAgo != 0 || !logged.has("event=replica_renewed") || !logged.has("event=replica_rebuilt") {
			t.Fatalf("the first: %v, %v", first, err)
		}
		if count := len(report{all[2].Node}.node().Quarantined); count != 1 || logged.has("event=rebuild_repeated") {
			t.Fatalf("%d former replicas are quarantined", count)
		}
		for _, at := range []*member{all[0], all[2]} {
			again, err := rebuildAt(t, at, in)
			if err != nil || again.DoneMsAgo == 0 {
				t.Fatalf("again, at %s: %v, %v", at.cfg.NodeID, again, err)
			}
		}
		if count := len(report{all[2].Node}.node().Quarantined); count != 1 || !logged.has("event=rebuild_repeated") {
			t.Fatalf("%d former replicas are quarantined after the repetitions", count)
		}
	})
}

// rebuildAt rebuilds a replica as an operator does, and checks that no TRY_LATER comes without waiting first.
func rebuildAt(t *testing.T, m *member, in *perdurev1.RebuildReplicaRequest) (reply *perdurev1.RebuildReplicaResponse, err error) {
	t.Helper()
	waitFor(t, "it to be rebuilt", func() bool {
		began := time.Now()
		reply, err = m.Operator().Rebuild(bg(t), in)
		return reasonOf(err) != perdurev1.Reason_REASON_TRY_LATER || time.Since(began) < statusTimeout
	}, func() string { return fmt.Sprint(err) })
	return reply, err
}

// damage flips a byte in the middle of a store's manifest.
func damage(t *testing.T, fs vfs.FS, dir string) {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	for _, name := range slices.Backward(names) {
		if !strings.HasPrefix(name, "MANIFEST") {
			continue
		}
		f, err := fs.OpenReadWrite(fs.PathJoin(dir, name), vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		st, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		var b [1]byte
		at := st.Size() / 2
		if _, err := f.ReadAt(b[:], at); err != nil {
			t.Fatal(err)
		}
		b[0] ^= 0x10
		if _, err := f.WriteAt(b[:], at); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("no manifest in %v", names)
}
