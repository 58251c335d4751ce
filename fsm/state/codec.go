package state

import (
	"encoding/binary"
	"fmt"
)

// encoder appends fields in a fixed order: same value, same bytes.
type encoder struct{ b []byte }

func (e *encoder) u64(n uint64)   { e.b = binary.AppendUvarint(e.b, n) }
func (e *encoder) i64(n int64)    { e.b = binary.AppendVarint(e.b, n) }
func (e *encoder) str(s string)   { e.u64(uint64(len(s))); e.b = append(e.b, s...) }
func (e *encoder) bytes(s []byte) { e.u64(uint64(len(s))); e.b = append(e.b, s...) }

// CorruptError reports that stored bytes are not what this program writes: damage, or a newer format. The
// replica stops.
type CorruptError struct {
	What   string
	Key    []byte
	Detail string
}

// Error names the kind of value and its key.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("fsm: damaged %s at key %x: %s", e.What, e.Key, e.Detail)
}

// misplaced says that a value is not its key's.
func misplaced(objectID string) error { return fmt.Errorf("it is the value of %q", objectID) }

// decoder reads what encoder wrote; the first error sticks.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(detail string) {
	if d.err == nil {
		d.err = fmt.Errorf("%s", detail)
	}
	d.b = nil
}

func (d *decoder) u64() uint64 {
	n, size := binary.Uvarint(d.b)
	d.skip(size)
	return n
}

func (d *decoder) i64() int64 {
	n, size := binary.Varint(d.b)
	d.skip(size)
	return n
}

// skip passes a number of size bytes, as encoding/binary read it. A number has one encoding, the shortest.
func (d *decoder) skip(size int) {
	switch {
	case size <= 0:
		d.fail("number cut short")
	case size > 1 && d.b[size-1] == 0:
		d.fail("number longer than needed")
	default:
		d.b = d.b[size:]
	}
}

func (d *decoder) bytes() []byte {
	n := d.u64()
	if n > uint64(len(d.b)) {
		d.fail("bytes cut short")
		return nil
	}
	if n == 0 {
		return nil
	}
	out := d.b[:n:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) str() string { return string(d.bytes()) }

// end reports the first error, or left-over bytes.
func (d *decoder) end() error {
	if d.err == nil && len(d.b) > 0 {
		return fmt.Errorf("%d bytes too many", len(d.b))
	}
	return d.err
}

func (d *decoder) u32() uint32 { return uint32(d.atMost(1<<32 - 1)) }
func (d *decoder) u8() uint8   { return uint8(d.atMost(1<<8 - 1)) }

func (d *decoder) atMost(limit uint64) uint64 {
	n := d.u64()
	if n > limit {
		d.fail("a number too large")
		return 0
	}
	return n
}
