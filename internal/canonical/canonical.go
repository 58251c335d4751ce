// Package canonical reads and writes the primitive values of canonical encodings: a value has one encoding, and
// decoding accepts nothing else, so replicas that hold equal values hold equal bytes. Integers are varints of minimal
// length (signed ones zigzag), texts and bytes are preceded by their length, lists by their count. The package checks
// form, not rules. It keeps no state and does no I/O, so a crash loses nothing here.
//
//	r := canonical.NewReader("recovery", "task", b)
//	task := Task{ID: r.Text(), Version: r.Uvarint()}
//	if err := r.End(); err != nil {
//		return Task{}, err
//	}
package canonical

import (
	"encoding/binary"
	"fmt"
)

// CorruptError reports that bytes are not the encoding of any value.
type CorruptError struct {
	// Package and What name the value that was decoded, as "recovery" and "task".
	Package, What string
	// Offset is where the first wrong byte, or the end of the input, was met.
	Offset int
	// Detail describes the fault.
	Detail string
}

// Error returns the corruption in one line.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s: corrupt %s at byte %d: %s", e.Package, e.What, e.Offset, e.Detail)
}

// AppendBytes appends the encoding of a text or of bytes.
func AppendBytes[T ~string | ~[]byte](b []byte, v T) []byte {
	b = binary.AppendUvarint(b, uint64(len(v)))
	return append(b, v...)
}

// AppendBool appends the encoding of a flag.
func AppendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// Reader decodes the values of one encoding in their order. After the first fault every read returns a zero value.
type Reader struct {
	pkg, what string
	b         []byte
	off       int
	err       *CorruptError
}

// NewReader returns a reader of b. pkg and what name the value in errors.
func NewReader(pkg, what string, b []byte) Reader { return Reader{pkg: pkg, what: what, b: b} }

// Offset is the number of bytes read so far; 0 after a fault.
func (r *Reader) Offset() int { return r.off }

// Failed reports whether a fault was met.
func (r *Reader) Failed() bool { return r.err != nil }

// Fail records a fault, unless there was one before.
func (r *Reader) Fail(offset int, detail string) {
	if r.err == nil {
		r.err = &CorruptError{Package: r.pkg, What: r.what, Offset: offset, Detail: detail}
		r.b, r.off = nil, 0
	}
}

// Byte reads one byte.
func (r *Reader) Byte() byte {
	if r.off >= len(r.b) {
		r.Fail(r.off, "it ends too early")
		return 0
	}
	r.off++
	return r.b[r.off-1]
}

// Bool reads a flag.
func (r *Reader) Bool() bool {
	v := r.Byte()
	if v > 1 {
		r.Fail(r.off-1, "a flag is neither 0 nor 1")
	}
	return v == 1
}

// Uvarint reads an unsigned integer.
func (r *Reader) Uvarint() uint64 {
	start := r.off
	v, n := binary.Uvarint(r.b[start:])
	switch {
	case n == 0:
		r.Fail(len(r.b), "it ends too early")
		return 0
	case n < 0:
		r.Fail(start, "an integer is longer than 64 bits")
		return 0
	case n > 1 && r.b[start+n-1] == 0:
		r.Fail(start, "an integer is longer than needed")
		return 0
	}
	r.off += n
	return v
}

// Varint reads a signed integer.
func (r *Reader) Varint() int64 {
	u := r.Uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

// take returns the next length-preceded bytes, not copied.
func (r *Reader) take() []byte {
	start := r.off
	n := r.Uvarint()
	if n > uint64(len(r.b)-r.off) {
		r.Fail(start, "a length points past the end")
		return nil
	}
	v := r.b[r.off : r.off+int(n)]
	r.off += int(n)
	return v
}

// Text reads a text.
func (r *Reader) Text() string { return string(r.take()) }

// Bytes reads bytes into memory of their own.
func (r *Reader) Bytes() []byte { return append([]byte(nil), r.take()...) }

// Count returns the length of a list whose elements take at least size bytes each.
func (r *Reader) Count(size int) int {
	start := r.off
	n := r.Uvarint()
	if n > uint64((len(r.b)-r.off)/size) {
		r.Fail(start, "a count is larger than what follows")
		return 0
	}
	return int(n)
}

// End returns the first fault as a [*CorruptError]; bytes that follow the value are one.
func (r *Reader) End() error {
	if r.err == nil && r.off != len(r.b) {
		r.Fail(r.off, "there are bytes after the end")
	}
	if r.err != nil {
		return r.err
	}
	return nil
}
