package machine

import (
	"bytes"
	"slices"

	"github.com/cespare/xxhash/v2"

	"perdure/fsm/state"
)

type write struct {
	key []byte
	// hash is that of key.
	hash    uint64
	value   []byte
	removed bool
	// object is what value decodes to, a *recovery.Promise or *recovery.Task, which nothing changes; nil for other values. If it is a
	// *state.Header, value is nil until content makes it.
	object any
	// fresh: the Reader below lacks this key, so a later removal leaves no tombstone. Otherwise a task that
	// becomes pending and is acquired in one entry would leave one where queues are scanned.
	fresh bool
	// added: the layer's first write of this key put it.
	added bool
	// void: put fresh and removed since; it counts as absent.
	void bool
}

// content is the value. The first call for a header that was put unencoded encodes it.
func (w *write) content() []byte {
	if h := w.header(); h != nil {
		w.value, w.object = h.Append(make([]byte, 0, headerSize(h))), nil
	}
	return w.value
}

// header is a header that has no encoding yet; nil for all other writes.
func (w *write) header() *state.Header {
	if w.value != nil {
		return nil
	}
	h, _ := w.object.(*state.Header)
	return h
}

// size is about the bytes of the value.
func (w *write) size() int {
	if h := w.header(); h != nil {
		return headerSize(h)
	}
	return len(w.value)
}

// headerSize is about the most that the encoding of a header takes.
func headerSize(h *state.Header) int {
	const others = 512 // fields
	return len(h.Open) + len(h.Inline) + others
}

// layer holds writes above a Reader, by their keys' hashes for reads and in first-write order for the log of
// mutations. The order of keys, which few commands need, is made for a scan, and for what is stored. It owns the keys and
// values that are put.
type layer struct {
	below state.Reader
	// base: the layer is an entry's, which gets no write during a scan. A command writes to a layer above it, during scans, too.
	base     bool
	table    writeTable
	families [256]familyWrites
	// used are the families with writes.
	used []byte
	// bytes are those of the values.
	bytes int
	// puts are the families of which the layer has put a key since reset.
	puts  [256]bool
	spare *spareWrites
}

func newLayer(below state.Reader) *layer {
	return &layer{below: below, spare: &spareWrites{}}
}

// baseOf is a layer for the writes of entries; see layer.base.
func baseOf(below state.Reader) *layer {
	l := newLayer(below)
	l.base = true
	return l
}

// above is a new layer above l, whose writes move to l.
func (l *layer) above() *layer { return &layer{below: l, spare: l.spare} }

// spareWrites gives out memory for writes, and takes it back from those that nothing refers to any more.
type spareWrites struct {
	fresh []write
	used  []*write
	// headers are those of used writes that were never encoded.
	headers []*state.Header
}

// SpareWrites bounds the used writes that a machine keeps for the next entries. Whoever stores more keys together has their memory
// allocated anew each time.
const SpareWrites = 10_000

// next is an empty write.
func (s *spareWrites) next() *write {
	if n := len(s.used); n > 0 {
		w := s.used[n-1]
		s.used = s.used[:n-1]
		return w
	}
	if len(s.fresh) == 0 {
		s.fresh = make([]write, 64)
	}
	w := &s.fresh[0]
	s.fresh = s.fresh[1:]
	return w
}

// copyOf is a copy of a header, for a write.
func (s *spareWrites) copyOf(h *state.Header) *state.Header {
	c := &state.Header{}
	if n := len(s.headers); n > 0 {
		c, s.headers = s.headers[n-1], s.headers[:n-1]
	}
	*c = *h
	return c
}

// mostSpareHeaders bounds the headers that are kept for later copies.
const mostSpareHeaders = 64

// takeHeader takes the header of a write that another one replaces, if it has no encoding: nothing else refers to it.
func (s *spareWrites) takeHeader(w *write) {
	if h := w.header(); h != nil && len(s.headers) < mostSpareHeaders {
		*h = state.Header{}
		s.headers = append(s.headers, h)
	}
}

// take takes a write to which the caller does not refer afterwards.
func (s *spareWrites) take(w *write) {
	if *w = (write{}); len(s.used) < SpareWrites {
		s.used = append(s.used, w)
	}
}

