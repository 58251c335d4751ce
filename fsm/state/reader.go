package state

import (
	"bytes"

	"github.com/google/btree"
)

// Reader is the state a machine runs on. The machine layers its writes of the present entry above it; a
// Reader sees whole batches only. Errors are of the storage (damage, I/O): they stop the replica.
// Implementations need not be safe for concurrent use with the batch being written.
type Reader interface {
	// Get returns a copy that the caller may keep; ok is false when the key does not exist.
	Get(key []byte) (value []byte, ok bool, err error)
	// Scan calls fn for the keys in [lower, upper) in order until fn answers false. Key and value are
	// valid only during the call. A nil upper means no bound. fn may read; it does not panic for what it
	// reads, so there is nothing to clean up behind it.
	Scan(lower, upper []byte, fn func(key, value []byte) bool) error
}

// Range is the keys in [Lower, Upper).
type Range struct{ Lower, Upper []byte }

// RangeReader is a Reader that scans many ranges at a fraction of the cost of as many calls of Get and Scan.
type RangeReader interface {
	Reader
	// ScanRanges calls fn for the keys in the ranges, in order. The ranges must ascend and not overlap. i is the range's index. If fn
	// answers false, the scan goes on with the next range. Otherwise it is as Scan.
	ScanRanges(ranges []Range, fn func(i int, key, value []byte) bool) error
}

// Write is one mutation of the state; a nil Value removes the key.
type Write struct {
	Key, Value []byte
}

// MemReader is a Reader over a sorted tree in memory: what the simulator and tests run the machine on.
type MemReader struct {
	tree *btree.BTreeG[Write]
}

// NewMemReader answers an empty state.
func NewMemReader() *MemReader {
	return &MemReader{tree: btree.NewG(32, func(a, b Write) bool { return bytes.Compare(a.Key, b.Key) < 0 })}
}

// Get implements Reader.
func (m *MemReader) Get(key []byte) ([]byte, bool, error) {
	w, ok := m.tree.Get(Write{Key: key})
	return bytes.Clone(w.Value), ok, nil
}

// Scan implements Reader.
func (m *MemReader) Scan(lower, upper []byte, fn func(key, value []byte) bool) error {
	visit := func(w Write) bool { return fn(w.Key, w.Value) }
	if upper == nil {
		m.tree.AscendGreaterOrEqual(Write{Key: lower}, visit)
		return nil
	}
	m.tree.AscendRange(Write{Key: lower}, Write{Key: upper}, visit)
	return nil
}

// ScanRanges implements RangeReader.
func (m *MemReader) ScanRanges(ranges []Range, fn func(i int, key, value []byte) bool) error {
	for i, r := range ranges {
		if err := m.Scan(r.Lower, r.Upper, func(key, value []byte) bool { return fn(i, key, value) }); err != nil {
			return err
		}
	}
	return nil
}

// Apply applies mutations and keeps their bytes; the caller must not change these afterwards.
func (m *MemReader) Apply(writes []Write) {
	for _, w := range writes {
		if w.Value == nil {
			m.tree.Delete(w)
			continue
		}
		m.tree.ReplaceOrInsert(w)
	}
}

// Clone answers an independent copy.
func (m *MemReader) Clone() *MemReader { return &MemReader{tree: m.tree.Clone()} }
