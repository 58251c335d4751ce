package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/hashicorp/raft"
)

// MaxEntryBytes bounds the data and extensions of one entry. It only keeps a length from wrapping; what
// may be proposed is bounded far lower by the layers above.
const MaxEntryBytes = 1 << 30

// An entry is stored as
//
//	version 1 | type 1 | flags 1 | term 8 | [appended-at 8] | [ext-len 4, extensions] | data | checksum 8
//
// integers big endian, and the checksum (xxhash64) over the key and all bytes before it, so an entry
// found under another key is noticed. Every field has one possible form, so the same entry always gives
// the same bytes. Index is the key's.
//
// AppendedAt is stored as Unix nanoseconds (UTC, without its monotonic part): Raft uses it to report the age
// of the oldest entry. A zero or unrepresentable time is stored as absent. Empty data and empty extensions
// read back as nil.
const (
	entryVersion  = 1
	entryMinBytes = 1 + 1 + 1 + 8 + 8

	flagAppendedAt = 1 << 0
	flagExtensions = 1 << 1
	flagsKnown     = flagAppendedAt | flagExtensions
)

// Key families of the Pebble store. Numbers never change.
const familyEntry = 0x01 // familyEntry, group 4, index 8: one entry

const entryKeyLen = 1 + 4 + 8

func putEntryKey(b []byte, group uint32, index uint64) {
	b[0] = familyEntry
	binary.BigEndian.PutUint32(b[1:], group)
	binary.BigEndian.PutUint64(b[5:], index)
}

func entryKey(group uint32, index uint64) []byte {
	b := make([]byte, entryKeyLen)
	putEntryKey(b, group, index)
	return b
}

func parseEntryKey(k []byte) (group uint32, index uint64, ok bool) {
	if len(k) != entryKeyLen || k[0] != familyEntry {
		return 0, 0, false
	}
	return binary.BigEndian.Uint32(k[1:]), binary.BigEndian.Uint64(k[5:]), true
}

// appendedAt is the stored form of l.AppendedAt; ok is false when it is absent.
func appendedAt(l *raft.Log) (nanos int64, ok bool) {
	if l.AppendedAt.IsZero() {
		return 0, false
	}
	nanos = l.AppendedAt.UnixNano()
	if !time.Unix(0, nanos).Equal(l.AppendedAt) {
		return 0, false // outside the years 1678 to 2262
	}
	return nanos, true
}

// encodedLen is the number of bytes encodeEntry writes for l.
func encodedLen(l *raft.Log) int {
	n := entryMinBytes + len(l.Data)
	if _, ok := appendedAt(l); ok {
		n += 8
	}
	if len(l.Extensions) > 0 {
		n += 4 + len(l.Extensions)
	}
	return n
}

// encodeEntry writes l into b, which has encodedLen(l) bytes. key is where it will be stored.
func encodeEntry(b, key []byte, l *raft.Log) {
	b[0] = entryVersion
	b[1] = byte(l.Type)
	binary.BigEndian.PutUint64(b[3:], l.Term)
	n, flags := 11, byte(0)
	if nanos, ok := appendedAt(l); ok {
		flags |= flagAppendedAt
		binary.BigEndian.PutUint64(b[n:], uint64(nanos))
		n += 8
	}
	if len(l.Extensions) > 0 {
		flags |= flagExtensions
		binary.BigEndian.PutUint32(b[n:], uint32(len(l.Extensions)))
		n += 4
		n += copy(b[n:], l.Extensions)
	}
	b[2] = flags
	n += copy(b[n:], l.Data)
	binary.BigEndian.PutUint64(b[n:], checksum(key, b[:n]))
}

func checksum(key, body []byte) uint64 {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.Write(key)
	_, _ = d.Write(body)
	return d.Sum64()
}

var errChecksum = errors.New("checksum mismatch")

// decodeEntry reads what encodeEntry wrote under key. The result shares no memory with b. It refuses
// every byte string that encodeEntry cannot have written.
func decodeEntry(b, key []byte, index uint64, l *raft.Log) error {
	if len(b) < entryMinBytes {
		return fmt.Errorf("entry of %d bytes, at least %d expected", len(b), entryMinBytes)
	}
	body := b[:len(b)-8]
	if checksum(key, body) != binary.BigEndian.Uint64(b[len(body):]) {
		return errChecksum
	}
	if b[0] != entryVersion {
		return fmt.Errorf("entry version %d, this program knows %d", b[0], entryVersion)
	}
	flags := b[2]
	if flags&^byte(flagsKnown) != 0 {
		return fmt.Errorf("unknown entry flags %#x", flags)
	}
	out := raft.Log{Index: index, Type: raft.LogType(b[1]), Term: binary.BigEndian.Uint64(b[3:])}
	rest := body[11:]
	if flags&flagAppendedAt != 0 {
		if len(rest) < 8 {
			return errors.New("entry ends within its time")
		}
		t := time.Unix(0, int64(binary.BigEndian.Uint64(rest))).UTC()
		out.AppendedAt, rest = t, rest[8:]
	}
	if flags&flagExtensions != 0 {
		if len(rest) < 4 {
			return errors.New("entry ends within its extensions")
		}
		n := uint64(binary.BigEndian.Uint32(rest))
		rest = rest[4:]
		if n == 0 || n > uint64(len(rest)) {
			return fmt.Errorf("extensions of %d bytes in %d", n, len(rest))
		}
		out.Extensions, rest = append([]byte(nil), rest[:n]...), rest[n:]
	}
	if len(rest) > 0 {
		out.Data = append([]byte(nil), rest...)
	}
	*l = out
	return nil
}
