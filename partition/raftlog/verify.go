package raftlog

import (
	"context"

	"github.com/hashicorp/raft"
)

// Log is the log of one group, as Raft wants it, and a check Raft does not make.
type Log interface {
	raft.LogStore
	raft.MonotonicLogStore

	// StoreUnsynced is StoreLogs that returns when readers find the entries, before these are durable. Other writes
	// wait until they are.
	StoreUnsynced(logs []*raft.Log) error
	// AwaitSync blocks until all entries up to an index are durable.
	AwaitSync(index uint64) error
	// Synced returns the index, or a lower one up to which all entries are durable. It does not block.
	Synced(index uint64) uint64

	// Check reads the entries from index from (or the first, if later) to the last, and returns a
	// *CorruptError for the first that is missing or damaged. Raft itself panics on a damaged entry above
	// its snapshot, so a caller checks from snapshot index + 1 before it starts a group.
	Check(ctx context.Context, from uint64) error
}

// Report says what Verify read.
type Report struct {
	Groups []GroupReport // ascending
}

// GroupReport is one group's part. First and Last are 0 for an empty log.
type GroupReport struct {
	Group       uint32
	First, Last uint64
	Entries     uint64
	Bytes       uint64 // as stored, without keys
}

// checkBatch is how many entries are read between two checks of the context.
const checkBatch = 4096

// Verify reads every entry of every group and the backend's own structures. The error is the first damage
// (*CorruptError) or the context's; the report covers the groups that were read. It may run concurrently with
// Raft.
func (s *Store) Verify(ctx context.Context) (Report, error) {
	s.closeMu.RLock()
	defer s.closeMu.RUnlock()
	spans, err := s.spans()
	if err != nil {
		return Report{}, s.named(err)
	}
	var r Report
	for _, g := range sortedGroups(spans) {
		if err := s.drv.verify(g); err != nil {
			return r, s.named(err)
		}
		gr, err := s.group(g).check(ctx, 0)
		if err != nil {
			return r, err
		}
		r.Groups = append(r.Groups, gr)
	}
	return r, nil
}

func (l *groupLog) Check(ctx context.Context, from uint64) error {
	l.store.closeMu.RLock()
	defer l.store.closeMu.RUnlock()
	_, err := l.check(ctx, from)
	return err
}

// check reads from..last. Entries that are deleted meanwhile are not missed.
func (l *groupLog) check(ctx context.Context, from uint64) (GroupReport, error) {
	first, last, err := l.bounds()
	if err != nil {
		return GroupReport{}, err
	}
	r := GroupReport{Group: l.group, First: first, Last: last}
	at := max(from, first)
	for last != 0 && at <= last {
		if err := ctx.Err(); err != nil {
			return r, err
		}
		if err := l.store.err(); err != nil {
			return r, err
		}
		to := min(last, at+checkBatch-1)
		next, bytes, err := l.checkRun(at, to)
		r.Entries += next - at
		r.Bytes += bytes
		if err != nil {
			return r, err
		}
		if next > to {
			at = next
			continue
		}
		// next is not there: deleted meanwhile, or lost.
		if first, last, err = l.bounds(); err != nil {
			return r, err
		}
		if next >= first && next <= last {
			return r, l.corrupt(next, "entry is missing within the log", nil)
		}
		at = max(next, first)
	}
	return r, nil
}

// checkRun decodes at..to and returns the first index it did not find, and the bytes it read.
func (l *groupLog) checkRun(at, to uint64) (next, bytes uint64, err error) {
	next = at
	var bad error
	key := entryKey(l.group, at)
	err = l.store.drv.scan(l.group, at, to, func(index uint64, b []byte) bool {
		if index != next {
			return false
		}
		putEntryKey(key, l.group, index)
		var log raft.Log
		if err := decodeEntry(b, key, index, &log); err != nil {
			bad = l.corrupt(index, "entry", err)
			return false
		}
		next++
		bytes += uint64(len(b))
		return true
	})
	if bad != nil {
		return next, bytes, bad
	}
	return next, bytes, l.store.named(err)
}

// checkOne reads one entry that must be there.
func (l *groupLog) checkOne(index uint64) error {
	next, _, err := l.checkRun(index, index)
	if err == nil && next == index {
		err = l.corrupt(index, "entry is missing at the end of the log", nil)
	}
	return err
}
