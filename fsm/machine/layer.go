package machine

import (
	"bytes"

	"github.com/google/btree"

	"perdure/fsm/state"
)

type write struct {
	key     []byte
	value   []byte
	removed bool
	// object is what value decodes to, a *recovery.Promise or *recovery.Task, which nothing changes; nil for other values.
	object any
	// fresh: the Reader below lacks this key, so a later removal leaves no tombstone. Otherwise a task that
	// becomes pending and is acquired in one entry would leave one where queues are scanned.
	fresh bool
	// added: the layer's first write of this key put it.
	added bool
	// void: put fresh and removed since; it is no longer in the tree.
	void bool
}

func lessWrite(a, b *write) bool { return bytes.Compare(a.key, b.key) < 0 }

// layer holds writes above a Reader, in key order for scans and in first-write order for the log of
// mutations. It owns the keys and values that are put.
type layer struct {
	below state.Reader
	tree  *btree.BTreeG[*write]
	log   []*write
	// bytes are those of the values that were put.
	bytes int
	// puts are the families of which the layer has put a key since reset.
	puts [256]bool
	// probe is the lookup key of point reads.
	probe write
	// spare are unused writes.
	spare []write
}

func newLayer(below state.Reader) *layer {
	return &layer{below: below, tree: btree.NewG(16, lessWrite)}
}

func (l *layer) reset() {
	l.tree.Clear(true)
	l.bytes = 0
	l.log, l.puts = l.log[:0], [256]bool{}
}

func (l *layer) Get(key []byte) ([]byte, bool, error) {
	if w := l.find(key); w != nil {
		if w.removed {
			return nil, false, nil
		}
		return w.value, true, nil
	}
	return l.below.Get(key)
}

// find is the layer's own write of a key; nil if there is none.
func (l *layer) find(key []byte) *write {
	if len(l.log) == 0 {
		return nil
	}
	l.probe.key = key
	w, _ := l.tree.Get(&l.probe)
	return w
}

// next is an unused write, of those that were allocated together.
func (l *layer) next() *write {
	if len(l.spare) == 0 {
		l.spare = make([]write, 64)
	}
	w := &l.spare[0]
	l.spare = l.spare[1:]
	return w
}

func (l *layer) put(key, value []byte) {
	w := l.next()
	w.key, w.value = key, value
	l.set(w)
}

// putObject is put of a value together with what it decodes to.
func (l *layer) putObject(key, value []byte, object any) {
	w := l.next()
	w.key, w.value, w.object = key, value, object
	l.set(w)
}

func (l *layer) remove(key []byte) {
	w := l.next()
	w.key, w.removed = key, true
	l.set(w)
}

// putFresh is put of a key that the Reader below lacks.
func (l *layer) putFresh(key, value []byte) {
	w := l.next()
	w.key, w.value, w.fresh = key, value, true
	l.set(w)
}

// set takes ownership of x; the caller must not use it afterwards.
func (l *layer) set(x *write) {
	l.bytes += len(x.value)
	if !x.removed {
		l.puts[x.key[0]] = true
	}
	w, ok := l.tree.Get(x)
	switch {
	case !ok:
		x.added = !x.removed
		l.tree.ReplaceOrInsert(x)
		l.log = append(l.log, x)
	case x.removed && w.fresh:
		w.void, w.value, w.object = true, nil, nil
		l.tree.Delete(w)
	default:
		w.value, w.object, w.removed = x.value, x.object, x.removed
	}
}

// Scan merges the layer's writes with the Reader below.
func (l *layer) Scan(lower, upper []byte, fn func(key, value []byte) bool) error {
	if len(l.log) == 0 {
		return l.below.Scan(lower, upper, fn)
	}
	var mine []*write
	collect := func(w *write) bool {
		mine = append(mine, w)
		return true
	}
	if upper == nil {
		l.tree.AscendGreaterOrEqual(&write{key: lower}, collect)
	} else {
		l.tree.AscendRange(&write{key: lower}, &write{key: upper}, collect)
	}
	if len(mine) == 0 {
		return l.below.Scan(lower, upper, fn)
	}
	i, stopped := 0, false
	emit := func(w *write) bool { return w.removed || fn(w.key, w.value) }
	err := l.below.Scan(lower, upper, func(key, value []byte) bool {
		for i < len(mine) && bytes.Compare(mine[i].key, key) < 0 {
			if !emit(mine[i]) {
				stopped = true
				return false
			}
			i++
		}
		if i < len(mine) && bytes.Equal(mine[i].key, key) {
			i++
			if !emit(mine[i-1]) {
				stopped = true
				return false
			}
			return true
		}
		if !fn(key, value) {
			stopped = true
			return false
		}
		return true
	})
	if err != nil || stopped {
		return err
	}
	for ; i < len(mine); i++ {
		if !emit(mine[i]) {
			return nil
		}
	}
	return nil
}
