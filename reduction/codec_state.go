package reduction

import (
	"encoding/binary"
	"maps"
	"slices"
)

const stateLayout byte = 1

// AppendState appends the encoding of s to dst: the statuses by node, then the outputs by node, each in
// ascending order. Every status must be valid; otherwise s need not be well-formed.
func AppendState(dst []byte, s State) []byte {
	dst = append(dst, stateLayout)
	dst = binary.AppendUvarint(dst, uint64(len(s.Statuses)))
	for _, id := range slices.Sorted(maps.Keys(s.Statuses)) {
		dst = appendBytes(dst, id)
		dst = AppendStatus(dst, s.Statuses[id])
	}
	dst = binary.AppendUvarint(dst, uint64(len(s.Outputs)))
	for _, id := range slices.Sorted(maps.Keys(s.Outputs)) {
		dst = appendBytes(dst, id)
		dst = appendBytes(dst, s.Outputs[id])
	}
	return dst
}

// DecodeState is the inverse of [AppendState]; empty outputs come back as nil. The result shares nothing with
// data. The error is a *CorruptError.
func DecodeState(data []byte) (State, error) {
	r := &reader{what: "state", data: data}
	r.layout(stateLayout)
	var s State
	n := r.count()
	s.Statuses = make(map[NodeID]Status, n)
	var id NodeID
	for i := 0; i < n && r.err == nil; i++ {
		id = r.node(i, id)
		s.Statuses[id] = r.status()
	}
	n = r.count()
	s.Outputs = make(map[NodeID][]byte, n)
	for i := 0; i < n && r.err == nil; i++ {
		id = r.node(i, id)
		s.Outputs[id] = r.bytes()
	}
	if err := r.end(); err != nil {
		return State{}, err
	}
	return s, nil
}
