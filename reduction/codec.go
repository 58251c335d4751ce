package reduction

import (
	"encoding/binary"
	"strconv"
)

// The encodings are canonical: a value has one encoding, and decoding accepts nothing else, so replicas that
// hold equal values hold equal bytes. Numbers are unsigned varints in their shortest form, texts and payloads
// a length and their bytes. A value that is stored by itself begins with the version of its layout.

// CorruptError says that bytes are not the encoding of any value: they were damaged, or made by something
// else. It is never the caller's mistake.
type CorruptError struct {
	// What names the type that was decoded: "status", "outcome", "state" or "relation".
	What string
	// Offset is the byte at which reading stopped.
	Offset int
	// Detail says what was found there.
	Detail string
}

// Error returns the corruption in one line.
func (e *CorruptError) Error() string {
	return "reduction: corrupt " + e.What + " at byte " + strconv.Itoa(e.Offset) + ": " + e.Detail
}

func appendBytes[T ~string | ~[]byte](dst []byte, v T) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(v)))
	return append(dst, v...)
}

// reader decodes an encoding. After the first fault every read yields zero.
type reader struct {
	what string
	data []byte
	off  int
	err  *CorruptError
}

func (r *reader) fail(offset int, detail string) {
	if r.err == nil {
		r.err = &CorruptError{What: r.what, Offset: offset, Detail: detail}
		r.data, r.off = nil, 0
	}
}

func (r *reader) byte() byte {
	if r.off >= len(r.data) {
		r.fail(r.off, "it ends too early")
		return 0
	}
	r.off++
	return r.data[r.off-1]
}

func (r *reader) layout(want byte) {
	if got := r.byte(); got != want {
		r.fail(0, "unknown layout "+strconv.Itoa(int(got)))
	}
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.data[r.off:])
	switch {
	case n == 0:
		r.fail(len(r.data), "it ends too early")
		return 0
	case n < 0:
		r.fail(r.off, "a number is above 64 bits")
		return 0
	case n > 1 && r.data[r.off+n-1] == 0:
		r.fail(r.off, "a number is not in its shortest form")
		return 0
	}
	r.off += n
	return v
}

// span returns the bytes of a text or payload, not copied.
func (r *reader) span() []byte {
	start := r.off
	n := r.uvarint()
	if n > uint64(len(r.data)-r.off) {
		r.fail(start, "a length points beyond the end")
		return nil
	}
	v := r.data[r.off : r.off+int(n)]
	r.off += int(n)
	return v
}

func (r *reader) text() string { return string(r.span()) }

// bytes returns a copy, nil for none.
func (r *reader) bytes() []byte {
	v := r.span()
	if len(v) == 0 {
		return nil
	}
	return append([]byte(nil), v...)
}

// count reads the length of a list whose elements take at least one byte each.
func (r *reader) count() int {
	start := r.off
	n := r.uvarint()
	if n > uint64(len(r.data)-r.off) {
		r.fail(start, "a list is longer than what follows")
		return 0
	}
	return int(n)
}

// node reads the id of a list's i-th element, which must come after the one before it.
func (r *reader) node(i int, before NodeID) NodeID {
	start := r.off
	id := NodeID(r.text())
	if i > 0 && id <= before {
		r.fail(start, "the nodes are not in ascending order")
	}
	return id
}

// end is what a decoder returns: nothing may follow the value.
func (r *reader) end() error {
	if r.err == nil && r.off != len(r.data) {
		r.fail(r.off, strconv.Itoa(len(r.data)-r.off)+" bytes after the end")
	}
	if r.err != nil {
		return r.err
	}
	return nil
}
