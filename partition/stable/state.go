package stable

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// The record is
//
//	version 1 | stamp | count 4 | count x (group 4 | key | value) | checksum 8
//
// where stamp, key and value are a length of 4 bytes and that many bytes; integers big endian; entries
// ascending by (group, key) without repetition; xxhash64 over everything before it.
const stateVersion = 1

type valueKey struct {
	group uint32
	key   string
}

func (a valueKey) compare(b valueKey) int {
	if a.group != b.group {
		if a.group < b.group {
			return -1
		}
		return 1
	}
	return strings.Compare(a.key, b.key)
}

type state struct {
	stamp  []byte
	values map[valueKey][]byte
}

func newState() *state { return &state{values: map[valueKey][]byte{}} }

// clone shares the values: they are never changed in place.
func (s *state) clone() *state {
	out := &state{stamp: s.stamp, values: make(map[valueKey][]byte, len(s.values)+1)}
	for k, v := range s.values {
		out.values[k] = v
	}
	return out
}

func (s *state) set(g uint32, key, val []byte) {
	s.values[valueKey{g, string(key)}] = append([]byte{}, val...)
}

func (s *state) get(g uint32, key []byte) ([]byte, error) {
	v, ok := s.values[valueKey{g, string(key)}]
	if !ok {
		return nil, ErrNotFound
	}
	return append([]byte{}, v...), nil
}

func (s *state) drop(g uint32) {
	for k := range s.values {
		if k.group == g {
			delete(s.values, k)
		}
	}
}

func (s *state) sorted() []valueKey {
	keys := make([]valueKey, 0, len(s.values))
	for k := range s.values {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, valueKey.compare)
	return keys
}

func (s *state) groups() []uint32 {
	var out []uint32
	for _, k := range s.sorted() {
		if len(out) == 0 || out[len(out)-1] != k.group {
			out = append(out, k.group)
		}
	}
	return out
}

func (s *state) encode() []byte {
	put := func(b, v []byte) []byte {
		return append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
	}
	b := put([]byte{stateVersion}, s.stamp)
	b = binary.BigEndian.AppendUint32(b, uint32(len(s.values)))
	for _, k := range s.sorted() {
		b = binary.BigEndian.AppendUint32(b, k.group)
		b = put(b, []byte(k.key))
		b = put(b, s.values[k])
	}
	return binary.BigEndian.AppendUint64(b, xxhash.Sum64(b))
}

var errShort = errors.New("record ends early")

func decodeState(b []byte) (*state, error) {
	if len(b) < 1+4+4+8 {
		return nil, errShort
	}
	body := b[:len(b)-8]
	if xxhash.Sum64(body) != binary.BigEndian.Uint64(b[len(body):]) {
		return nil, errors.New("checksum mismatch")
	}
	if body[0] != stateVersion {
		return nil, fmt.Errorf("record version %d, this program knows %d", body[0], stateVersion)
	}
	rest := body[1:]
	u32 := func() (uint32, error) {
		if len(rest) < 4 {
			return 0, errShort
		}
		v := binary.BigEndian.Uint32(rest)
		rest = rest[4:]
		return v, nil
	}
	field := func() ([]byte, error) {
		n, err := u32()
		if err != nil {
			return nil, err
		}
		if uint64(n) > uint64(len(rest)) {
			return nil, errShort
		}
		v := bytes.Clone(rest[:n])
		rest = rest[n:]
		return v, nil
	}
	st := newState()
	var err error
	if st.stamp, err = field(); err != nil {
		return nil, err
	}
	count, err := u32()
	if err != nil {
		return nil, err
	}
	var prev valueKey
	for i := range count {
		g, err := u32()
		if err != nil {
			return nil, err
		}
		k, err := field()
		if err != nil {
			return nil, err
		}
		v, err := field()
		if err != nil {
			return nil, err
		}
		key := valueKey{g, string(k)}
		if i > 0 && prev.compare(key) >= 0 {
			return nil, errors.New("values out of order")
		}
		if v == nil {
			v = []byte{}
		}
		st.values[key], prev = v, key
	}
	if len(rest) != 0 {
		return nil, fmt.Errorf("%d bytes after the last value", len(rest))
	}
	return st, nil
}
