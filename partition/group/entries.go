package group

import (
	"github.com/hashicorp/raft"

	"perdure/fsm"
	"perdure/partition/raftlog"
)

// Bounds of what one partition keeps in memory of its log.
const (
	// logCacheBytes bounds the log caches of all partitions of a node together.
	logCacheBytes    = 32 << 20
	minLogCacheBytes = 1 << 20
	// referBytes is the size above which Raft gets an entry without its data. So one message, or one batch on
	// its way to the state machine, holds at most MaxAppendEntries entries of this size.
	referBytes = 16 << 10
	// maxApplyBytes bounds the entries that the state applies in one batch. One always fits, however large.
	maxApplyBytes = 4 << 20
)

// entryMachine is Raft's state machine for a state. Raft hands it references to large entries, and it reads
// them, some at a time.
type entryMachine struct {
	*fsm.Store
	load func(*raft.Log) (*raft.Log, error)
	// awaitSync blocks until this server's log is on disk up to an index.
	awaitSync func(index uint64) error
	// halt stops the replica: a committed entry cannot be read.
	halt   func(error)
	failed error
}

var _ raft.BatchingFSM = (*entryMachine)(nil)

// Apply implements raft.FSM; see ApplyBatch.
func (m *entryMachine) Apply(l *raft.Log) any { return m.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch implements raft.BatchingFSM, as fsm.Store.ApplyBatch does. The response to an entry that came as
// a reference is nil, so that memory does not hold a whole batch's replies until its end. No caller waits for
// such an entry: Raft takes a caller's entry from its future.
//
// A leader applies, and so acknowledges, no entry before its own log is synced up to it: see partition/DESIGN.md, "The
// leader's sync".
func (m *entryMachine) ApplyBatch(logs []*raft.Log) []any {
	out := make([]any, 0, len(logs))
	if m.failed == nil {
		if err := m.awaitSync(logs[len(logs)-1].Index); err != nil {
			m.failed = err
			m.halt(err)
		}
	}
	for len(logs) > 0 {
		part, refs, bytes := make([]*raft.Log, 0, len(logs)), make([]bool, 0, len(logs)), 0
		for _, l := range logs {
			if bytes += raftlog.SizeOf(l); len(part) > 0 && bytes > maxApplyBytes {
				break
			}
			_, ref := raftlog.Reference(l)
			if m.failed == nil {
				whole, err := m.load(l)
				if err != nil {
					m.failed = err
					m.halt(err)
				}
				l = whole
			}
			part, refs = append(part, l), append(refs, ref)
		}
		logs = logs[len(part):]
		if m.failed != nil {
			for range part {
				out = append(out, m.failed)
			}
			continue
		}
		for i, response := range m.Store.ApplyBatch(part) {
			if refs[i] {
				if _, failed := response.(error); !failed {
					response = nil
				}
			}
			out = append(out, response)
		}
	}
	return out
}

// syncedTerms stores Raft's term and vote when the log is synced. So a server that votes, campaigns or answers a later
// leader has on disk everything that it counted for itself as the leader of an earlier term.
type syncedTerms struct {
	raft.StableStore
	awaitSync func(index uint64) error
}

// Set implements raft.StableStore.
func (s syncedTerms) Set(key, value []byte) error {
	s.await()
	return s.StableStore.Set(key, value)
}

// SetUint64 implements raft.StableStore.
func (s syncedTerms) SetUint64(key []byte, value uint64) error {
	s.await()
	return s.StableStore.SetUint64(key, value)
}

// await ignores a failure: the log then answers no read and takes no entry, so this server acknowledges nothing.
func (s syncedTerms) await() { _ = s.awaitSync(^uint64(0)) }
