package raftlog

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2"
	"github.com/hashicorp/raft"
	"pgregory.net/rapid"
)

func encodeAt(key []byte, l *raft.Log) []byte {
	b := make([]byte, encodedLen(l))
	encodeEntry(b, key, l)
	return b
}

func TestEntryBytes(t *testing.T) {
	// The bytes are a promise to stores that exist: change them only with the version.
	l := &raft.Log{Index: 258, Term: 3, Type: raft.LogConfiguration, Data: []byte("d"), Extensions: []byte("ex"),
		AppendedAt: time.Unix(1, 5)}
	got := encodeAt(entryKey(7, 258), l)
	want := []byte{1, 5, 3, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0x3b, 0x9a, 0xca, 5, 0, 0, 0, 2, 'e', 'x', 'd'}
	if !bytes.Equal(got[:len(got)-8], want) {
		t.Fatalf("%v\nwant %v", got[:len(got)-8], want)
	}
	if key := entryKey(7, 258); !bytes.Equal(key, []byte{1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 1, 2}) {
		t.Fatalf("key %v", key)
	}
}

func TestEntryRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &raft.Log{
			Index:      rapid.Uint64().Draw(t, "index"),
			Term:       rapid.Uint64().Draw(t, "term"),
			Type:       raft.LogType(rapid.Byte().Draw(t, "type")),
			Data:       rapid.SliceOf(rapid.Byte()).Draw(t, "data"),
			Extensions: rapid.SliceOf(rapid.Byte()).Draw(t, "ext"),
		}
		if rapid.Bool().Draw(t, "timed") {
			l.AppendedAt = time.Unix(0, rapid.Int64().Draw(t, "nanos"))
		}
		key := entryKey(rapid.Uint32().Draw(t, "group"), l.Index)
		b := encodeAt(key, l)
		var got raft.Log
		if err := decodeEntry(b, key, l.Index, &got); err != nil {
			t.Fatal(err)
		}
		if got.Index != l.Index || got.Term != l.Term || got.Type != l.Type || !bytes.Equal(got.Data, l.Data) ||
			!bytes.Equal(got.Extensions, l.Extensions) || !got.AppendedAt.Equal(l.AppendedAt) {
			t.Fatalf("%+v came back as %+v", l, got)
		}
		if !bytes.Equal(encodeAt(key, &got), b) {
			t.Fatal("same entry, other bytes")
		}
		// Not under another key, not with a byte changed, not with one missing.
		if decodeEntry(b, entryKey(1, l.Index+1), l.Index, &got) == nil {
			t.Fatal("accepted under another key")
		}
		at := rapid.IntRange(0, len(b)-1).Draw(t, "at")
		bad := bytes.Clone(b)
		bad[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if decodeEntry(bad, key, l.Index, &got) == nil {
			t.Fatalf("flipped byte %d accepted", at)
		}
		if decodeEntry(b[:at], key, l.Index, &got) == nil {
			t.Fatalf("cut to %d accepted", at)
		}
	})
}

func TestUnrepresentableTimes(t *testing.T) {
	for _, at := range []time.Time{{}, time.Date(1500, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2500, 1, 1, 0, 0, 0, 0, time.UTC)} {
		l := &raft.Log{Index: 1, AppendedAt: at}
		var got raft.Log
		if err := decodeEntry(encodeAt(entryKey(0, 1), l), entryKey(0, 1), 1, &got); err != nil || !got.AppendedAt.IsZero() {
			t.Errorf("%v came back as %v, %v", at, got.AppendedAt, err)
		}
	}
}

func FuzzDecodeEntry(f *testing.F) {
	key := entryKey(1, 2)
	for _, l := range []*raft.Log{{}, {Data: []byte("x")}, {Extensions: []byte("y"), AppendedAt: time.Unix(9, 9)}} {
		b := encodeAt(key, l)
		f.Add(b[:len(b)-8])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		// With the right checksum, so that what lies behind it is reached.
		b := binary.BigEndian.AppendUint64(bytes.Clone(body), checksum(key, body))
		var l raft.Log
		if decodeEntry(b, key, 2, &l) != nil {
			return
		}
		if !bytes.Equal(encodeAt(key, &l), b) {
			t.Fatalf("%x is accepted, but written as %x", b, encodeAt(key, &l))
		}
	})
}

