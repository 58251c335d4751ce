package partition

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/audit"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/partition/identity"
	"perdure/partition/raftlogger"
	"perdure/recovery"
)

// plantDeadlineLost takes the deadline of a promise from the state of a member that is stopped.
func plantDeadlineLost(t *testing.T, m *member, partition uint32, id string) {
	t.Helper()
	db, err := pebble.Open("data/"+identity.StateDir(partition), &pebble.Options{FS: m.cfg.FS, DisableWAL: true, ErrorIfNotExists: true,
		FormatMajorVersion: pebble.FormatValueSeparation, Logger: raftlogger.Pebble{Log: m.cfg.Logger, Fatal: func(error) {}}})
	if err != nil {
		t.Fatal(err)
	}
	b, closer, err := db.Get(keys.Of(keys.Promise, "default", id))
	if err != nil {
		t.Fatal(err)
	}
	p, err := recovery.DecodePromise(b)
	if err == nil {
		err = closer.Close()
	}
	if err == nil {
		err = db.Delete(keys.DeadlineOf(keys.DeadlinePromise, p.TimeoutAt, "default", id), pebble.NoSync)
	}
	if err == nil {
		err = db.Flush()
	}
	if err == nil {
		err = db.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// verified is what a verification says, by node and partition, and which nodes refused.
func verified(t *testing.T, m *member) (audits map[string][]*perdurev1.ReplicaAudit, refused map[string]string) {
	t.Helper()
	audits, refused = map[string][]*perdurev1.ReplicaAudit{}, map[string]string{}
	if err := m.Operator().Verify(bg(t), &perdurev1.VerifyRequest{}, func(ev *perdurev1.VerifyEvent) error {
		if a := ev.GetAudit(); a != nil {
			audits[ev.NodeId] = append(audits[ev.NodeId], a)
		}
		if why := ev.GetRefused(); why != "" {
			refused[ev.NodeId] = why
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return audits, refused
}

// TestVerifyAndAudit: on whichever node an operator asks, every replica of every node is checked. The result
// of a background audit is in the status, without ids, and once in the log. A violation halts nothing.
func TestVerifyAndAudit(t *testing.T) {
	t.Parallel() // it waits most of the time
	var log *logBuffer
	all := newClusterWith(t, 3, time.Second, func(cfg *Config) {
		if cfg.NodeID == "n3" {
			cfg.Logger, log = newLog(t)
			cfg.AuditShare, cfg.AuditInterval = 0.5, 20*time.Millisecond
		}
	})
	id := idIn(all[0].router, 1, "promise")
	must(t, all[0].router, promiseCmd(id, 3_600_000))
	leader := leaderOf(t, all, 1)
	waitFor(t, "node 3 to have it", func() bool {
		r := all[2].router.slots[1].Load()
		have, err := r.Store().Status()
		want, _ := leader.router.slots[1].Load().Store().Status()
		return err == nil && have.Applied >= want.Applied
	}, func() string { return "" })
	sound, refused := verified(t, all[1])
	if len(sound) != 3 || len(refused) != 0 {
		t.Fatalf("checked on %d nodes, refused by %v", len(sound), refused)
	}
	for node, audits := range sound {
		if len(audits) != int(all[0].identity.Partitions) {
			t.Errorf("%s checked %d replicas", node, len(audits))
		}
		for i, a := range audits {
			if a.Error != "" || a.Found != 0 || a.Keys == 0 && i == 1 || a.Applied != a.Through || a.Content != sound["n1"][i].Content && a.Applied == sound["n1"][i].Applied {
				t.Errorf("%s: %v, n1: %v", node, a, sound["n1"][i])
			}
		}
	}
	victim := all[2]
	victim.stop(t)
	plantDeadlineLost(t, victim, 1, id)
	victim.start(t)
	waitFor(t, "the audit in the background", func() bool { return victim.router.slots[1].Load().Status().GetAudit().GetFound() > 0 },
		func() string { return log.String() })
	waitFor(t, "n1 to reach n3 again", func() bool { // its connection to the former n3 may not have ended yet
		s, err := all[0].Operator().ClusterStatus(bg(t))
		return err == nil && !slices.ContainsFunc(s.Nodes, func(n *perdurev1.ClusterNode) bool { return !n.Reachable })
	}, nil)
	broken, refused := verified(t, all[0])
	if len(refused) != 0 {
		t.Fatalf("refused by %v", refused)
	}
	for node, audits := range broken {
		for i, a := range audits {
			names := slices.ContainsFunc(a.Problems, func(p *perdurev1.AuditProblem) bool {
				return p.Rule == recovery.MissingPromiseTimeout && p.Id == id && p.Namespace == "default"
			})
			if here := node == "n3" && i == 1; names != here || (a.Found > 0) != here || a.Error != "" {
				t.Errorf("%s, partition %d: %v", node, i, a)
			}
		}
	}
	if n1, n3 := broken["n1"][1], broken["n3"][1]; n1.Applied == n3.Applied && n1.Content == n3.Content {
		t.Errorf("the same content at %d: %x", n1.Applied, n1.Content)
	}
	st, err := all[0].Operator().ClusterStatus(bg(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range st.Partitions[1].Replicas {
		if (r.Audit.GetFound() > 0) != (r.NodeId == "n3") || strings.Contains(r.Audit.String(), id) || r.State == "halted" {
			t.Errorf("status: %v", r)
		}
	}
	// Some rounds later it was logged once.
	last := victim.router.slots[1].Load().Status().GetAudit().EndedMs
	waitFor(t, "two more rounds", func() bool { return victim.router.slots[1].Load().Status().GetAudit().EndedMs > last+50 }, log.String)
	if n := strings.Count(log.String(), "event=audit_problem"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log)
	}
	must(t, all[0].router, promiseCmd(idIn(all[0].router, 1, "another"), 3_600_000))

	// One verification at a time on each node: a second caller gets a refusal from it, and the other nodes
	// check.
	held, release, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		var once sync.Once
		ended <- all[1].auditor.Verify(bg(t), func(*perdurev1.VerifyEvent) error {
			once.Do(func() { close(held); <-release })
			return nil
		})
	}()
	<-held
	some, refused := verified(t, all[0])
	close(release)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(some) != 2 || !strings.Contains(refused["n2"], "node n2 verifies for another caller") {
		t.Errorf("checked on %d nodes, refused by %v", len(some), refused)
	}
}

// An audit ends with its caller, and gives way to the end of the state: a store that is closed does not wait for it.
func TestAuditGivesWay(t *testing.T) {
	n := newMemNode(t, 3)
	ready(t, n)
	must(t, n.router, promiseCmd(idIn(n.router, 0, "p"), 3_600_000))
	r := n.router.slots[0].Load()
	var once sync.Once
	hold := make(chan struct{})
	held := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		_, err := n.auditor.Check(context.Background(), r, 0, func() func() bool {
			return func() bool {
				once.Do(func() { close(held); <-hold })
				return false
			}
		}, func(time.Duration) bool { return true })
		ended <- err
	}()
	<-held
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := n.auditor.Check(ctx, r, 0, func() func() bool { return nil }, func(time.Duration) bool { return true }); err != context.Canceled {
		t.Errorf("cancelled: %v", err)
	}
	if err := r.Halted(); err != nil {
		t.Errorf("a cancelled audit has halted the replica: %v", err)
	}
	closed := make(chan error, 1)
	go func() { closed <- r.Store().Close() }()
	time.AfterFunc(20*time.Millisecond, func() { close(hold) })
	if err := <-ended; err == nil {
		// It may have been at its last key.
		t.Log("the audit came to its end first")
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if _, err := audit.New(state.Partition{}, 0); err == nil {
		t.Error("an audit of no partition")
	}
}
