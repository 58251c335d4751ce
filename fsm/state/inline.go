package state

import (
	"bytes"
	"slices"
	"strings"

	"perdure/fsm/state/keys"
	"perdure/journal"
	"perdure/recovery"
)

// An execution of a function that ends soon with a short journal has its task and its journal inline: in its header's row instead of
// rows of their own, most of which are then never stored. Unless its id is that of an operation, its promise is inline, too: it follows
// from the rest. So a replica stores two rows of it, the header and an entry of the listing, beside those of its operations, and deletes
// as many when it is purged. What is inline never changes: the execution has ended.

// InlineEvents and InlineBytes bound a journal that is inline: its entries, and their bytes as AppendInline writes them. InlineMS is how
// long an execution may have taken whose journal has rows, in milliseconds by the machine's clock: they are stored by then.
const (
	InlineEvents = 128
	InlineBytes  = 8 << 10
	InlineMS     = 10_000
)

// inlineHead is how many bytes there are at most before the entries: the task's version, and what follows.
const inlineHead = 11

// The flags of the inline part: the task's target is pinned to code; the promise is inline, too.
const (
	inlinePinned  = 1 << 0
	inlinePromise = 1 << 1
)

// MayInline reports whether an execution that ends now may have its journal inline, as far as its header says. Such an execution
// has ended for good.
func (h *Header) MayInline() bool {
	return h.CleanupMS == 0 && h.Kind == KindFunction && h.Generation == 0 && h.Inline == "" && h.Status.Terminal() &&
		h.Events > 0 && h.Events <= InlineEvents && (len(h.Open) > 0 || h.ClosedMS-h.CreatedMS <= InlineMS)
}

// AppendInline appends a journal entry, as stored, to those before it, as SetInline takes them.
func AppendInline(b, entry []byte) []byte {
	e := encoder{b: b}
	e.bytes(entry)
	return e.b
}

// SetInline puts the task and the journal of an ended execution into its header, and the promise, if that is not nil and follows from
// them; see HasInlinePromise. entries are all of the journal, by AppendInline. It refuses, and changes nothing, if they are more than
// InlineBytes, or the task is not what InlineTask would return.
func (h *Header) SetInline(task recovery.Task, promise *recovery.Promise, entries []byte) bool {
	flags := uint64(0)
	if task.Target != h.Function {
		flags = inlinePinned
	}
	if len(entries) > InlineBytes || !sameTask(h.taskOf(task.Version, flags), task) {
		return false
	}
	if promise != nil && MayInlinePromise(h.ID) {
		if made, ok := h.promiseOf(task.Target, entries); ok && samePromise(made, *promise) {
			flags |= inlinePromise
		}
	}
	h.setInline(task.Version, flags, entries)
	h.Open = nil
	return true
}

func (h *Header) setInline(version, flags uint64, entries []byte) {
	e := encoder{b: make([]byte, 0, inlineHead+len(entries))}
	e.u64(version)
	e.u64(flags)
	h.Inline = string(append(e.b, entries...))
}

// inlineParts are what setInline was given.
func (h *Header) inlineParts() (version, flags uint64, entries string) {
	var head [inlineHead]byte
	n := copy(head[:], h.Inline)
	d := decoder{b: head[:n]}
	version, flags = d.u64(), d.u64()
	return version, flags, h.Inline[n-len(d.b):]
}

// DropInlinePromise takes the promise out of the header. There is none afterwards.
func (h *Header) DropInlinePromise() {
	if h.HasInlinePromise() {
		version, flags, entries := h.inlineParts()
		h.setInline(version, flags&^inlinePromise, []byte(entries))
	}
}

// MayInlinePromise reports whether the promise of an id can be inline: not if the id is that of an operation. What is below an execution is
// found by its promises.
func MayInlinePromise(objectID string) bool { return strings.IndexByte(objectID, ':') < 0 }

// HasInlinePromise reports whether the promise is inline.
func (h *Header) HasInlinePromise() bool {
	if h.Inline == "" {
		return false
	}
	_, flags, _ := h.inlineParts()
	return flags&inlinePromise != 0
}

// InlinePromise is the promise of an execution that has it inline; ok is false for all others.
func (h *Header) InlinePromise() (p recovery.Promise, ok bool) {
	if !h.HasInlinePromise() {
		return recovery.Promise{}, false
	}
	version, flags, entries := h.inlineParts()
	return h.promiseOf(h.taskOf(version, flags).Target, []byte(entries))
}

