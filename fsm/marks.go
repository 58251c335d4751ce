package fsm

import (
	"slices"
	"sync"
)

// Replicas compare their rolling checksums at marks. A mark is the first command entry at or behind each
// multiple of markEvery, so all replicas mark the same indices without agreeing on them: command entries are
// the same everywhere, and the index before an entry is part of the state. Batching, restarts and installed
// snapshots do not change the rule. markEvery never changes: replicas of different versions must mark alike.
const (
	markEvery = 256
	marksKept = 64
)

// Mark is a state's rolling checksum at an index of the log. Two replicas whose checksums differ at the same
// index have applied different mutations: one of them must not serve.
type Mark struct{ Index, Checksum uint64 }

// marks holds the recent marks of a store's present state, and its present index and checksum.
type marks struct {
	mu      sync.Mutex
	noted   []Mark
	present Mark
}

// crosses reports whether the entry at index is one to mark, in a state that was at before.
func crosses(before, index uint64) bool { return index/markEvery > before/markEvery }

// begin drops all marks and starts with a state that was opened or installed: marks of another state do not
// apply to it.
func (m *marks) begin(present Mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.noted, m.present = nil, present
}

// add notes the present, which is a mark or not.
func (m *marks) add(present Mark, mark bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.present = present; mark {
		m.noted = append(m.noted, present)
	}
	if over := len(m.noted) - marksKept; over > 0 {
		m.noted = slices.Delete(m.noted, 0, over)
	}
}

// Marks returns the last marks since the state was opened or installed, oldest first, 64 at most. Marks are
// held in memory only: after a restart there are none before the next mark. An idle partition reaches no new
// mark. Marks does not block on the disk.
func (s *Store) Marks() []Mark {
	s.marks.mu.Lock()
	defer s.marks.mu.Unlock()
	return slices.Clone(s.marks.noted)
}

// Present returns the index of the last applied entry and the checksum there. Two replicas' values compare
// whenever both are at the same index, marked or not. It does not block on the disk. After a failure or Close
// it returns the last values.
func (s *Store) Present() Mark {
	s.marks.mu.Lock()
	defer s.marks.mu.Unlock()
	return s.marks.present
}
