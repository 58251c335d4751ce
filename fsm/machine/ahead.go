package machine

import (
	"bytes"
	"slices"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// Many objects that expire at once are mostly not in memory. A read of each of their rows by itself looks into each table of L0 and
// into blocks of every level, which is the largest part of what a wake costs. So a tick reads the rows of all of them ahead, in the
// order of keys, and so does a grant of many tasks.

const (
	// aheadLeast is how many objects are worth it.
	aheadLeast = 16
	// aheadEntries and aheadBytes bound what is read of the journals of one id. A longer one is read when it is needed.
	aheadEntries = 32
	aheadBytes   = 8 << 10
	// aheadMost is how many tasks are read ahead at once.
	aheadMost = 256
)

// ahead are the ranges of rows that are to be read ahead.
type ahead struct {
	t      *txn
	ranges []state.Range
}

// row adds one row, unless it is in memory.
func (a *ahead) row(family keys.Family, object state.Ref) {
	key := keys.Append(a.t.m.arena.open(), family, object.Namespace, object.ID)
	if a.t.m.batch.find(key) != nil || a.t.m.reads.knows(key) {
		return
	}
	key = append(bytes.Clone(key), 0)
	a.ranges = append(a.ranges, state.Range{Lower: key[:len(key)-1], Upper: key})
}

// execution adds the rows of an execution and of its task, unless it is in memory.
func (a *ahead) execution(object state.Ref) {
	a.row(keys.Promise, object)
	a.row(keys.Task, object)
	if a.t.m.cache.byKey[object] != nil {
		return
	}
	a.row(keys.Header, object)
	journal := keys.Of(keys.Journal, object.Namespace, object.ID)
	a.ranges = append(a.ranges, state.Range{Lower: journal, Upper: keys.After(journal)})
}

// expirationsAhead reads ahead what expirations of these objects will read: their promises, and the executions to which they belong.
func (t *txn) expirationsAhead(objects []state.Ref) {
	if len(objects) < t.m.cfg.aheadLeast {
		return
	}
	a := ahead{t: t}
	for _, object := range objects {
		if owner, owned := state.ParentOf(object.ID); owned {
			a.row(keys.Promise, object)
			object.ID = owner
		}
		a.execution(object)
	}
	a.read()
}

// tasksAhead reads ahead the executions of the next tasks that are about to be assigned, before each aheadMost of them. done are assigned.
func (t *txn) tasksAhead(ns string, tasks []waiting, done int) {
	if tasks = tasks[done:]; done%aheadMost != 0 || len(tasks) < t.m.cfg.aheadLeast {
		return
	}
	a := ahead{t: t}
	for _, w := range tasks[:min(len(tasks), aheadMost)] {
		a.execution(state.Ref{Namespace: ns, ID: w.id})
	}
	a.read()
}

// read reads the rows into memory, the journals until forgetAhead. It changes neither state nor output.
func (a *ahead) read() {
	reads, ranges := a.t.m.reads, a.ranges
	below, able := reads.below.(state.RangeReader)
	if !able || reads.max <= 0 || len(ranges) < a.t.m.cfg.aheadLeast {
		return
	}
	slices.SortFunc(ranges, func(a, b state.Range) int { return bytes.Compare(a.Lower, b.Lower) })
	ranges = slices.CompactFunc(ranges, func(a, b state.Range) bool { return bytes.Equal(a.Lower, b.Lower) })
	if err := reads.read(below, ranges); err != nil {
		panic(state.Fault{Err: err})
	}
}

// read reads rows, each of which is a range, and journals, each of which is one as well. It forgets what was read ahead before.
func (c *readCache) read(below state.RangeReader, ranges []state.Range) error {
	clear(c.ahead)
	found := make([]bool, len(ranges))
	journal, entries, size := -1, 0, 0
	err := below.ScanRanges(ranges, func(i int, key, value []byte) bool {
		found[i] = true
		if keys.Family(key[0]) != keys.Journal {
			c.keep(key, cachedValue{value: bytes.Clone(value), present: true, size: len(value)})
			return false
		}
		if journal != i {
			journal, entries, size = i, 0, 0
		}
		incarnation := string(key[:len(key)-8])
		if entries, size = entries+1, size+len(value); entries > aheadEntries || size > aheadBytes {
			delete(c.ahead, incarnation) // not all of it
			return false
		}
		c.ahead[incarnation] = append(c.ahead[incarnation], state.Write{Key: bytes.Clone(key), Value: bytes.Clone(value)})
		return true
	})
	if err != nil {
		return err
	}
	for i, r := range ranges {
		if !found[i] && keys.Family(r.Lower[0]) != keys.Journal {
			c.keep(r.Lower, cachedValue{})
		}
	}
	return nil
}

// journalAhead are the rows of the incarnation of which [lower, upper) is a part, if they were read ahead.
func (c *readCache) journalAhead(lower, upper []byte) (rows []state.Write, known bool) {
	n := len(lower) - 8
	if len(c.ahead) == 0 || n <= 0 || keys.Family(lower[0]) != keys.Journal || len(lower) != len(upper) || !bytes.Equal(lower[:n], upper[:n]) {
		return nil, false
	}
	rows, known = c.ahead[string(lower[:n])]
	return rows, known
}

// forgetAhead forgets journals that were read ahead. It must be called before what is below changes.
func (c *readCache) forgetAhead() { clear(c.ahead) }

// knows reports whether find reads a key without a read of what is below.
func (c *readCache) knows(key []byte) bool {
	if _, known := c.young[string(key)]; known {
		return true
	}
	if _, known := c.old[string(key)]; known {
		return true
	}
	return keys.Family(key[0]) == keys.Promise && c.absences.none(key)
}
