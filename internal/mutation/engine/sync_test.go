package engine

import (
	"time"

	"perdure/internal/mutation"
)

// syncBugs break what the leader's sync beside replication relies on.
var syncBugs = []mutation.Bug{
	{
		File: "partition/group/entries.go", Rule: "log: a leader acknowledges nothing that its own log has not synced",
		From: `m.awaitSync(logs[len(logs)-1].Index)`, To: `m.awaitSync(0)`, Tests: "TestLeaderLosesPowerBeforeItsSync",
		Pkg: "partition", Hangs: 20 * time.Second,
	},
	{
		File: "partition/transport/pipeline.go", Rule: "log: a leader counts a follower's copy when the follower has answered",
		From: "		if last {\n			return &partFuture{f, &known, false}, nil\n", To: `		if last {
			answer.Term, answer.Success = args.Term, true
			go func() {
				select {
				case p.out <- &partFuture{f, &known, false}:
				case <-p.done:
				}
			}()
			return &partFuture{f, &known, false}, nil
`, Tests: "TestAcknowledgedIsSynced", Pkg: "partition",
	},
	{
		File: "partition/raftlog/cache.go", Rule: "log: a follower answers when its copy is synced",
		From: "	store := c.log.StoreLogs\n", To: "	store := c.log.StoreLogs\n	if commands && c.opts.Overlap != nil {\n		store = c.log.StoreUnsynced\n	}\n",
		Tests: "TestAcknowledgedIsSynced", Pkg: "partition",
	},
	{
		File: "partition/raftlog/pebble.go", Rule: "log: each write is synced",
		From: `b.Commit(pebble.Sync)`, To: `b.Commit(pebble.NoSync)`, Tests: "TestAcknowledgedIsSynced", Pkg: "partition",
	},
	{
		File: "partition/raftlog/unsynced.go", Rule: "log: a leader's copy whose sync failed counts for nothing",
		From: "		if err := l.store.wrote(a.wait()); err != nil {\n", To: "		if err := a.wait(); err != nil && l.store == nil {\n", Tests: "TestFailedSyncIsNotCounted",
		Pkg: "partition",
	},
	{
		File: "partition/transport/fill.go", Rule: "log: a leader's commit index covers only what its own log has synced",
		From: `t.synced != nil {`, To: `t.synced != nil && last == 0 {`, Tests: "TestLeaderLosesPowerBeforeItsSync",
		Pkg: "partition",
	},
	{
		File: "partition/group/entries.go", Rule: "log: a former leader votes when its log is synced",
		From: "	s.await()\n	return s.StableStore.SetUint64(key, value)", To: "	return s.StableStore.SetUint64(key, value)", Tests: "TestSyncedTerms",
	},
	{
		File: "partition/raftlog/cache.go", Rule: "log: only commands overlap with their sync",
		From: `commands = commands && l.Type == raft.LogCommand`, To: `commands = commands && l.Type != raft.LogBarrier`, Tests: "TestOverlapOnlyCommands",
	},
	{
		File: "partition/raftlog/cache.go", Rule: "log: a follower's entries are synced when they are stored",
		From: `c.opts.Overlap != nil && c.opts.Overlap() {`, To: `c.opts.Overlap != nil {`, Tests: "TestOverlapOnlyCommands",
	},
	{
		File: "partition/raftlog/unsynced.go", Rule: "log: a failed sync is not forgotten",
		From: "		if err := l.store.wrote(a.wait()); err != nil {\n			return err\n", To: "		if err := l.store.wrote(a.wait()); err != nil {\n			l.unsynced.pop()\n			return err\n", Tests: "TestUnsyncedFails",
	},
	{
		File: "partition/raftlog/unsynced.go", Rule: "log: the oldest entry that is not synced bounds what is",
		From: `return min(index, first-1)`, To: `return min(index, first)`, Tests: "TestStoreUnsynced",
	},
	{
		File: "partition/raftlog/pebble.go", Rule: "log: what is written beside replication is synced",
		From: `d.db.ApplyNoSyncWait(b, pebble.Sync)`, To: `d.db.Apply(b, pebble.NoSync)`, Tests: "TestStoreUnsynced",
	},
}
