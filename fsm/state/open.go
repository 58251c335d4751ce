package state

// An open execution of a function has its journal in its header while that is short. A commit writes the header anyway, so its entries
// need no rows, of which there would be several for each step, to be removed again when the journal becomes inline. A journal that has
// become too long for that gets its rows once, and is never in the header again.

// OpenBytes bounds the journal in the header of an open execution that is older than InlineMS: each commit may write it to disk again.
// A younger one has up to InlineBytes.
const OpenBytes = 1 << 10

// MayBeOpen reports whether an execution may have its journal in its header while it is open, as far as its header says.
func (h *Header) MayBeOpen() bool { return h.Kind == KindFunction && h.Generation == 0 }

// OpenFits reports whether a journal of so many bytes may be in the header at a time.
func (h *Header) OpenFits(bytes int, nowMS int64) bool {
	return bytes <= OpenBytes || bytes <= InlineBytes && nowMS-h.CreatedMS <= InlineMS
}

// OpenEntries are the entries of Open, in their order. They are parts of it.
func (h *Header) OpenEntries() [][]byte {
	return EntriesInline(h.Open, int(min(h.Events, InlineEvents)))
}

// checkOpen says what is wrong with a journal in the header of an open execution.
func (h *Header) checkOpen(d *decoder) {
	if len(h.Open) == 0 || d.err != nil {
		return
	}
	in := decoder{b: h.Open}
	in.entries(h.Events)
	switch err := in.end(); {
	case err != nil:
		d.fail("the journal in the header: " + err.Error())
	case h.Status.Terminal() || !h.MayBeOpen() || h.Events > InlineEvents || len(h.Open) > InlineBytes:
		d.fail("a journal in the header of an execution that cannot have one there")
	}
}
