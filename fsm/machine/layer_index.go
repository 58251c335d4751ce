package machine

import (
	"bytes"
	"slices"
)

// writeTable finds writes by their keys: open addressing with linear probing. The order of its slots never reaches state
// or output.
type writeTable struct {
	slots []*write // a power of two, at most half full; void writes are replaced by later ones of their key
	used  int
}

// leastSlots is the size of a small table. A table that was mostly empty shrinks at its reset.
const leastSlots = 128

func (t *writeTable) reset() {
	switch {
	case t.used == 0:
	case len(t.slots) > leastSlots && t.used < len(t.slots)/16:
		t.slots = make([]*write, len(t.slots)/4)
	default:
		clear(t.slots)
	}
	t.used = 0
}

// slot is the place of a key: that of its write, or an empty one.
func (t *writeTable) slot(hash uint64, key []byte) *(*write) {
	mask := uint64(len(t.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		s := &t.slots[i]
		if *s == nil || (*s).hash == hash && bytes.Equal((*s).key, key) {
			return s
		}
	}
}

// find is the write of a key; nil if there is none or it is void.
func (t *writeTable) find(hash uint64, key []byte) *write {
	if t.used == 0 {
		return nil
	}
	if w := *t.slot(hash, key); w != nil && !w.void {
		return w
	}
	return nil
}

// put adds a write of a key that find does not find.
func (t *writeTable) put(w *write) {
	if 2*(t.used+1) > len(t.slots) {
		former := t.slots
		t.slots = make([]*write, max(2*len(former), leastSlots))
		for _, o := range former {
			if o != nil {
				*t.slot(o.hash, o.key) = o
			}
		}
	}
	s := t.slot(w.hash, w.key)
	if *s == nil {
		t.used++
	}
	*s = w
}

// familyWrites are the writes of one family.
type familyWrites struct {
	// writes are in the order of their keys up to sorted, then as they came.
	writes []*write
	sorted int
}

func (f *familyWrites) reset() {
	clear(f.writes)
	f.writes, f.sorted = f.writes[:0], 0
}

func compareKey(w *write, key []byte) int { return bytes.Compare(w.key, key) }

// ordered sorts the writes by key. A few new ones are inserted, so that scans between writes cost little each.
func (f *familyWrites) ordered() []*write {
	const few = 8 // part of all
	if fresh := len(f.writes) - f.sorted; fresh*few > len(f.writes) {
		slices.SortFunc(f.writes, func(a, b *write) int { return bytes.Compare(a.key, b.key) })
		f.sorted = len(f.writes)
	}
	for ; f.sorted < len(f.writes); f.sorted++ {
		w := f.writes[f.sorted]
		at, _ := slices.BinarySearchFunc(f.writes[:f.sorted], w.key, compareKey)
		copy(f.writes[at+1:f.sorted+1], f.writes[at:f.sorted])
		f.writes[at] = w
	}
	return f.writes
}
