package entity

import (
	"encoding/binary"

	"perdure/internal/canonical"
)

// AppendHolder appends the canonical encoding of h to b.
func AppendHolder(b []byte, h *Holder) []byte {
	b = append(b, layout, byte(h.Phase))
	b = appendParty(b, h.Self)
	b = canonical.AppendBytes(b, h.Section)
	b = appendIDs(b, h.Set)
	b = binary.AppendUvarint(b, uint64(len(h.Pending)))
	for _, p := range h.Pending {
		b = canonical.AppendBytes(b, p.Entity)
		b = canonical.AppendBytes(b, p.Request)
	}
	return b
}

// DecodeHolder is the inverse of [AppendHolder]. The result shares nothing with b. The error is a
// [*CorruptError].
func DecodeHolder(b []byte) (*Holder, error) {
	r := newReader("holder", b)
	r.layout()
	h := &Holder{Phase: Phase(r.Byte())}
	if !r.Failed() && !h.Phase.Valid() {
		r.Fail(1, "unknown phase")
	}
	h.Self = r.party()
	h.Section = r.Text()
	start := r.Offset()
	h.Set = r.ids()
	for i := 1; i < len(h.Set); i++ {
		if h.Set[i-1] >= h.Set[i] {
			r.Fail(start, "the lock set is not in ascending order")
		}
	}
	if n := r.Count(2); n > 0 {
		h.Pending = make([]Pending, n)
		for i := range h.Pending {
			start := r.Offset()
			h.Pending[i] = Pending{Entity: ID(r.Text()), Request: r.Text()}
			if i > 0 && h.Pending[i-1].Entity >= h.Pending[i].Entity {
				r.Fail(start, "the pending calls are not in ascending order")
			}
		}
	}
	if err := r.End(); err != nil {
		return nil, err
	}
	return h, nil
}