func FuzzDecodeSeal(f *testing.F) {
	for _, d := range []sealData{
		{state: sealCreating, backend: BoltDB},
		{state: sealClean, backend: Pebble, stamp: []byte("s"), witness: witness{"MANIFEST-000001", 1, 2, 3},
			groups: map[uint32]span{1: {2, 3}, 4: {5, math.MaxUint64}}},
	} {
		b := d.encode()
		f.Add(b[:len(b)-8])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		b := sealed(body)
		d, err := decodeSeal(b)
		if err == nil && !bytes.Equal(d.encode(), b) {
			t.Fatalf("%x is accepted, but written as %x", b, d.encode())
		}
	})
}

// FuzzRecords must not panic on any file.
func FuzzRecords(f *testing.F) {
	f.Add([]byte{}, uint32(1), true)
	f.Add(walChunk(4, 9, promised(10, 1, 5)), uint32(4), true)
	f.Fuzz(func(t *testing.T, b []byte, number uint32, youngest bool) {
		_ = checkWAL(b, number, youngest)
		_, _ = checkManifest(b)
	})
}

// walChunk writes one chunk of a write-ahead log.
func walChunk(number uint32, kind byte, payload []byte) []byte {
	b := make([]byte, chunkHeadSync, chunkHeadSync+len(payload))
	binary.LittleEndian.PutUint16(b[4:], uint16(len(payload)))
	b[6] = kind
	binary.LittleEndian.PutUint32(b[7:], number)
	b = append(b, payload...)
	binary.LittleEndian.PutUint32(b, chunkChecksum(b[6:]))
	return b
}

// promised is the head of a batch.
func promised(seq uint64, count uint32, promise uint64) []byte {
	b := binary.LittleEndian.AppendUint64(nil, seq)
	b = binary.LittleEndian.AppendUint32(b, count)
	b = append(b, byte(pebble.InternalKeyKindLogData), promiseBytes)
	return binary.LittleEndian.AppendUint64(b, promise)
}

