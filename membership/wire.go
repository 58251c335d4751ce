package membership

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

// The form of a member in gossip, version 1. Later versions append; a reader ignores unknown bytes at the
// end, and refuses another version byte.
//
//	byte     version, 1
//	byte     flags
//	8 ×      byte length, text: in the order of Member.texts
//	uint32   Partitions          (all numbers big-endian)
//	uint32   BootstrapExpect
//	uint64   Epoch
//	byte     length of the bitmap, then its bytes: bit p%8 of byte p/8 is partition p
const (
	metaVersion = 1
	metaBytes   = 512 // memberlist's limit; above it, memberlist panics
	metaTexts   = 8
	metaFixed   = 1 + 1 + metaTexts + 4 + 4 + 8 + 1 + MaxPartitions/8
)

// flagLeaving says that the instance is about to stop on purpose. memberlist's listeners cannot distinguish a
// node that left from one that died.
const flagLeaving = 1 << 0

// encodeMeta encodes m, which check has accepted and whose Leads are ascending. Equal members have equal
// bytes.
func encodeMeta(m Member, flags byte) []byte {
	b := make([]byte, 0, metaBytes)
	b = append(b, metaVersion, flags)
	for _, t := range m.texts() {
		b = append(b, byte(len(*t.text)))
		b = append(b, *t.text...)
	}
	b = binary.BigEndian.AppendUint32(b, m.Partitions)
	b = binary.BigEndian.AppendUint32(b, m.BootstrapExpect)
	b = binary.BigEndian.AppendUint64(b, m.Epoch)
	var bits [MaxPartitions / 8]byte
	n := 0
	for _, p := range m.Leads {
		bits[p/8] |= 1 << (p % 8)
		n = int(p/8) + 1
	}
	b = append(b, byte(n))
	return append(b, bits[:n]...)
}

// decodeMeta reads what encodeMeta wrote; ServerID and GossipAddr are left to the caller. It keeps nothing
// of b.
func decodeMeta(b []byte) (m Member, flags byte, err error) {
	if len(b) < 2 || b[0] != metaVersion {
		return Member{}, 0, fmt.Errorf("membership: a member's description of %d bytes is not of version %d", len(b), metaVersion)
	}
	short := func() (Member, byte, error) {
		return Member{}, 0, fmt.Errorf("membership: a member's description ends after %d bytes", len(b))
	}
	flags, rest := b[1], b[2:]
	for _, t := range m.texts() {
		if len(rest) < 1 || len(rest) < 1+int(rest[0]) {
			return short()
		}
		*t.text, rest = string(rest[1:1+rest[0]]), rest[1+int(rest[0]):]
	}
	if len(rest) < 17 || len(rest) < 17+int(rest[16]) || rest[16] > MaxPartitions/8 {
		return short()
	}
	m.Partitions = binary.BigEndian.Uint32(rest)
	m.BootstrapExpect = binary.BigEndian.Uint32(rest[4:])
	m.Epoch = binary.BigEndian.Uint64(rest[8:])
	for i, bits := range rest[17 : 17+int(rest[16])] {
		for bit := range 8 {
			if bits&(1<<bit) != 0 {
				m.Leads = append(m.Leads, uint32(i*8+bit))
			}
		}
	}
	return m, flags, nil
}

// An instance's name in memberlist is SERVER~MARK. The mark is 24 hex digits: when the instance was started
// (nanoseconds), then chance; so marks compare in the order of starts as strings.
const markBytes = 12

func instanceName(server string, started int64, chance uint32) string {
	var mark [markBytes]byte
	binary.BigEndian.PutUint64(mark[:], uint64(started))
	binary.BigEndian.PutUint32(mark[8:], chance)
	return server + "~" + hex.EncodeToString(mark[:])
}

// splitName undoes instanceName; ok is false if name is none.
func splitName(name string) (server, mark string, ok bool) {
	at := strings.LastIndexByte(name, '~')
	if at < 1 || at > MaxServerIDBytes || len(name)-at-1 != 2*markBytes {
		return "", "", false
	}
	if _, err := hex.DecodeString(name[at+1:]); err != nil {
		return "", "", false
	}
	return name[:at], name[at+1:], true
}
