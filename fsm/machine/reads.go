package machine

import (
	"bytes"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// readCache is a Reader that keeps the headers, promises, tasks and functions that were read or written last, and which
// of these keys are absent. Its content is a copy of what is below, so it never reaches state or output.
//
// It has two generations of at most max bytes each: a full young one replaces the old one, and what is used of the
// old one moves to the young one.
type readCache struct {
	below      state.Reader
	max, bytes int
	young, old map[string]cachedValue
}

type cachedValue struct {
	value   []byte
	present bool
}

const (
	// readCost is what the cache counts for an entry beside its key and value.
	readCost = 64
	// largestRead is the part of a generation that one entry may take.
	largestRead = 8
)

// newReadCache caches at most so many bytes of what below contains.
func newReadCache(below state.Reader, bytes int) *readCache {
	return &readCache{below: below, max: bytes / 2, young: map[string]cachedValue{}, old: map[string]cachedValue{}}
}

// caches reports whether keys of this family are cached.
func (c *readCache) caches(key []byte) bool {
	switch keys.Family(key[0]) {
	case keys.Promise, keys.Task, keys.Header, keys.Function:
		return c.max > 0
	}
	return false
}

// Get implements state.Reader.
func (c *readCache) Get(key []byte) ([]byte, bool, error) {
	if !c.caches(key) {
		return c.below.Get(key)
	}
	if v, known := c.young[string(key)]; known {
		return v.value, v.present, nil
	}
	v, known := c.old[string(key)]
	if !known {
		var err error
		if v.value, v.present, err = c.below.Get(key); err != nil {
			return nil, false, err
		}
	}
	c.keep(key, v)
	return v.value, v.present, nil
}

// Scan implements state.Reader.
func (c *readCache) Scan(lower, upper []byte, fn func(key, value []byte) bool) error {
	return c.below.Scan(lower, upper, fn)
}

// written notes a write that is below now.
func (c *readCache) written(w *write) {
	if !c.caches(w.key) {
		return
	}
	if w.removed {
		c.keep(w.key, cachedValue{})
		return
	}
	c.keep(w.key, cachedValue{bytes.Clone(w.value), true})
}

func (c *readCache) keep(key []byte, v cachedValue) {
	if former, known := c.young[string(key)]; known {
		c.bytes -= sizeOfRead(key, former)
	}
	size := sizeOfRead(key, v)
	if size > c.max/largestRead {
		delete(c.young, string(key))
		delete(c.old, string(key))
		return
	}
	c.young[string(key)] = v
	if c.bytes += size; c.bytes > c.max {
		c.old, c.young, c.bytes = c.young, c.old, 0
		clear(c.young)
	}
}

func sizeOfRead(key []byte, v cachedValue) int { return readCost + len(key) + len(v.value) }
