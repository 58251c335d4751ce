package raftlog

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// groupLog is the log of one group. Raft calls it from several goroutines: the main loop appends and
// truncates, the snapshot goroutine compacts, replication and apply read.
type groupLog struct {
	store *Store
	group uint32

	// wmu orders the writers of this group; it is held across the fsync, mu is not.
	wmu sync.Mutex

	mu          sync.Mutex
	loaded      bool
	first, last uint64 // 0, 0 when empty
	ahead       readAhead
	unsynced    unsynced

	// known and durable repeat loaded and last for the seal, which may not wait for mu.
	known   atomic.Bool
	durable atomic.Uint64
}

// set changes the bounds. The caller holds mu.
func (l *groupLog) set(first, last uint64) {
	l.first, l.last, l.loaded = first, last, true
	l.durable.Store(last)
	l.known.Store(true)
}

// floor is the last index, false if it is not known yet. It never blocks.
func (l *groupLog) floor() (uint64, bool) { return l.durable.Load(), l.known.Load() }

var _ Log = (*groupLog)(nil)

// IsMonotonic reports that the log has no holes, so Raft deletes the old entries after it installed a
// snapshot.
func (l *groupLog) IsMonotonic() bool { return true }

func (l *groupLog) corrupt(index uint64, detail string, err error) error {
	return &CorruptError{Store: l.store.dir, Group: l.group, HasGroup: true, Index: index, Detail: detail, Err: err}
}

