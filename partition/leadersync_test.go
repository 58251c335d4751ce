package partition

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	"perdure/internal/crashfs"
	"perdure/partition/group"
	"perdure/partition/grouptest"
	"perdure/partition/stable"
)

// TestLeaderLosesPowerBeforeItsSync: a leader replicates an entry while its own disk has not synced it. The entry is on
// one follower, and Raft counts two copies. The leader acknowledges nothing and no follower applies the entry. The power
// loss takes the leader's copy, the other two elect a leader without the entry, and all replicas agree afterwards.
func TestLeaderLosesPowerBeforeItsSync(t *testing.T) {
	t.Parallel() // it waits most of the time
	disks, files := map[string]*grouptest.GatedDisk{}, map[string]*crashfs.FS{}
	all := newClusterWith(t, 1, 4*time.Second, func(cfg *Config) {
		fs := crashfs.New()
		disk := grouptest.NewGatedDisk(fs)
		files[cfg.NodeID], disks[cfg.NodeID], cfg.FS = fs, disk, disk
	})
	leader := leaderOf(t, all, 0)
	var follower, away *member
	for _, m := range all {
		switch {
		case m == leader:
		case follower == nil:
			follower = m
		default:
			away = m
		}
	}
	must(t, leader.router, createCmd("before"))
	equalReplicas(t, all, 0)
	away.stop(t)

	lead, follow := leader.router.slots[0].Load(), follower.router.slots[0].Load()
	disk := disks[leader.cfg.NodeID]
	disk.Hold()
	t.Cleanup(disk.Release)
	last, term := lead.Raft().LastIndex(), lead.Raft().CurrentTerm()
	answered := make(chan error, 1)
	ctx := bg(t)
	go func() {
		_, err := leader.router.Propose(ctx, createCmd("lost"))
		answered <- err
	}()
	waitFor(t, "the follower has the entry, and Raft counts it as committed",
		func() bool { return follow.Raft().LastIndex() > last && lead.Raft().CommitIndex() > last }, nil)
	// Further messages would tell the follower what is committed.
	acks, server := lead.Transport().Acks(), raft.ServerID(follower.cfg.Cluster.ServerID)
	mark := acks.Mark()
	waitFor(t, "more messages are answered", func() bool { return acks.Since(server, term, mark+20) }, nil)
	if state, _ := follow.Store().Status(); state.Applied > last {
		t.Errorf("the follower has applied %d, the leader has synced %d", state.Applied, last)
	}
	if state, _ := lead.Store().Status(); state.Applied > last {
		t.Errorf("the leader has applied %d, and has synced %d", state.Applied, last)
	}
	select {
	case err := <-answered:
		t.Errorf("the leader has answered %v before it has synced the entry", err)
	default:
	}
	crashed := files[leader.cfg.NodeID].CrashClone(vfs.CrashCloneCfg{})
	votes := leader.cfg.Stable.(*stable.Memory).Clone()
	follower.stop(t)
	disk.Release()
	closeNode(t, leader.Node)
	leader.Node = nil

	leader.cfg.FS, leader.cfg.Stable = crashed, votes
	leader.start(t)
	away.start(t)
	at := leaderOf(t, []*member{leader, away}, 0)
	must(t, at.router, createCmd("after"))
	for id, want := range map[string]bool{"before": true, "lost": false, "after": true} {
		if _, _, err := at.router.Query(bg(t), group.Linearizable, promiseQuery(id)); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v (%v)", id, err == nil, want, err)
		}
	}
	follower.start(t)
	equalReplicas(t, all, 0)
}