func (l *layer) reset() {
	for _, f := range l.used {
		l.families[f].reset()
	}
	l.table.reset()
	l.bytes, l.used = 0, l.used[:0]
	l.puts = [256]bool{}
}

func (l *layer) Get(key []byte) ([]byte, bool, error) {
	if w := l.find(key); w != nil {
		if w.removed {
			return nil, false, nil
		}
		return w.content(), true, nil
	}
	return l.below.Get(key)
}

// find is the layer's own write of a key; nil if there is none.
func (l *layer) find(key []byte) *write {
	if len(l.table.log) == 0 {
		return nil
	}
	return l.table.find(xxhash.Sum64(key), key)
}

func (l *layer) put(key, value []byte) {
	w := l.spare.next()
	w.key, w.value = key, value
	l.set(w)
}

func (l *layer) remove(key []byte) {
	w := l.spare.next()
	w.key, w.removed = key, true
	l.set(w)
}

// putFresh is put of a key that the Reader below lacks.
func (l *layer) putFresh(key, value []byte) {
	w := l.spare.next()
	w.key, w.value, w.fresh = key, value, true
	l.set(w)
}

// set takes ownership of x; the caller must not use it afterwards.
func (l *layer) set(x *write) {
	l.bytes += x.size()
	if !x.removed {
		l.puts[x.key[0]] = true
	}
	if x.hash == 0 { // not a write of another layer
		x.hash = xxhash.Sum64(x.key)
	}
	w := l.table.find(x.hash, x.key)
	switch {
	case w == nil:
		x.added = !x.removed
		l.table.put(x)
		f := &l.families[x.key[0]]
		if len(f.writes) == 0 {
			l.used = append(l.used, x.key[0])
		}
		f.writes = append(f.writes, x)
	case x.removed && w.fresh:
		l.bytes -= w.size()
		l.spare.takeHeader(w)
		w.void, w.value, w.object = true, nil, nil
		l.spare.take(x)
	default:
		l.bytes -= w.size()
		l.spare.takeHeader(w)
		w.value, w.object, w.removed = x.value, x.object, x.removed
		l.spare.take(x)
	}
}

// ordered calls fn with all writes in the order of their keys.
func (l *layer) ordered(fn func(*write)) {
	slices.Sort(l.used)
	for _, family := range l.used {
		for _, w := range l.families[family].ordered() {
			if !w.void {
				fn(w)
			}
		}
	}
}

// within lists the writes with keys in [lower, upper), in order.
func (l *layer) within(lower, upper []byte) (out []*write) {
	families := l.used
	if family, one := familyOf(lower, upper); one {
		families = []byte{family}
	} else {
		slices.Sort(families)
	}
	for _, family := range families {
		for _, w := range l.span(family, lower, upper) {
			if !w.void {
				out = append(out, w)
			}
		}
	}
	return out
}

// familyOf is the family of all keys in [lower, upper); one is false if they may be of several.
func familyOf(lower, upper []byte) (family byte, one bool) {
	if len(lower) > 0 && len(upper) > 0 && (lower[0] == upper[0] || lower[0]+1 == upper[0] && len(upper) == 1) {
		return lower[0], true
	}
	return 0, false
}

// span is the writes of a family with keys in [lower, upper), in order, void ones among them. It is valid until the layer's next write.
func (l *layer) span(family byte, lower, upper []byte) []*write {
	if len(l.families[family].writes) == 0 {
		return nil
	}
	all := l.families[family].ordered()
	from, _ := slices.BinarySearchFunc(all, lower, compareKey)
	to := len(all)
	if upper != nil {
		to, _ = slices.BinarySearchFunc(all, upper, compareKey)
	}
	return all[from:max(from, to)]
}

// Scan merges the layer's writes with the Reader below.
func (l *layer) Scan(lower, upper []byte, fn func(key, value []byte) bool) error {
	if len(l.table.log) == 0 {
		return l.below.Scan(lower, upper, fn)
	}
	var mine []*write
	if family, one := familyOf(lower, upper); one && l.base {
		mine = l.span(family, lower, upper)
	} else {
		mine = l.within(lower, upper)
	}
	if len(mine) == 0 {
		return l.below.Scan(lower, upper, fn)
	}
	i, stopped := 0, false
	emit := func(w *write) bool { return w.removed || w.void || fn(w.key, w.content()) }
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
