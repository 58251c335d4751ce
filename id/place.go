package id

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Slots is the fixed number of placement slots. Partitions own slots; an identifier never changes its
// slot, so moving load means moving slots.
const Slots = 16384

// Origin returns everything before the first ':' of any identifier, native or foreign: the part that decides
// the identifier's slot. A text without ':' is its own origin.
func Origin(text string) string {
	origin, _, _ := strings.Cut(text, ":")
	return origin
}

// Slot returns the slot of an identifier: xxhash64 of the namespace, a zero byte and the origin,
// modulo Slots. A whole call tree shares one slot. It does not allocate.
func Slot(namespace, id string) uint16 {
	var d xxhash.Digest
	d.Reset()
	d.WriteString(namespace)
	d.Write(zero[:])
	d.WriteString(Origin(id))
	return uint16(d.Sum64() % Slots)
}

var zero [1]byte

// SpreadRoot returns the root of a child execution that is placed apart from its parent: the hex
// SHA-256 of (component digest recorded at the parent's start, parent id, idempotency key), each
// preceded by its length as a uvarint, so that no two triples share an encoding. Starting the same
// child twice names the same execution.
func SpreadRoot(digest, parent, key string) string {
	buf := make([]byte, 0, len(digest)+len(parent)+len(key)+3*binary.MaxVarintLen64)
	for _, part := range [...]string{digest, parent, key} {
		buf = binary.AppendUvarint(buf, uint64(len(part)))
		buf = append(buf, part...)
	}
	sum := sha256.Sum256(buf)
	return hex.EncodeToString(sum[:])
}
