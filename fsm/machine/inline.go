package machine

import (
	"errors"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/recovery"
)

// mayInline reports whether an execution that is being closed may have its task and its journal inline in its header.
func (t *txn) mayInline(ex *execution) bool {
	return t.m.feature >= state.LevelInline && ex.h.MayInline()
}

// inlineEnded moves the tasks and journals of short executions that the transaction has closed into their headers. The rows, of which
// most are not stored yet, are removed. It runs when all else is written: the promise is settled and the task fulfilled.
func (t *txn) inlineEnded() {
	for _, ex := range t.touched {
		if !ex.ending {
			continue
		}
		ex.ending = false
		if !t.inline(ex) {
			t.spill(ex)
			t.listEnd(ex)
		}
	}
}

// inline moves task and journal of one execution, unless they do not fit, and its promise if that follows from them.
func (t *txn) inline(ex *execution) bool {
	ns, h := ex.ns, &ex.h
	task, ok := t.store(ns).Task(h.ID)
	if !ok {
		return false
	}
	entries, fits := t.entriesOf(ex)
	open := len(h.Open) > 0
	if !fits || !h.SetInline(task, t.promiseToInline(ex), entries) {
		return false
	}
	if !open {
		for seq := range h.Events {
			t.remove(t.entryRow(ex, seq))
		}
	}
	t.remove(t.of(keys.Task, ns, h.ID))
	if h.HasInlinePromise() {
		row := t.of(keys.Promise, ns, h.ID)
		t.remove(row)
		t.m.reads.absences.moved(t.find(row))
	}
	t.putHeader(ex) // here, so that the invariants find the task
	t.listEnd(ex)
	return true
}

// promiseToInline is the promise of an execution, which may be inline, too; nil if it may not.
func (t *txn) promiseToInline(ex *execution) *recovery.Promise {
	if t.m.feature < state.LevelPromise || !state.MayInlinePromise(ex.h.ID) {
		return nil
	}
	p, ok := t.store(ex.ns).Promise(ex.h.ID)
	if !ok {
		return nil
	}
	return &p
}

// shortJournal are the first entries of an execution's journal in memory, as state.AppendInline writes them. long: they are known to be
// more than fit. It is a cache of the entries' rows: without all of them they are read.
type shortJournal struct {
	bytes   []byte
	entries uint64
	long    bool
}

// add takes the entry of a number.
func (s *shortJournal) add(seq uint64, entry []byte) {
	if s.long || seq != s.entries {
		return
	}
	if s.bytes == nil {
		s.bytes = make([]byte, 0, 256)
	}
	s.bytes = state.AppendInline(s.bytes, entry)
	if s.entries++; s.entries > state.InlineEvents || len(s.bytes) > state.InlineBytes {
		*s = shortJournal{long: true}
	}
}

// from are the entries from a number on, as stored.
func (s *shortJournal) from(seq uint64) [][]byte {
	return state.EntriesInline(s.bytes, int(s.entries))[seq:]
}

// whole reports that s has all entries of a journal.
func (s *shortJournal) whole(h *state.Header) bool {
	return !s.long && s.entries > 0 && s.entries == h.Events
}

// entriesOf are the entries of an execution that has ended, as SetInline takes them. fits is false if they are too long.
func (t *txn) entriesOf(ex *execution) (entries []byte, fits bool) {
	h := &ex.h
	if ex.short.long || ex.short.entries == h.Events {
		return ex.short.bytes, !ex.short.long
	}
	for seq := range h.Events {
		row := t.entryRow(ex, seq)
		entry, ok := t.get(row)
		if !ok {
			state.PanicCorrupt("journal", row, errors.New("the entry is missing"))
		}
		if entries = state.AppendInline(entries, entry); len(entries) > state.InlineBytes {
			return nil, false
		}
	}
	return entries, true
}

// inlineTask is the task of an ended execution that has no row of its own for it.
func (s store) inlineTask(objectID string) (recovery.Task, bool) {
	if s.t.m.feature < state.LevelInline {
		return recovery.Task{}, false
	}
	if ex := s.t.m.cache.get(s.ns, objectID); ex != nil && ex.h.Inline == "" {
		return recovery.Task{}, false
	}
	if p, ok := s.Promise(objectID); !ok || !p.State.Settled() || p.Target == "" || state.OfClient(p) {
		return recovery.Task{}, false
	}
	h, _ := s.t.headerOf(s.ns, objectID)
	return h.InlineTask()
}

// inlinePromise is the promise of an ended execution that has no row of its own for it.
func (s store) inlinePromise(objectID string) (recovery.Promise, bool) {
	if s.t.m.feature < state.LevelPromise || !state.MayInlinePromise(objectID) {
		return recovery.Promise{}, false
	}
	if ex := s.t.m.cache.get(s.ns, objectID); ex != nil {
		return ex.h.InlinePromise()
	}
	if s.t.m.Free(s.ns, objectID) {
		return recovery.Promise{}, false
	}
	h, _ := s.t.stored().Header(s.ns, objectID)
	return h.InlinePromise()
}

// dropInlinePromise deletes a promise that is inline in the header of an ended execution; false if there is none.
func (s store) dropInlinePromise(objectID string) bool {
	if _, ok := s.inlinePromise(objectID); !ok {
		return false
	}
	s.t.m.reads.absences.removed++
	if ex := s.t.m.cache.get(s.ns, objectID); ex != nil {
		s.t.touch(ex)
		ex.h.DropInlinePromise()
		ex.dirty = true
		return true
	}
	h, _ := s.t.stored().Header(s.ns, objectID)
	h.DropInlinePromise()
	s.t.put(s.t.of(keys.Header, s.ns, objectID), s.t.m.arena.close(h.Append(s.t.m.arena.open())))
	return true
}

// inlined says what of an ended execution is in its header, and not in rows of its own.
type inlined struct {
	journal bool // and the task
	promise bool
}

func inlinedOf(h *state.Header) inlined { return inlined{h.Inline != "", h.HasInlinePromise()} }

// journalEntries calls fn with journal entries of an execution, as state.Must's Entries does.
func (t *txn) journalEntries(ex *execution, from, to uint64, fn func(key, value []byte) bool) {
	state.Must{From: t}.Entries(ex.ns, &ex.h, from, to, fn)
}
