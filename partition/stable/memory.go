package stable

import (
	"errors"
	"sync"

	"github.com/hashicorp/raft"
)

// Memory is a Store without a file, for simulations. A value that was Set survives only by Clone, with which
// a simulated node restarts.
type Memory struct {
	mu     sync.Mutex
	state  *state
	closed bool
}

var (
	_ Store = (*Memory)(nil)
	_ Store = (*File)(nil)
)

// NewMemory returns an empty store.
func NewMemory() *Memory { return &Memory{state: newState()} }

// Clone returns an independent store with the same values, open even if m was closed.
func (m *Memory) Clone() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &Memory{state: m.state.clone()}
}

func (m *Memory) update(change func(*state)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	change(m.state)
	return nil
}

func (m *Memory) read(g uint32, key []byte) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	return m.state.get(g, key)
}

func (m *Memory) Group(g uint32) raft.StableStore {
	return &groupStore{g: g, update: m.update, read: m.read}
}

func (m *Memory) Groups() []uint32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.groups()
}

func (m *Memory) DropGroup(g uint32) error { return m.update(func(st *state) { st.drop(g) }) }

func (m *Memory) Stamp() ([]byte, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]byte(nil), m.state.stamp...), len(m.state.stamp) > 0
}

func (m *Memory) SetStamp(b []byte) error {
	if len(b) == 0 {
		return errors.New("stable: empty stamp")
	}
	return m.update(func(st *state) { st.stamp = append([]byte(nil), b...) })
}

func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return nil
}
