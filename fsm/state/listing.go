package state

// ListingOpen is the value of an open execution's listing entry.
func ListingOpen(function string) []byte { return AppendListingOpen([]byte{}, function) }

// AppendListingOpen appends what ListingOpen returns.
func AppendListingOpen(b []byte, function string) []byte { return append(b, function...) }

// ListedEnd is the value of an ended execution's listing entry. Of a leaf it has what a purge asks its header.
type ListedEnd struct {
	Function string
	ClosedMS int64
	// Leaf is HeaderMore's. Incarnation and Events are 0 without it.
	Leaf                bool
	Incarnation, Events uint64
	// Inline: the header has the task and the journal. InlinePromise: and the promise.
	Inline, InlinePromise bool
}

// ListingClosed is the value of an ended execution's listing entry.
func ListingClosed(h *Header) []byte { return AppendListingClosed(nil, h) }

// AppendListingClosed appends what ListingClosed returns.
func AppendListingClosed(b []byte, h *Header) []byte {
	e := encoder{b: b}
	e.str(h.Function)
	e.i64(h.ClosedMS)
	if h.Leaf {
		e.u64(h.Incarnation)
		e.u64(h.Events)
		switch {
		case h.HasInlinePromise():
			e.u64(2)
		case h.Inline != "":
			e.u64(1)
		}
	}
	return e.b
}

// ReadListingClosed reads what ListingClosed returns.
func ReadListingClosed(b []byte) (l ListedEnd, err error) {
	d := decoder{b: b}
	l.Function, l.ClosedMS = d.str(), d.i64()
	if l.Leaf = len(d.b) > 0 && d.err == nil; l.Leaf {
		l.Incarnation, l.Events = d.u64(), d.u64()
		if l.Inline = len(d.b) > 0 && d.err == nil; l.Inline {
			parts := d.u64()
			if d.err == nil && parts != 1 && parts != 2 {
				d.fail("something inline that this program does not know")
			}
			l.InlinePromise = parts == 2
		}
	}
	return l, d.end()
}
