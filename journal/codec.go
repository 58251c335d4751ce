package journal

import (
	"encoding/binary"
	"math"
	"strconv"

	"perdure/id"
)

// The stored form of an entry: the kind byte, the sequence number as a uvarint, the time as a zigzag
// varint, then the event's fields in the order of its struct. Unsigned fields are uvarints, times and
// durations zigzag varints, texts and payloads a uvarint length and the bytes. One entry has exactly one
// encoding, and decoding accepts that one only, so equal journals are equal bytes on every replica.

// CorruptError reports that stored bytes are not an entry. It is never the caller's mistake: the bytes were
// damaged or made by something else.
type CorruptError struct {
	// Offset is where in the bytes reading stopped.
	Offset int
	// Kind is the entry's kind byte, 0 if there was none.
	Kind Kind
	// Detail says what was found there.
	Detail string
}

// Error names the kind, the offset and what is wrong.
func (e *CorruptError) Error() string {
	return "journal: corrupt entry: " + e.Kind.String() + " at byte " + strconv.Itoa(e.Offset) + ": " + e.Detail
}

// AppendEntry appends the canonical encoding of e to dst and returns the result. DecodeEntry can read back
// every entry that a State has accepted, but not necessarily others (a malformed identifier, an unknown kind
// of wait). e.Event must not be nil.
func AppendEntry(dst []byte, e Entry) []byte {
	dst = append(dst, byte(e.Event.Kind()))
	dst = binary.AppendUvarint(dst, e.Seq)
	dst = binary.AppendVarint(dst, e.Time)
	return e.Event.encode(dst)
}

// DecodeEntry reads one entry, which must fill data exactly. The entry keeps no reference to data. The
// error is a *CorruptError.
func DecodeEntry(data []byte) (Entry, error) {
	d := &decoder{data: data}
	d.kind = Kind(d.byte())
	if d.err == nil && !d.kind.Valid() {
		d.fail("unknown kind of event")
	}
	entry := Entry{Seq: d.uvarint(), Time: d.varint()}
	if d.err == nil {
		entry.Event = kinds[d.kind].decode(d)
	}
	if d.err == nil && d.off != len(data) {
		d.fail(strconv.Itoa(len(data)-d.off) + " trailing bytes")
	}
	if d.err != nil {
		return Entry{}, d.err
	}
	return entry, nil
}

// KindOf reads the kind of an encoded entry, and nothing else of it. The error is a *CorruptError.
func KindOf(data []byte) (Kind, error) {
	d := &decoder{data: data}
	if d.kind = Kind(d.byte()); d.err == nil && !d.kind.Valid() {
		d.fail("unknown kind of event")
	}
	if d.err != nil {
		return 0, d.err
	}
	return d.kind, nil
}

func appendBytes(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

func appendText[T ~string](dst []byte, s T) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func appendNumber[T ~uint32 | ~uint64](dst []byte, n T) []byte {
	return binary.AppendUvarint(dst, uint64(n))
}

func appendTime(dst []byte, ms int64) []byte { return binary.AppendVarint(dst, ms) }

// decoder reads fields one after the other. After the first error every read yields zero, so an event's
// decode function needs no checks of its own.
type decoder struct {
	data []byte
	off  int
	kind Kind
	err  *CorruptError
}

func (d *decoder) fail(detail string) {
	if d.err == nil {
		d.err = &CorruptError{Offset: d.off, Kind: d.kind, Detail: detail}
	}
}

func (d *decoder) byte() byte {
	if d.err != nil || d.off >= len(d.data) {
		d.fail("unexpected end")
		return 0
	}
	b := d.data[d.off]
	d.off++
	return b
}

func (d *decoder) uvarint() uint64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Uvarint(d.data[d.off:])
	switch {
	case n == 0:
		d.fail("unexpected end in a number")
		return 0
	case n < 0:
		d.fail("number above 64 bits")
		return 0
	case n > 1 && d.data[d.off+n-1] == 0:
		d.fail("number not in its shortest form")
		return 0
	}
	d.off += n
	return v
}

func (d *decoder) varint() int64 {
	u := d.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

func (d *decoder) uint32() uint32 {
	v := d.uvarint()
	if v > math.MaxUint32 {
		d.fail("number above 32 bits")
		return 0
	}
	return uint32(v)
}

// span reads a length and returns that many bytes of the input itself.
func (d *decoder) span() []byte {
	n := d.uvarint()
	if d.err != nil {
		return nil
	}
	if n > uint64(len(d.data)-d.off) {
		d.fail("length " + num(n) + " beyond the end")
		return nil
	}
	b := d.data[d.off : d.off+int(n)]
	d.off += int(n)
	return b
}

func (d *decoder) bytes() []byte {
	b := d.span()
	if len(b) == 0 {
		return nil
	}
	return append([]byte(nil), b...)
}

func (d *decoder) text() string { return string(d.span()) }

func (d *decoder) promise() id.PromiseID {
	text := d.text()
	if d.err != nil {
		return ""
	}
	p, err := id.Parse(text)
	if err != nil {
		d.fail(err.Error())
	}
	return p
}

// optionalPromise reads an identifier that may be absent, as the empty text.
func (d *decoder) optionalPromise() id.PromiseID {
	if d.err == nil && d.off < len(d.data) && d.data[d.off] == 0 {
		d.off++
		return ""
	}
	return d.promise()
}
