package canonical

import (
	"encoding/binary"
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// TestRoundTrip: a reader returns what was appended and finds the end.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u, i := rapid.Uint64().Draw(t, "u"), rapid.Int64().Draw(t, "i")
		text, flag := rapid.String().Draw(t, "text"), rapid.Bool().Draw(t, "flag")
		b := AppendBool(AppendBytes(binary.AppendVarint(binary.AppendUvarint(nil, u), i), text), flag)
		r := NewReader("p", "value", b)
		if r.Uvarint() != u || r.Varint() != i || r.Text() != text || r.Bool() != flag {
			t.Errorf("%x does not give back %d, %d, %q, %t", b, u, i, text, flag)
		}
		if err := r.End(); err != nil {
			t.Error(err)
		}
	})
}

// TestFaults: each malformed input is refused at the byte of its first fault.
func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		b    []byte
		read func(r *Reader)
		at   int
	}{
		"empty":               {nil, func(r *Reader) { r.Byte() }, 0},
		"flag of 2":           {[]byte{2}, func(r *Reader) { r.Bool() }, 0},
		"integer cut short":   {[]byte{0x80}, func(r *Reader) { r.Uvarint() }, 1},
		"integer too long":    {[]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, func(r *Reader) { r.Uvarint() }, 0},
		"integer padded":      {[]byte{7, 0x81, 0}, func(r *Reader) { r.Byte(); r.Varint() }, 1},
		"length past the end": {[]byte{2, 'a'}, func(r *Reader) { r.Bytes() }, 0},
		"count past the end":  {[]byte{3, 1, 2, 3}, func(r *Reader) { r.Count(2) }, 0},
		"bytes after the end": {[]byte{1, 2}, func(r *Reader) { r.Byte() }, 1},
	} {
		r := NewReader("p", "value", c.b)
		c.read(&r)
		err := r.End()
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) || corrupt.Offset != c.at || corrupt.What != "value" || !r.Failed() {
			t.Errorf("%s: %v, must be at byte %d", name, err, c.at)
		}
	}
}
