package machine

import (
	"bytes"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/internal/slab"
	"perdure/recovery"
)

// readCache is a Reader that keeps the promises, tasks, callbacks and functions that were read or written last, the
// headers that were read last, the first places of queues, and which of these keys are absent. A promise or task that was written is kept as the object that it is. The
// content is a copy of what is below, so it never reaches state or output.
//
// It has two generations of at most max bytes each: a full young one replaces the old one, and what is used of the
// old one moves to the young one.
type readCache struct {
	below      state.Reader
	max, bytes int
	young, old map[string]*cachedValue
	// values are unused values of the maps.
	values   slab.Of[cachedValue]
	absences *absences
	// ahead are journals that were read ahead: the rows of an incarnation, all that are below, by the part of their keys before the
	// entry's number. It is empty between commands.
	ahead map[string][]state.Write
	// queues are the first places of queues that were scanned, by their prefixes.
	queues map[string]*places
}

// cachedValue is a value, or instead of it what it decodes to.
type cachedValue struct {
	value   []byte
	object  any
	present bool
	// size is what the cache counts for value or object.
	size int
}

const (
	// readCost is what the cache counts for an entry beside its key and value, objectCost for an object beside the
	// value that it stands for.
	readCost   = 128
	objectCost = 192
	// largestRead is the part of a generation that one entry may take.
	largestRead = 8
)

// newReadCache caches at most so many bytes of what below contains.
func newReadCache(below state.Reader, bytes int) *readCache {
	return &readCache{below: below, max: bytes / 2, young: map[string]*cachedValue{}, old: map[string]*cachedValue{},
		absences: newAbsences(), ahead: map[string][]state.Write{}, queues: map[string]*places{}}
}

// caches reports whether keys of this family are cached.
func (c *readCache) caches(key []byte) bool {
	switch keys.Family(key[0]) {
	case keys.Promise, keys.Task, keys.Header, keys.Function, keys.Callback, keys.AwaitedBy:
		return c.max > 0
	}
	return false
}

// Get implements state.Reader.
func (c *readCache) Get(key []byte) ([]byte, bool, error) {
	v, err := c.find(key)
	if err != nil {
		return nil, false, err
	}
	switch o := v.object.(type) {
	case *recovery.Promise:
		return recovery.AppendPromise(nil, *o), true, nil
	case *recovery.Task:
		return recovery.AppendTask(nil, *o), true, nil
	}
	return v.value, v.present, nil
}

// find is Get that does not encode an object.
func (c *readCache) find(key []byte) (cachedValue, error) {
	if !c.caches(key) {
		value, present, err := c.below.Get(key)
		return cachedValue{value: value, present: present}, err
	}
	if v, known := c.young[string(key)]; known {
		return *v, nil
	}
	if v, known := c.old[string(key)]; known {
		c.keep(key, *v)
		return *v, nil
	}
	if keys.Family(key[0]) == keys.Promise && c.absences.none(key) {
		return cachedValue{}, nil
	}
	value, present, err := c.below.Get(key)
	if err != nil {
		return cachedValue{}, err
	}
	v := cachedValue{value: value, present: present, size: len(value)}
	c.keep(key, v)
	return v, nil
}

// Scan implements state.Reader.
func (c *readCache) Scan(lower, upper []byte, fn func(key, value []byte) bool) error {
	if rows, known := c.journalAhead(lower, upper); known {
		for _, row := range rows {
			if bytes.Compare(row.Key, lower) >= 0 && bytes.Compare(row.Key, upper) < 0 && !fn(row.Key, row.Value) {
				break
			}
		}
		return nil
	}
	if queue := wholeQueue(lower, upper); queue != nil {
		return c.scanQueue(queue, lower, upper, fn)
	}
	return c.below.Scan(lower, upper, fn)
}

// written notes a write that is below now. A header that is written is that of an execution in memory, and is not read
// soon. Nor is a callback that was removed: see presence.
func (c *readCache) written(w *write) {
	switch {
	case keys.Family(w.key[0]) == keys.Ready:
		delete(c.queues, string(queueOf(w.key)))
	case !c.caches(w.key):
	case keys.Family(w.key[0]) == keys.Header, w.removed && counted(w.key) != nil:
		c.forget(w.key)
	case w.removed:
		c.keep(w.key, cachedValue{})
	case w.object != nil:
		c.keep(w.key, cachedValue{object: w.object, present: true, size: objectCost + len(w.value)})
	default:
		c.keep(w.key, cachedValue{value: bytes.Clone(w.content()), present: true, size: len(w.value)})
	}
}

func (c *readCache) keep(key []byte, v cachedValue) {
	size := readCost + len(key) + v.size
	if size > c.max/largestRead {
		c.forget(key)
		return
	}
	if former, known := c.young[string(key)]; known {
		c.bytes += v.size - former.size
		*former = v
	} else {
		kept := c.values.Next()
		*kept = v
		c.young[string(key)] = kept
		c.bytes += size
	}
	if c.bytes > c.max {
		c.old, c.young, c.bytes = c.young, c.old, 0
		clear(c.young)
	}
}

func (c *readCache) forget(key []byte) {
	if former, known := c.young[string(key)]; known {
		c.bytes -= readCost + len(key) + former.size
	}
	delete(c.young, string(key))
	delete(c.old, string(key))
}
