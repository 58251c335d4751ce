package reduction

import "encoding/binary"

const relationLayout byte = 1

// AppendRelation appends the encoding of rel to dst: its nodes in ascending order, then for each the number
// of its successors and their numbers. The first number is absolute, every further one is the difference to
// the one before it. Equal graphs have equal encodings, however they were written.
func AppendRelation(dst []byte, rel *Relation) []byte {
	dst = append(dst, relationLayout)
	dst = binary.AppendUvarint(dst, uint64(len(rel.ids)))
	for _, id := range rel.ids {
		dst = appendBytes(dst, id)
	}
	for n := range rel.ids {
		after := rel.succ.of(int32(n))
		dst = binary.AppendUvarint(dst, uint64(len(after)))
		before := int32(0)
		for _, m := range after {
			dst = binary.AppendUvarint(dst, uint64(m-before))
			before = m
		}
	}
	return dst
}

// DecodeRelation is the inverse of [AppendRelation]. The result shares nothing with data. The error is a
// *CorruptError: what [Lower] refuses was never stored.
func DecodeRelation(data []byte) (*Relation, error) {
	r := &reader{what: "relation", data: data}
	r.layout(relationLayout)
	var d denotation
	n := r.count()
	if n > MaxNodes {
		r.fail(r.off, "too many nodes")
	}
	var id NodeID
	for i := 0; i < n && r.err == nil; i++ {
		id = r.node(i, id)
		d.ids = append(d.ids, id)
	}
	for from := 0; from < n && r.err == nil; from++ {
		r.successors(int32(from), &d)
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	rel, err := relate(d)
	if err != nil {
		return nil, &CorruptError{What: r.what, Offset: len(data), Detail: err.Error()}
	}
	return rel, nil
}

// successors reads those of one node into d.
func (r *reader) successors(from int32, d *denotation) {
	count := r.count()
	if len(d.arcs)+count > MaxEdges {
		r.fail(r.off, "too many edges")
	}
	before := uint64(0)
	for i := 0; i < count && r.err == nil; i++ {
		start := r.off
		step := r.uvarint()
		m := before + step
		if i > 0 && step == 0 || m < before || m >= uint64(len(d.ids)) {
			r.fail(start, "no successor")
			return
		}
		d.arcs = append(d.arcs, arcOf(from, int32(m)))
		before = m
	}
}
