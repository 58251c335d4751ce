package machine

import (
	"slices"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// entryRow is the key of a journal entry's row.
func (t *txn) entryRow(ex *execution, seq uint64) []byte {
	return t.m.arena.close(keys.AppendJournalEntry(t.m.arena.open(), ex.ns, ex.h.ID, ex.h.Incarnation, seq))
}

// putEntry writes the next journal entry: into the header, if the journal is there or has none yet, and fits; else as a row.
func (t *txn) putEntry(ex *execution, seq uint64, entry []byte) {
	h := &ex.h
	if t.m.feature < state.LevelInline {
		t.put(t.entryRow(ex, seq), entry)
		return
	}
	ex.short.add(seq, entry)
	if seq == 0 && t.m.feature >= state.LevelOpen && h.MayBeOpen() || len(h.Open) > 0 {
		if s := &ex.short; s.entries == seq+1 && h.OpenFits(len(s.bytes), t.now) {
			h.Open = slices.Clip(s.bytes)
			return
		}
		t.spill(ex)
	}
	t.putFresh(t.entryRow(ex, seq), entry) // an early end removes it
}

// spill writes the rows of a journal that is in the header of an open execution, and no longer has it there.
func (t *txn) spill(ex *execution) {
	if len(ex.h.Open) == 0 {
		return
	}
	for seq, entry := range ex.h.OpenEntries() {
		t.putFresh(t.entryRow(ex, uint64(seq)), entry)
	}
	ex.h.Open, ex.dirty = nil, true
}

// shortOf is the journal that is in the header of an open execution; it is empty of others.
func shortOf(h *state.Header) shortJournal {
	if len(h.Open) == 0 {
		return shortJournal{}
	}
	return shortJournal{bytes: slices.Clip(h.Open), entries: h.Events}
}