func TestCheckWAL(t *testing.T) {
	trailer := append([]byte{0, 0, 0, 0, 0, 0, 5}, 8, 0, 0, 0)
	rec := func(seq uint64, count uint32, promise uint64) []byte {
		return walChunk(7, 9, promised(seq, count, promise))
	}
	bad := func(b []byte) []byte {
		b = bytes.Clone(b)
		b[len(b)-1] ^= 4
		return b
	}
	cat := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for _, c := range []struct {
		name     string
		b        []byte
		youngest bool
		damaged  bool
	}{
		{"empty", nil, true, false},
		{"empty, older", nil, false, false},
		{"two records", cat(rec(10, 1, 0), rec(11, 1, 11)), true, false},
		{"closed", cat(rec(10, 1, 0), trailer), false, false},
		{"closed without trailer", cat(rec(10, 1, 0)), false, false},
		{"cut write", cat(rec(10, 1, 0), rec(11, 1, 11)[:20]), true, false},
		{"cut write in an older log", cat(rec(10, 1, 0), rec(11, 1, 11)[:20]), false, true},
		{"bad last record", cat(rec(10, 1, 0), bad(rec(11, 1, 11))), true, false},
		{"two writes under way, the first lost", cat(rec(10, 1, 0), bad(rec(11, 1, 11)), rec(12, 1, 11)), true, false},
		{"bad record, synced before the next", cat(rec(10, 1, 0), bad(rec(11, 1, 11)), rec(12, 1, 12)), true, true},
		{"the same, vouched for by a later one", cat(rec(10, 1, 0), bad(rec(11, 1, 11)), rec(12, 1, 11), rec(13, 1, 13)), true, true},
		{"bad first record", cat(bad(rec(10, 1, 0)), rec(11, 1, 11)), true, true},
		{"bad first record, unsynced", cat(bad(rec(10, 1, 0)), rec(11, 1, 10)), true, false},
		{"recycled file: older records follow", cat(rec(10, 1, 0), walChunk(6, 9, promised(5, 1, 5)), walChunk(6, 9, promised(6, 1, 9))), true, false},
		{"log number flipped", cat(rec(10, 1, 0), walChunk(8, 9, promised(11, 1, 11)), rec(12, 1, 12)), true, true},
		{"in two chunks, the second bad", cat(rec(10, 1, 0), walChunk(7, 10, promised(11, 3, 11)), bad(walChunk(7, 12, []byte("rest"))), rec(14, 1, 14)), true, true},
		{"in two chunks, head in both", cat(rec(10, 1, 0), walChunk(7, 10, promised(11, 3, 11)[:5]), walChunk(7, 12, promised(11, 3, 11)[5:]), rec(14, 1, 14)), true, false},
		{"other batches without a promise", cat(rec(10, 1, 0), bad(rec(11, 1, 0)), walChunk(7, 9, make([]byte, 40))), true, false},
	} {
		if err := checkWAL(c.b, 7, c.youngest); (err != nil) != c.damaged {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func sealed(body []byte) []byte {
	return binary.BigEndian.AppendUint64(bytes.Clone(body), xxhash.Sum64(body))
}

// TestReadAheadIsUsed: a forward run costs one scan per window, not one read per entry.
func TestReadAheadIsUsed(t *testing.T) {
	s := openMem(t)
	l := s.group(1)
	var logs []*raft.Log
	for i := uint64(1); i <= 2000; i++ {
		logs = append(logs, &raft.Log{Index: i, Term: 1, Data: []byte("x")})
	}
	if err := l.StoreLogs(logs); err != nil {
		t.Fatal(err)
	}
	count := &countingDriver{driver: s.drv}
	s.drv = count
	for i := uint64(1); i <= 2000; i++ {
		var out raft.Log
		if err := l.GetLog(i, &out); err != nil || out.Index != i {
			t.Fatalf("%d: %+v, %v", i, out, err)
		}
	}
	if count.gets != 1 || count.scans != 4 {
		t.Errorf("%d gets and %d scans for 2000 entries", count.gets, count.scans)
	}
	// Large entries: a window is bounded by bytes.
	big := &raft.Log{Index: 2001, Term: 1, Data: make([]byte, readAheadBytes/2)}
	logs = logs[:0]
	for i := uint64(2001); i <= 2010; i++ {
		e := *big
		e.Index = i
		logs = append(logs, &e)
	}
	if err := l.StoreLogs(logs); err != nil {
		t.Fatal(err)
	}
	for i := uint64(2001); i <= 2010; i++ {
		var out raft.Log
		if err := l.GetLog(i, &out); err != nil {
			t.Fatal(err)
		}
	}
	for i := range l.ahead.windows {
		if n := len(l.ahead.windows[i].logs); n > 2 {
			t.Errorf("a window holds %d entries of %d bytes", n, len(big.Data))
		}
	}
}

// TestLostEntry: an entry that is gone from within the log is damage, not "not found".
func TestLostEntry(t *testing.T) {
	s := openMem(t)
	l := s.group(1)
	for i := uint64(1); i <= 10; i++ {
		if err := l.StoreLog(&raft.Log{Index: i, Term: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.drv.deleteRange(1, 5, 5); err != nil {
		t.Fatal(err)
	}
	var out raft.Log
	for name, read := range map[string]func() error{
		"GetLog":            func() error { return l.GetLog(5, &out) },
		"GetLog, in a run":  func() error { return errors.Join(l.GetLog(4, &out), l.GetLog(5, &out)) },
		"Check":             func() error { return l.Check(context.Background(), 1) },
		"Check, from there": func() error { return l.Check(context.Background(), 5) },
		"Verify":            func() error { _, err := s.Verify(context.Background()); return err },
	} {
		var corrupt *CorruptError
		if err := read(); !errors.As(err, &corrupt) || corrupt.Group != 1 || corrupt.Index != 5 || corrupt.Store == "" {
			t.Errorf("%s: %v, want *CorruptError for group 1, index 5", name, err)
		}
	}
	if err := l.Check(context.Background(), 6); err != nil {
		t.Error(err)
	}
}
