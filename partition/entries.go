package partition

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
	// referBytes is the size above which Raft gets an entry without its data: MaxAppendEntries entries below it are what
	// Raft may hold for one message, or for one batch on its way to the state machine.
	referBytes = 16 << 10
	// maxApplyBytes bounds the entries that the state applies in one batch. One always fits, however large.
	maxApplyBytes = 4 << 20
)

// entryMachine is the state as Raft's state machine. Raft hands it references to large entries; it reads them, some at
// a time.
type entryMachine struct {
	*fsm.Store
	load func(*raft.Log) (*raft.Log, error)
	// halt stops the replica: an entry that is committed cannot be read.
	halt   func(error)
	failed error
}

var _ raft.BatchingFSM = (*entryMachine)(nil)

// Apply implements raft.FSM; see ApplyBatch.
func (m *entryMachine) Apply(l *raft.Log) any { return m.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch implements raft.BatchingFSM, as fsm.Store.ApplyBatch does. No caller waits for an entry that came as a
// reference, since Raft takes the entry of a caller from its future; the response to such an entry is nil, so that the
// replies to a whole batch are not held in memory until its end.
func (m *entryMachine) ApplyBatch(logs []*raft.Log) []any {
	out := make([]any, 0, len(logs))
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
