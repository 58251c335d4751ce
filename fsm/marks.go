package fsm

import (
	"slices"
	"sync"
)

// Replicas compare their rolling checksums at marks, which all of them note at the same indices without
// having agreed on them: the first command entry at or behind each multiple of markEvery. Command entries
// are the same on every replica and the index before an entry is part of the state, so the rule gives the
// same indices in whatever batches the entries come, across a restart, and after a snapshot's content was
// installed. markEvery is for life: replicas of different versions must mark alike.
const (
	markEvery = 256
	marksKept = 64
)

// Mark is a state's rolling checksum at an index of the log. Two replicas whose checksums differ at the
// same index have not carried out the same mutations: one of them must not serve.
type Mark struct{ Index, Checksum uint64 }

// marks are what a store has noted of its present state's history, and where that is now.
type marks struct {
	mu      sync.Mutex
	noted   []Mark
	present Mark
}

// crosses reports whether the entry at index is one to mark, in a state that was at before.
func crosses(before, index uint64) bool { return index/markEvery > before/markEvery }

// begin starts anew with a state that was opened or installed. What was noted of another one says nothing
// of it.
func (m *marks) begin(present Mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.noted, m.present = nil, present
}

func (m *marks) add(noted []Mark, present Mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.noted, m.present = append(m.noted, noted...), present
	if over := len(m.noted) - marksKept; over > 0 {
		m.noted = slices.Delete(m.noted, 0, over)
	}
}

// Marks are the last marks noted since the state was opened or installed, oldest first, 64 at most; an idle
// partition reaches no new one. They are memory: after a restart there are none until the next one is
// reached. It does not block on the disk.
func (s *Store) Marks() []Mark {
	s.marks.mu.Lock()
	defer s.marks.mu.Unlock()
	return slices.Clone(s.marks.noted)
}

// Present is the index of the last entry applied and the checksum there: comparable with another replica's
// whenever both are at the same index, marked or not. It does not block on the disk. After the store has
// failed or was closed it is where the state was then.
func (s *Store) Present() Mark {
	s.marks.mu.Lock()
	defer s.marks.mu.Unlock()
	return s.marks.present
}
