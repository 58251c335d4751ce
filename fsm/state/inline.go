package state

import (
	"perdure/fsm/state/keys"
	"perdure/recovery"
)

// An execution of a function that ends soon with a short journal has its task and its journal inline: in its header's row instead of
// rows of their own, most of which are then never stored. So a replica stores three rows of it, beside those of its operations, and
// deletes as many when it is purged. What is inline never changes: the execution has ended.

// InlineEvents and InlineBytes bound a journal that is inline: its entries, and their bytes as AppendInline writes them. InlineMS is how
// long an execution may have taken, in milliseconds by the machine's clock: of one that takes longer the rows are stored by then.
const (
	InlineEvents = 128
	InlineBytes  = 8 << 10
	InlineMS     = 10_000
)

// inlineHead is how many bytes there are at most before the entries: a version and whether the target is pinned.
const inlineHead = 11

// MayInline reports whether an execution that ends now may have its journal inline, as far as its header says. Such an execution
// has ended for good.
func (h *Header) MayInline() bool {
	return h.CleanupMS == 0 && h.Kind == KindFunction && h.Generation == 0 && h.Inline == "" && h.Status.Terminal() &&
		h.Events > 0 && h.Events <= InlineEvents && h.ClosedMS-h.CreatedMS <= InlineMS
}

// AppendInline appends a journal entry, as stored, to those before it, as SetInline takes them.
func AppendInline(b, entry []byte) []byte {
	e := encoder{b: b}
	e.bytes(entry)
	return e.b
}

// SetInline puts the task and the journal of an ended execution into its header. entries are all of the journal, by AppendInline. It
// refuses, and changes nothing, if they are more than InlineBytes, or the task is not what InlineTask would return.
func (h *Header) SetInline(task recovery.Task, entries []byte) bool {
	if len(entries) > InlineBytes {
		return false
	}
	e := encoder{b: make([]byte, 0, inlineHead)}
	e.u64(task.Version)
	pinned := uint64(0)
	if task.Target != h.Function {
		pinned = 1
	}
	e.u64(pinned)
	h.Inline = string(e.b) + string(entries)
	if made, _ := h.InlineTask(); !sameTask(made, task) {
		h.Inline = ""
		return false
	}
	return true
}

func sameTask(a, b recovery.Task) bool {
	return a.ID == b.ID && a.Incarnation == b.Incarnation && a.State == b.State && a.Version == b.Version && a.Target == b.Target &&
		a.PID == b.PID && a.TTL == b.TTL && a.LeaseAt == b.LeaseAt && a.RetryAt == b.RetryAt && len(a.Resumes) == 0 && len(b.Resumes) == 0 &&
		a.Releases == b.Releases && a.ReleasedAt == b.ReleasedAt
}

// InlineTask is the task of an execution that has it inline; ok is false for all others.
func (h *Header) InlineTask() (t recovery.Task, ok bool) {
	if h.Inline == "" {
		return recovery.Task{}, false
	}
	d := decoder{b: []byte(h.Inline[:min(len(h.Inline), inlineHead)])}
	t = recovery.Task{ID: h.ID, Incarnation: h.Incarnation, State: recovery.TaskFulfilled, Version: d.u64(), Target: h.Function}
	if d.u64() != 0 {
		t.Target = Target(h.Function, h.Digest)
	}
	return t, true
}

// InlineEntries are the entries of a journal that is inline, as stored, in their order; nil if none is. The caller may keep them.
func (h *Header) InlineEntries() [][]byte {
	if h.Inline == "" {
		return nil
	}
	d := decoder{b: []byte(h.Inline)}
	_, _ = d.u64(), d.u64()
	return EntriesInline(d.b, int(min(h.Events, InlineEvents)))
}

// EntriesInline are the entries that AppendInline has appended to b, about so many. They are parts of b.
func EntriesInline(b []byte, about int) [][]byte {
	d := decoder{b: b}
	out := make([][]byte, 0, about)
	for len(d.b) > 0 && d.err == nil {
		out = append(out, d.bytes())
	}
	return out
}

// checkInline says what is wrong with what is inline.
func (h *Header) checkInline(d *decoder) {
	if h.Inline == "" || d.err != nil {
		return
	}
	in := decoder{b: []byte(h.Inline)}
	in.u64()
	pinned := in.atMost(1)
	if pinned == 1 && h.Digest == "" {
		in.fail("a task inline that is pinned to no code")
	}
	if len(in.b) > InlineBytes {
		in.fail("a journal inline that is too long")
	}
	for range min(h.Events, InlineEvents) {
		in.bytes()
	}
	switch err := in.end(); {
	case err != nil:
		d.fail("what is inline: " + err.Error())
	case !h.Status.Terminal() || h.Kind != KindFunction || h.Generation != 0 || h.Events == 0 || h.Events > InlineEvents:
		d.fail("a journal inline of an execution that cannot have one")
	}
}

// Entries calls fn with the journal entries of an execution from one on, up to another one that is excluded, as stored and in their
// order, until fn returns false: from its header if they are inline there, else from their rows. key is the key of the entry's row,
// whether or not there is one. fn must not keep key and value.
func (m Must) Entries(ns string, h *Header, from, to uint64, fn func(key, value []byte) bool) {
	if h.Inline == "" {
		m.Scan(keys.JournalEntry(ns, h.ID, h.Incarnation, from), keys.JournalEntry(ns, h.ID, h.Incarnation, to), fn)
		return
	}
	for i, value := range h.InlineEntries() {
		if seq := uint64(i); seq >= from && seq < to && !fn(keys.JournalEntry(ns, h.ID, h.Incarnation, seq), value) {
			return
		}
	}
}

// Entry reads one journal entry of an execution, as Entries does.
func (m Must) Entry(ns string, h *Header, seq uint64) (value []byte, ok bool) {
	if h.Inline == "" {
		return m.Get(keys.JournalEntry(ns, h.ID, h.Incarnation, seq))
	}
	entries := h.InlineEntries()
	if seq >= uint64(len(entries)) {
		return nil, false
	}
	return entries[seq], true
}