// promiseOf is the promise that follows from the header of an execution, its task's target, and the last of the entries of its journal.
// ok is false if none does: the deadline of the promise ended the execution, say.
func (h *Header) promiseOf(target string, entries []byte) (p recovery.Promise, ok bool) {
	p = recovery.Promise{ID: h.ID, Incarnation: h.Incarnation, Tags: h.Tags, Target: target, TimeoutAt: Never, CreatedAt: h.CreatedMS, SettledAt: h.ClosedMS}
	if h.DeadlineMS != 0 {
		p.TimeoutAt = h.DeadlineMS
	}
	var entry []byte
	for d := (decoder{b: entries}); len(d.b) > 0 && d.err == nil; {
		entry = d.bytes()
	}
	last, err := journal.DecodeEntry(entry)
	if err != nil {
		return p, false
	}
	switch e := last.Event.(type) {
	case journal.ExecutionCompleted:
		p.State, p.Value = recovery.PromiseResolved, recovery.AppendOutcome(nil, recovery.Outcome{Data: e.Result})
	case journal.ExecutionFailed:
		p.State, p.Value = recovery.PromiseRejected, e.Error
	case journal.ExecutionCancelled:
		p.State, p.Value = recovery.PromiseRejectedCanceled, EncodeFailure(FailureCancelled, e.Reason)
	default:
		return p, false
	}
	return p, true
}

func samePromise(a, b recovery.Promise) bool {
	return a.ID == b.ID && a.Incarnation == b.Incarnation && a.State == b.State && bytes.Equal(a.Param, b.Param) && bytes.Equal(a.Value, b.Value) &&
		slices.Equal(a.Tags, b.Tags) && a.Target == b.Target && a.Timer == b.Timer && a.External == b.External && a.TimeoutAt == b.TimeoutAt &&
		a.CreatedAt == b.CreatedAt && a.SettledAt == b.SettledAt && a.DelayUntil == b.DelayUntil
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
	version, flags, _ := h.inlineParts()
	return h.taskOf(version, flags), true
}

func (h *Header) taskOf(version, flags uint64) recovery.Task {
	t := recovery.Task{ID: h.ID, Incarnation: h.Incarnation, State: recovery.TaskFulfilled, Version: version, Target: h.Function}
	if flags&inlinePinned != 0 {
		t.Target = Target(h.Function, h.Digest)
	}
	return t
}

// InlineEntries are the entries of a journal that is inline, as stored, in their order; nil if none is. The caller may keep them.
func (h *Header) InlineEntries() [][]byte {
	if h.Inline == "" {
		return nil
	}
	_, _, entries := h.inlineParts()
	return EntriesInline([]byte(entries), int(min(h.Events, InlineEvents)))
}

// HasEntries reports whether the journal is in the header, and has no rows.
func (h *Header) HasEntries() bool { return h.Inline != "" || len(h.Open) > 0 }

// entries are those in the header.
func (h *Header) entries() [][]byte {
	if len(h.Open) > 0 {
		return h.OpenEntries()
	}
	return h.InlineEntries()
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

// entries reads as many entries as a header says it has, as AppendInline wrote them.
func (d *decoder) entries(events uint64) {
	for range min(events, InlineEvents) {
		d.bytes()
	}
}

// checkInline says what is wrong with what is inline.
func (h *Header) checkInline(d *decoder) {
	if h.Inline == "" || d.err != nil {
		return
	}
	in := decoder{b: []byte(h.Inline)}
	in.u64()
	flags := in.atMost(inlinePinned | inlinePromise)
	if flags&inlinePinned != 0 && h.Digest == "" {
		in.fail("a task inline that is pinned to no code")
	}
	if len(in.b) > InlineBytes {
		in.fail("a journal inline that is too long")
	}
	in.entries(h.Events)
	switch err := in.end(); {
	case err != nil:
		d.fail("what is inline: " + err.Error())
	case !h.Status.Terminal() || h.Kind != KindFunction || h.Generation != 0 || h.Events == 0 || h.Events > InlineEvents:
		d.fail("a journal inline of an execution that cannot have one")
	case flags&inlinePromise != 0:
		if _, ok := h.InlinePromise(); !ok || !MayInlinePromise(h.ID) {
			d.fail("a promise inline of an execution that cannot have one")
		}
	}
}

// Entries calls fn with the journal entries of an execution from one on, up to another one that is excluded, as stored and in their
// order, until fn returns false: from its header if they are there, else from their rows. key is the key of the entry's row,
// whether or not there is one. fn must not keep key and value.
func (m Must) Entries(ns string, h *Header, from, to uint64, fn func(key, value []byte) bool) {
	if !h.HasEntries() {
		m.Scan(keys.JournalEntry(ns, h.ID, h.Incarnation, from), keys.JournalEntry(ns, h.ID, h.Incarnation, to), fn)
		return
	}
	for i, value := range h.entries() {
		if seq := uint64(i); seq >= from && seq < to && !fn(keys.JournalEntry(ns, h.ID, h.Incarnation, seq), value) {
			return
		}
	}
}

// Entry reads one journal entry of an execution, as Entries does.
func (m Must) Entry(ns string, h *Header, seq uint64) (value []byte, ok bool) {
	if !h.HasEntries() {
		return m.Get(keys.JournalEntry(ns, h.ID, h.Incarnation, seq))
	}
	entries := h.entries()
	if seq >= uint64(len(entries)) {
		return nil, false
	}
	return entries[seq], true
}
