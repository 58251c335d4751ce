package entity

import (
	"encoding/binary"

	"perdure/internal/canonical"
)

// The encodings are those of package canonical. The first byte of what is stored or sent on its own is the version
// of the layout. Form is checked here, the rules are not: a value that breaks one still decodes, so that it can be
// shown.
const layout byte = 1

// CorruptError reports that bytes are not the encoding of any value.
type CorruptError = canonical.CorruptError

func appendParty(b []byte, p Party) []byte {
	b = append(b, byte(p.Kind))
	b = canonical.AppendBytes(b, p.ID)
	return binary.AppendUvarint(b, p.Incarnation)
}

func appendSection(b []byte, s Section) []byte {
	b = appendParty(b, s.Holder)
	return canonical.AppendBytes(b, s.ID)
}

func appendIDs(b []byte, ids []ID) []byte {
	b = binary.AppendUvarint(b, uint64(len(ids)))
	for _, id := range ids {
		b = canonical.AppendBytes(b, id)
	}
	return b
}

// reader reads the values of this package.
type reader struct{ canonical.Reader }

func newReader(what string, b []byte) *reader { return &reader{canonical.NewReader("entity", what, b)} }

func (r *reader) layout() {
	if r.Byte() != layout {
		r.Fail(0, "unknown layout")
	}
}

func (r *reader) party() Party {
	start := r.Offset()
	p := Party{Kind: PartyKind(r.Byte()), ID: r.Text(), Incarnation: r.Uvarint()}
	if !r.Failed() && !p.Kind.Valid() {
		r.Fail(start, "unknown kind of party")
	}
	return p
}

func (r *reader) section() Section { return Section{Holder: r.party(), ID: r.Text()} }

func (r *reader) ids() []ID {
	n := r.Count(1)
	if n == 0 {
		return nil
	}
	ids := make([]ID, n)
	for i := range ids {
		ids[i] = ID(r.Text())
	}
	return ids
}
