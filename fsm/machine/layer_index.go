package machine

import (
	"bytes"
	"slices"
)

// writeTable finds writes by their keys: open addressing with linear probing. The order of its slots never reaches state
// or output.
type writeTable struct {
	slots []slot // a power of two, three quarters full at most
	used  int
	// log are the writes in the order in which they were put. One that is void stays when a later one of its key takes its slot.
	log []*write
}

// slot is empty or refers to a write. A slot is looked at without the write, which the processor's cache may not have, unless the tags
// are equal.
type slot struct {
	tag uint32 // of the hash
	at  uint32 // place in log, from 1; 0 if it is empty
}

func tagOf(hash uint64) uint32 { return uint32(hash >> 32) }

// leastSlots is the size of a small table. A table that was mostly empty shrinks at its reset.
const leastSlots = 128

func (t *writeTable) reset() {
	switch {
	case t.used == 0:
	case len(t.slots) > leastSlots && t.used < len(t.slots)/16:
		t.slots = make([]slot, len(t.slots)/4)
	default:
		clear(t.slots)
	}
	t.used, t.log = 0, t.log[:0]
}

// slot is the place of a key: that of its write, or an empty one.
func (t *writeTable) slot(hash uint64, key []byte) *slot {
	mask, tag := uint64(len(t.slots)-1), tagOf(hash)
	for i := hash & mask; ; i = (i + 1) & mask {
		s := &t.slots[i]
		if s.at == 0 || s.tag == tag && bytes.Equal(t.log[s.at-1].key, key) {
			return s
		}
	}
}

// find is the write of a key; nil if there is none or it is void.
func (t *writeTable) find(hash uint64, key []byte) *write {
	if t.used == 0 {
		return nil
	}
	if s := t.slot(hash, key); s.at != 0 && !t.log[s.at-1].void {
		return t.log[s.at-1]
	}
	return nil
}

// put adds a write of a key that find does not find.
func (t *writeTable) put(w *write) {
	if 4*(t.used+1) > 3*len(t.slots) {
		t.grow()
	}
	s := t.slot(w.hash, w.key)
	if s.at == 0 {
		t.used++
	}
	t.log = append(t.log, w)
	*s = slot{tagOf(w.hash), uint32(len(t.log))}
}

func (t *writeTable) grow() {
	former := t.slots
	t.slots = make([]slot, max(2*len(former), leastSlots))
	mask := uint64(len(t.slots) - 1)
	for _, o := range former {
		if o.at == 0 {
			continue
		}
		i := t.log[o.at-1].hash & mask
		for t.slots[i].at != 0 { // all keys differ
			i = (i + 1) & mask
		}
		t.slots[i] = o
	}
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
