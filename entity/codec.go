package entity

import (
	"encoding/binary"
	"fmt"
)

// The encodings are canonical: a value has one encoding, and decoding accepts nothing else, so two
// replicas that hold equal values hold equal bytes. Integers are varints of minimal length (signed ones
// zigzag), texts and bytes are preceded by their length, lists by their count. The first byte of what is
// stored or sent on its own is the version of the layout. Form is checked here, the rules are not: a value
// that breaks one still decodes, so that it can be shown.
const layout byte = 1

// CorruptError reports that bytes are not the encoding of any value.
type CorruptError struct {
	// What names the type that was decoded: "message", "state", "head", "entry" or "holder".
	What string
	// Offset is where the first wrong byte, or the end of the input, was met.
	Offset int
	// Detail says what is wrong there.
	Detail string
}

// Error returns the corruption in one line.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("entity: corrupt %s at byte %d: %s", e.What, e.Offset, e.Detail)
}

func appendBytes[T ~string | ~[]byte](b []byte, v T) []byte {
	b = binary.AppendUvarint(b, uint64(len(v)))
	return append(b, v...)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendParty(b []byte, p Party) []byte {
	b = append(b, byte(p.Kind))
	b = appendBytes(b, p.ID)
	return binary.AppendUvarint(b, p.Incarnation)
}

func appendSection(b []byte, s Section) []byte {
	b = appendParty(b, s.Holder)
	return appendBytes(b, s.ID)
}

func appendIDs(b []byte, ids []ID) []byte {
	b = binary.AppendUvarint(b, uint64(len(ids)))
	for _, id := range ids {
		b = appendBytes(b, id)
	}
	return b
}

// reader takes an encoding apart. After the first fault every read returns a zero value.
type reader struct {
	what string
	b    []byte
	off  int
	err  *CorruptError
}

func (r *reader) fail(offset int, detail string) {
	if r.err == nil {
		r.err = &CorruptError{What: r.what, Offset: offset, Detail: detail}
		r.b, r.off = nil, 0
	}
}

func (r *reader) byte() byte {
	if r.off >= len(r.b) {
		r.fail(r.off, "it ends too early")
		return 0
	}
	r.off++
	return r.b[r.off-1]
}

func (r *reader) layout() {
	if r.byte() != layout {
		r.fail(0, "unknown layout")
	}
}

func (r *reader) bool() bool {
	v := r.byte()
	if v > 1 {
		r.fail(r.off-1, "a flag is neither 0 nor 1")
	}
	return v == 1
}

func (r *reader) uvarint() uint64 {
	start := r.off
	v, n := binary.Uvarint(r.b[start:])
	switch {
	case n == 0:
		r.fail(len(r.b), "it ends too early")
		return 0
	case n < 0:
		r.fail(start, "an integer is longer than 64 bits")
		return 0
	case n > 1 && r.b[start+n-1] == 0:
		r.fail(start, "an integer is longer than needed")
		return 0
	}
	r.off += n
	return v
}

func (r *reader) varint() int64 {
	u := r.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

// take returns the next length-preceded bytes, not copied.
func (r *reader) take() []byte {
	start := r.off
	n := r.uvarint()
	if n > uint64(len(r.b)-r.off) {
		r.fail(start, "a length points past the end")
		return nil
	}
	v := r.b[r.off : r.off+int(n)]
	r.off += int(n)
	return v
}

func (r *reader) str() string { return string(r.take()) }

func (r *reader) bytes() []byte { return append([]byte(nil), r.take()...) }

// count returns the length of a list whose elements take at least size bytes each.
func (r *reader) count(size int) int {
	start := r.off
	n := r.uvarint()
	if n > uint64((len(r.b)-r.off)/size) {
		r.fail(start, "a count is larger than what follows")
		return 0
	}
	return int(n)
}

func (r *reader) party() Party {
	start := r.off
	p := Party{Kind: PartyKind(r.byte()), ID: r.str(), Incarnation: r.uvarint()}
	if r.err == nil && !p.Kind.Valid() {
		r.fail(start, "unknown kind of party")
	}
	return p
}

func (r *reader) section() Section { return Section{Holder: r.party(), ID: r.str()} }

func (r *reader) ids() []ID {
	n := r.count(1)
	if n == 0 {
		return nil
	}
	ids := make([]ID, n)
	for i := range ids {
		ids[i] = ID(r.str())
	}
	return ids
}

func (r *reader) end() error {
	if r.err == nil && r.off != len(r.b) {
		r.fail(r.off, "there are bytes after the end")
	}
	if r.err != nil {
		return r.err
	}
	return nil
}
