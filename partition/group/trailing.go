package group

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"perdure/partition/raftgroup"
	"perdure/partition/raftlog"
)

// Bounds of a partition's log on disk, on every replica:
//
//	bytes of the log <= SnapshotBytes + trailing bytes + bytes written while a marker is made
//	trailing bytes   <= TrailingBytes, or lagTrailing * TrailingBytes while a follower is sent the whole state
//
// The trailing bytes lie before the newest marker. Such a follower needs the log from the marker on
// afterwards.
const (
	lagTrailing = 4
	// minTrailing entries stay whatever their size.
	minTrailing = 4
	// boundLog recomputes the bound in entries after TrailingBytes/retuneShare bytes, or so many entries.
	retuneShare   = 8
	retuneEntries = 1024
	// lagGrace is how long after the end of a transfer the follower's entries stay in the log.
	lagGrace = 30 * time.Second
)

// trailing bounds the log in bytes. Raft counts entries.
type trailing struct {
	*core
	// entries caches the log for Raft. group is raft, for code that runs before NewRaft has returned.
	entries *raftlog.Cache
	group   atomic.Pointer[raft.Raft]
	most    uint64 // entries that may trail, as configured

	// logged counts the bytes since the last marker; bytes and count those since the bound was computed.
	logged, bytes, count atomic.Int64
	// overdue is the end of the log that this process found, if Raft's threshold asks for a marker there; 0 once there is
	// one. Raft looks at its threshold only after an interval, which a process that often dies never reaches: each of its
	// starts would apply a longer log.
	overdue atomic.Uint64
	busy    atomic.Bool
	// sending counts the transfers of the state under way; sent is when the last ended, in Unix nanoseconds.
	sending, sent atomic.Int64
}

// stored is raftlog.CacheOptions.OnStored: entries were added to this replica's log. It does not block.
func (r *trailing) stored(entries int, bytes int64) {
	logged, since, count := r.logged.Add(bytes), r.bytes.Add(bytes), r.count.Add(int64(entries))
	g := r.group.Load()
	if logged < r.opts.SnapshotBytes && since < r.opts.TrailingBytes/retuneShare && count < retuneEntries && !r.isOverdue(g) {
		return
	}
	if g == nil || !r.busy.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer r.busy.Store(false)
		r.boundLog()
	}()
}

// isOverdue reports whether a marker is overdue and the log that this process found is applied.
func (r *trailing) isOverdue(g *raft.Raft) bool {
	end := r.overdue.Load()
	return end != 0 && g != nil && g.AppliedIndex() >= end
}

// boundLog sets how many trailing entries Raft keeps, and makes a snapshot marker when the log has grown by
// SnapshotBytes or a marker is overdue. It blocks while the state is flushed.
func (r *trailing) boundLog() {
	g := r.group.Load()
	r.bytes.Store(0)
	r.count.Store(0)
	if err := r.retune(g); err != nil {
		r.log.Warn("cannot bound the trailing log", "event", "trailing_failed", "partition", r.id, "error", err)
	}
	if r.logged.Load() < r.opts.SnapshotBytes && !r.isOverdue(g) {
		return
	}
	r.logged.Store(0)
	r.overdue.Store(0)
	err := raftgroup.Await(g.Snapshot(), r.killed, nil)
	if err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) && !r.isStopping() {
		r.log.Warn("cannot write snapshot marker", "event", "snapshot_failed", "partition", r.id, "error", err)
	}
}

// retune sets Raft's TrailingLogs to the number of entries that fit.
func (r *trailing) retune(g *raft.Raft) error {
	bytes := r.opts.TrailingBytes
	if r.lagging(r.clock.Now()) {
		bytes *= lagTrailing
	}
	// Entries stored before the process began are not measured again: they were within the bound when the log
	// was last cut.
	n, err := r.entries.Trailing(bytes, r.most, r.opts.TrailingBytes/int64(max(r.most, 1)))
	if err != nil {
		return err
	}
	n = min(max(n, minTrailing), r.most)
	rc := g.ReloadableConfig()
	if rc.TrailingLogs == n {
		return nil
	}
	rc.TrailingLogs = n
	return g.ReloadConfig(rc)
}

// lagging reports whether a follower is sent the whole state, or was a moment ago.
func (r *trailing) lagging(now time.Time) bool {
	return r.sending.Load() > 0 || now.Sub(time.Unix(0, r.sent.Load())) < lagGrace
}

// transfer notes that a follower is sent the whole state, until the function that it returns is called.
func (r *trailing) transfer(now func() time.Time) (end func()) {
	r.sending.Add(1)
	return func() {
		r.sent.Store(now().UnixNano())
		r.sending.Add(-1)
	}
}
