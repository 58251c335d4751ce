package entity

import "encoding/binary"

// AppendHolder appends the canonical encoding of h to b.
func AppendHolder(b []byte, h *Holder) []byte {
	b = append(b, layout, byte(h.Phase))
	b = appendParty(b, h.Self)
	b = appendBytes(b, h.Section)
	b = appendIDs(b, h.Set)
	b = binary.AppendUvarint(b, uint64(len(h.Pending)))
	for _, p := range h.Pending {
		b = appendBytes(b, p.Entity)
		b = appendBytes(b, p.Request)
	}
	return b
}

// DecodeHolder is the inverse of [AppendHolder]. The result shares nothing with b. The error is a
// [*CorruptError].
func DecodeHolder(b []byte) (*Holder, error) {
	r := &reader{what: "holder", b: b}
	r.layout()
	h := &Holder{Phase: Phase(r.byte())}
	if r.err == nil && !h.Phase.Valid() {
		r.fail(1, "unknown phase")
	}
	h.Self = r.party()
	h.Section = r.str()
	start := r.off
	h.Set = r.ids()
	for i := 1; i < len(h.Set); i++ {
		if h.Set[i-1] >= h.Set[i] {
			r.fail(start, "the lock set is not in ascending order")
		}
	}
	if n := r.count(2); n > 0 {
		h.Pending = make([]Pending, n)
		for i := range h.Pending {
			start := r.off
			h.Pending[i] = Pending{Entity: ID(r.str()), Request: r.str()}
			if i > 0 && h.Pending[i-1].Entity >= h.Pending[i].Entity {
				r.fail(start, "the pending calls are not in ascending order")
			}
		}
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	return h, nil
}