// bounds returns first and last, read from the backend once.
func (l *groupLog) bounds() (first, last uint64, err error) {
	if err := l.store.err(); err != nil {
		return 0, 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.loaded {
		first, last, err := l.store.drv.bounds(l.group)
		if err != nil {
			return 0, 0, l.store.named(err)
		}
		l.set(first, last)
	}
	return l.first, l.last, nil
}

// show lets readers see what is durable now.
func (l *groupLog) show(first, last uint64) {
	l.mu.Lock()
	l.set(first, last)
	l.mu.Unlock()
}

// hide keeps readers from finding entries, before the backend loses them.
func (l *groupLog) hide(first, last uint64) {
	l.mu.Lock()
	l.set(first, last)
	l.ahead.reset()
	l.mu.Unlock()
}

// FirstIndex returns the first index, 0 for an empty log.
func (l *groupLog) FirstIndex() (uint64, error) {
	l.store.closeMu.RLock()
	defer l.store.closeMu.RUnlock()
	first, _, err := l.bounds()
	return first, err
}

// LastIndex returns the last index, 0 for an empty log.
func (l *groupLog) LastIndex() (uint64, error) {
	l.store.closeMu.RLock()
	defer l.store.closeMu.RUnlock()
	_, last, err := l.bounds()
	return last, err
}

// StoreLog is StoreLogs of one entry.
func (l *groupLog) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

// StoreLogs appends consecutive entries and returns when they are durable. See the package comment for
// what it refuses.
func (l *groupLog) StoreLogs(logs []*raft.Log) error {
	l.store.closeMu.RLock()
	defer l.store.closeMu.RUnlock()
	if len(logs) == 0 {
		return l.store.err()
	}
	l.wmu.Lock()
	defer l.wmu.Unlock()
	a, err := l.prepare(logs)
	if err != nil {
		return err
	}
	return l.append(a)
}

// append stores entries and returns when they are durable. The caller holds closeMu and wmu.
func (l *groupLog) append(a appending) error {
	if a.restart {
		if err := l.AwaitSync(^uint64(0)); err != nil {
			return err
		}
		l.store.log.Warn("log restarts after a gap", "event", "log_gap", "group", l.group, "next", a.first)
		// The backend may need two commits for it, so between them the log may be empty.
		l.hide(0, 0)
		if err := l.store.lower(l.group, 0); err != nil {
			return l.store.wrote(err)
		}
	}
	began := l.store.clock.Now()
	if err := l.store.wrote(l.store.insist(l.store.dir, func() error { return l.store.drv.append(l.group, a.restart, a.recs) })); err != nil {
		return err
	}
	l.synced(began)
	if err := l.AwaitSync(^uint64(0)); err != nil { // the sync was of everything before it, too
		return err
	}
	l.show(a.first, a.last)
	return nil
}

// appending is a checked append.
type appending struct {
	// first is the log's first index after the append, last the last one's.
	first, last uint64
	// restart deletes all older entries with the append.
	restart bool
	recs    []record
}

// prepare checks consecutive entries. The caller holds wmu.
func (l *groupLog) prepare(logs []*raft.Log) (a appending, err error) {
	first, last, err := l.bounds()
	if err != nil {
		return a, err
	}
	a.first = first
	switch index := logs[0].Index; {
	case index == 0 || index <= last:
		return a, &OrderError{Store: l.store.dir, Group: l.group, Last: last, Index: index}
	case last == 0:
		a.first = index
	case index > last+1:
		a.restart, a.first = true, index
	}
	a.recs = make([]record, len(logs))
	for i, log := range logs {
		if want := logs[0].Index + uint64(i); log.Index != want {
			return a, &OrderError{Store: l.store.dir, Group: l.group, Last: want - 1, Index: log.Index}
		}
		if n := len(log.Data) + len(log.Extensions); n > MaxEntryBytes {
			return a, &TooLargeError{Store: l.store.dir, Group: l.group, Index: log.Index, Bytes: n}
		}
		a.recs[i] = record{log, encodedLen(log)}
		a.last = log.Index
	}
	return a, nil
}

// synced reports an append that has become durable.
func (l *groupLog) synced(began time.Time) {
	if l.store.onSync != nil {
		l.store.onSync(l.store.clock.Now().Sub(began))
	}
}

// DeleteRange removes min..max, both included, durably. It must leave no hole: the range is a prefix, a
// suffix or the whole of the log; what lies outside the log is ignored.
func (l *groupLog) DeleteRange(min, max uint64) error {
	l.store.closeMu.RLock()
	defer l.store.closeMu.RUnlock()
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if err := l.AwaitSync(^uint64(0)); err != nil {
		return err
	}
	first, last, err := l.bounds()
	if err != nil {
		return err
	}
	if last == 0 || min > max || max < first || min > last {
		return nil
	}
	if min < first {
		min = first
	}
	if max > last {
		max = last
	}
	switch {
	case min == first && max == last:
		first, last = 0, 0
	case min == first:
		first = max + 1
	case max == last:
		last = min - 1
	default:
		return &OrderError{Store: l.store.dir, Group: l.group, Last: min - 1, Index: max + 1}
	}
	l.hide(first, last)
	if err := l.store.lower(l.group, last); err != nil {
		return l.store.wrote(err)
	}
	return l.store.wrote(l.store.insist(l.store.dir, func() error { return l.store.drv.deleteRange(l.group, min, max) }))
}

// GetLog reads one entry: raft.ErrLogNotFound outside first..last, *CorruptError if an entry inside it
// is missing or damaged. The entry's bytes may be shared with later reads: do not change them.
func (l *groupLog) GetLog(index uint64, out *raft.Log) error {
	l.store.closeMu.RLock()
	defer l.store.closeMu.RUnlock()
	first, last, err := l.bounds()
	if err != nil {
		return err
	}
	if index < first || index > last || index == 0 {
		return raft.ErrLogNotFound
	}
	l.mu.Lock()
	hit := l.ahead.take(index, out)
	sequential, gen := l.ahead.expected(index), l.ahead.gen
	l.mu.Unlock()
	if hit {
		return nil
	}
	if !sequential {
		return l.getOne(index, out)
	}
	to := index + readAheadEntries - 1
	if to > last {
		to = last
	}
	logs, err := l.read(index, to, readAheadBytes)
	if err != nil {
		return err
	}
	if len(logs) == 0 {
		return l.absent(index)
	}
	*out = logs[0]
	l.mu.Lock()
	if l.ahead.gen == gen {
		l.ahead.put(index, logs)
	}
	l.mu.Unlock()
	return nil
}

func (l *groupLog) getOne(index uint64, out *raft.Log) error {
	b, err := l.store.drv.get(l.group, index)
	if err != nil {
		return l.store.named(err)
	}
	if b == nil {
		return l.absent(index)
	}
	if err := decodeEntry(b, entryKey(l.group, index), index, out); err != nil {
		return l.corrupt(index, "entry", err)
	}
	l.mu.Lock()
	l.ahead.note(index)
	l.mu.Unlock()
	return nil
}

// absent distinguishes an entry that was deleted during its read from a lost one.
func (l *groupLog) absent(index uint64) error {
	first, last, err := l.bounds()
	if err != nil {
		return err
	}
	if index < first || index > last {
		return raft.ErrLogNotFound
	}
	return l.corrupt(index, "entry is missing within the log", nil)
}

// read decodes the entries found from..to without a hole: one at least, and no further one beyond max bytes.
func (l *groupLog) read(from, to uint64, max int) ([]raft.Log, error) {
	var (
		logs []raft.Log
		bad  error
		size int
		key  = entryKey(l.group, from)
	)
	err := l.store.drv.scan(l.group, from, to, func(index uint64, b []byte) bool {
		if index != from+uint64(len(logs)) {
			return false
		}
		if size += len(b); len(logs) > 0 && size > max {
			return false
		}
		putEntryKey(key, l.group, index)
		var log raft.Log
		if bad = decodeEntry(b, key, index, &log); bad != nil {
			// The entry asked for is the first one; a later one is reported on its own read.
			if len(logs) > 0 {
				bad = nil
			} else {
				bad = l.corrupt(index, "entry", bad)
			}
			return false
		}
		logs = append(logs, log)
		return size < max
	})
	if bad != nil {
		return nil, bad
	}
	if err != nil {
		return nil, l.store.named(err)
	}
	return logs, nil
}
