package raftlog

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// unsynced are the appends of a group that were written and are not known to be on disk.
type unsynced struct {
	// first is the first index of the queue, 0 when it is empty.
	first atomic.Uint64

	mu    sync.Mutex
	queue []unsyncedAppend // in the order of the log

	waiting sync.Mutex // held by the one that waits for the head of the queue
}

// unsyncedAppend is one append.
type unsyncedAppend struct {
	first, last uint64
	began       time.Time
	wait        func() error // blocks until the append is on disk; called once
}

func (u *unsynced) push(a unsyncedAppend) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.queue = append(u.queue, a); len(u.queue) == 1 {
		u.first.Store(a.first)
	}
}

// head returns the oldest append; false if there is none up to an index.
func (u *unsynced) head(index uint64) (unsyncedAppend, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.queue) == 0 || u.queue[0].first > index {
		return unsyncedAppend{}, false
	}
	return u.queue[0], true
}

func (u *unsynced) pop() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.queue[0] = unsyncedAppend{}
	if u.queue = u.queue[1:]; len(u.queue) == 0 {
		u.queue = nil
		u.first.Store(0)
		return
	}
	u.first.Store(u.queue[0].first)
}

// StoreUnsynced is StoreLogs that returns when the entries are written and readers find them, before they are durable.
// A crash may lose a suffix of them. See AwaitSync and Synced.
func (l *groupLog) StoreUnsynced(logs []*raft.Log) error {
	if len(logs) == 0 {
		return l.StoreLogs(logs)
	}
	l.store.closeMu.RLock()
	defer l.store.closeMu.RUnlock()
	l.wmu.Lock()
	defer l.wmu.Unlock()
	a, err := l.prepare(logs)
	if err != nil {
		return err
	}
	if a.restart {
		return l.append(a)
	}
	began := l.store.clock.Now()
	var wait func() error
	if err := l.store.wrote(l.store.insist(l.store.dir, func() (err error) {
		wait, err = l.store.drv.write(l.group, a.recs)
		return err
	})); err != nil {
		return err
	}
	if wait == nil {
		l.synced(began)
		l.show(a.first, a.last)
		return nil
	}
	l.unsynced.push(unsyncedAppend{logs[0].Index, a.last, began, wait})
	l.mu.Lock()
	l.first, l.last = a.first, a.last // durable follows when they are
	l.mu.Unlock()
	return nil
}

// AwaitSync blocks until all entries up to an index are durable. The error is that of the write.
func (l *groupLog) AwaitSync(index uint64) error {
	if first := l.unsynced.first.Load(); first == 0 || first > index {
		return nil
	}
	l.unsynced.waiting.Lock()
	defer l.unsynced.waiting.Unlock()
	for {
		a, ok := l.unsynced.head(index)
		if !ok {
			return nil
		}
		// A failed append stays at the head, so no later call takes it for durable.
		if err := l.store.err(); err != nil {
			return err
		}
		if err := l.store.wrote(a.wait()); err != nil {
			return err
		}
		l.synced(a.began)
		l.durable.Store(a.last)
		l.unsynced.pop()
	}
}

// Synced returns the part of the log up to an index that is known to be durable: the index itself, or a lower one. It
// does not block.
func (l *groupLog) Synced(index uint64) uint64 {
	if first := l.unsynced.first.Load(); first != 0 {
		return min(index, first-1)
	}
	return index
}
