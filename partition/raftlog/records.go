package raftlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"
)

// Pebble's MANIFEST and write-ahead logs are files of records. A record with a wrong checksum may be the end
// of the last write before a crash, or damage. Pebble (v2.1.7) assumes the former too often. In a write-ahead
// log it searches for a later chunk that promises the bad one was synced, but only from the next block on.
// The promises are too small, because they do not count full blocks. It takes a flipped log number for an
// orderly end. In the MANIFEST it does not search. So acknowledged entries would be lost silently. The
// functions here check the files before Pebble opens them.
//
// For this, each batch begins with a promise of its own: the sequence number below which everything was
// synced when the batch was made. The promise has the form of Pebble's log data, which reaches only the
// write-ahead log. A bad record that a later one promises is damage. Only the last acknowledged record, with
// no write after it, has no promise.
//
// A file is blocks of 32 KiB; a chunk lies within one block:
//
//	checksum 4 | length 2 | type 1 | [log number 4 | [synced offset 8]] | payload
//
// little endian; types 1 to 4 have neither bracket (MANIFEST), 5 to 8 the first, 9 to 12 both; within each
// four: whole record, first, middle, last chunk of one. The checksum covers everything from the type on.
const (
	blockBytes = 32 << 10

	chunkHeadPlain = 7
	chunkHeadLog   = chunkHeadPlain + 4
	chunkHeadSync  = chunkHeadLog + 8

	chunkWhole = 1 // of the types 1 to 4
	chunkFirst = 2

	// A record of a write-ahead log is a batch: sequence number 8, count 4, then operations. The first
	// one is the promise: kind, length, number.
	batchHead    = 8 + 4
	promiseBytes = 8
	recordHead   = batchHead + 1 + 1 + promiseBytes
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func chunkChecksum(b []byte) uint32 {
	c := crc32.Checksum(b, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

// chunk is one valid chunk.
type chunk struct {
	kind    byte   // the type
	log     uint32 // types 5 and up
	payload []byte
	next    int // offset behind it
}

// part is 0 for a whole record, 1, 2, 3 for the first, a middle and the last chunk of one.
func (c *chunk) part() byte { return (c.kind - 1) % 4 }

// chunkAt reads the chunk at offset o; false if there is no valid one.
func chunkAt(b []byte, o int) (chunk, bool) {
	block := min(len(b), (o/blockBytes+1)*blockBytes)
	if o+chunkHeadPlain > block {
		return chunk{}, false
	}
	c := chunk{kind: b[o+6]}
	head := chunkHeadPlain
	switch {
	case c.kind == 0 || c.kind > 12:
		return chunk{}, false
	case c.kind > 8:
		head = chunkHeadSync
	case c.kind > 4:
		head = chunkHeadLog
	}
	c.next = o + head + int(binary.LittleEndian.Uint16(b[o+4:]))
	if c.next > block || chunkChecksum(b[o+6:c.next]) != binary.LittleEndian.Uint32(b[o:]) {
		return chunk{}, false
	}
	if head >= chunkHeadLog {
		c.log = binary.LittleEndian.Uint32(b[o+7:])
	}
	c.payload = b[o+head : c.next]
	return c, true
}

// skipFill returns where the chunk after o begins: the writer leaves the rest of a block zero when no chunk
// fits in it.
func skipFill(b []byte, o int) int {
	if left := blockBytes - o%blockBytes; left < chunkHeadSync && o+left <= len(b) &&
		len(bytes.Trim(b[o:o+left], "\x00")) == 0 {
		return o + left
	}
	return o
}

// checkManifest refuses a MANIFEST with a bad record before a good one. Each record is synced before the next
// is written, so only the last one can be a write that was cut short. It returns the number of the oldest log
// that is still needed: the content of older ones is flushed, and Pebble will remove or overwrite them.
func checkManifest(b []byte) (oldestLog uint64, err error) {
	end := 0
	for {
		end = skipFill(b, end)
		c, ok := chunkAt(b, end)
		if !ok || c.kind > 4 {
			break
		}
		if k := c.kind; k == chunkWhole || k == chunkFirst {
			if n, ok := logNumberOf(c.payload); ok {
				oldestLog = max(oldestLog, n)
			}
		}
		end = c.next
	}
	for o := end + 1; o+chunkHeadPlain <= len(b); o++ {
		if k := b[o+6]; k != chunkWhole && k != chunkFirst {
			continue
		}
		if _, ok := chunkAt(b, o); ok {
			return 0, fmt.Errorf("record at %d is damaged, one at %d follows", end, o)
		}
	}
	return oldestLog, nil
}

// logNumberOf reads the oldest log number that a record of the MANIFEST sets. It is the record's first field,
// or the second after the comparer's name.
func logNumberOf(record []byte) (uint64, bool) {
	const tagComparer, tagLogNumber = 1, 2
	tag, n := binary.Uvarint(record)
	if n > 0 && tag == tagComparer {
		size, m := binary.Uvarint(record[n:])
		if m <= 0 || size > uint64(len(record)-n-m) {
			return 0, false
		}
		record = record[n+m+int(size):]
		tag, n = binary.Uvarint(record)
	}
	if n <= 0 || tag != tagLogNumber {
		return 0, false
	}
	number, m := binary.Uvarint(record[n:])
	return number, m > 0
}

// walRecord is a record of a write-ahead log: one batch.
type walRecord struct {
	seq, count uint64
	promise    uint64
	promised   bool
	next       int // offset behind it
}

// recordAt reads the record at offset o of the log with that number. With whole it is false if any of its
// chunks is bad; without, only what holds its head must be good, and next is not set.
func recordAt(b []byte, o int, number uint32, whole bool) (walRecord, bool) {
	var head []byte
	for first := true; ; first = false {
		o = skipFill(b, o)
		c, ok := chunkAt(b, o)
		ok = ok && c.kind > 4 && c.log == number && (c.part() <= 1) == first
		if !ok && (whole || first) {
			return walRecord{}, false
		}
		if !ok {
			break
		}
		if n := recordHead - len(head); n > 0 {
			head = append(head, c.payload[:min(n, len(c.payload))]...)
		}
		o = c.next
		if c.part() == 0 || c.part() == 3 || (!whole && len(head) == recordHead) {
			break
		}
	}
	if len(head) < batchHead {
		return walRecord{}, false
	}
	r := walRecord{
		seq:   binary.LittleEndian.Uint64(head),
		count: uint64(binary.LittleEndian.Uint32(head[8:])),
		next:  o,
	}
	if len(head) == recordHead && head[batchHead] == byte(pebble.InternalKeyKindLogData) && head[batchHead+1] == promiseBytes {
		r.promise, r.promised = binary.LittleEndian.Uint64(head[batchHead+2:]), true
	}
	return r, true
}

// trailerAt recognises what the writer leaves at the end of a log it closes: a chunk head without checksum
// and payload, and with the next log number.
func trailerAt(b []byte, o int, number uint32) bool {
	if o+chunkHeadLog > len(b) {
		return false
	}
	var want [chunkHeadLog]byte
	want[6] = 5
	binary.LittleEndian.PutUint32(want[7:], number+1)
	return bytes.Equal(b[o:o+chunkHeadLog], want[:])
}

// checkWAL refuses the write-ahead log of that number if a record in it is bad that was synced. The youngest
// log may end in a write that was cut short; the others were closed, with a trailer.
func checkWAL(b []byte, number uint32, youngest bool) error {
	// end is where the good part ends, and next the sequence number of the record there, if known.
	var end int
	var next uint64
	var known bool
	for {
		r, ok := recordAt(b, end, number, true)
		if !ok {
			break
		}
		end, next, known = r.next, r.seq+r.count, true
	}
	end = skipFill(b, end)
	if !youngest && end != len(b) && !trailerAt(b, end, number) {
		return fmt.Errorf("record at %d is damaged, the log was closed after it", end)
	}
	var mark [4]byte
	binary.LittleEndian.PutUint32(mark[:], number)
	for at := end + 1 + chunkHeadPlain; at < len(b); at++ {
		n := bytes.Index(b[at:], mark[:])
		if n < 0 {
			break
		}
		at += n
		r, ok := recordAt(b, at-chunkHeadPlain, number, false)
		if ok && r.promised && ((known && r.promise > next) || (!known && r.promise >= r.seq)) {
			return fmt.Errorf("record at %d is damaged, it was synced before the one at %d", end, at-chunkHeadPlain)
		}
	}
	return nil
}

// checkRecordFiles checks the MANIFEST and the write-ahead logs of a Pebble store that is not open.
func checkRecordFiles(fs vfs.FS, dir string) error {
	desc, err := pebble.Peek(dir, fs)
	if err != nil {
		return &CorruptError{Detail: "the store's markers", Err: err}
	}
	if !desc.Exists {
		return &CorruptError{Detail: "the store's files are gone"}
	}
	name := fs.PathBase(desc.ManifestFilename)
	b, err := readWhole(fs, fs.PathJoin(dir, name))
	var oldestLog uint64
	if err == nil {
		oldestLog, err = checkManifest(b)
	}
	if err != nil {
		return &CorruptError{Detail: name, Err: err}
	}
	logs, err := wal.Scan(wal.Dir{FS: fs, Dirname: dir})
	if err != nil {
		return err
	}
	for n, l := range logs {
		if uint64(l.Num) < oldestLog {
			continue
		}
		for i := range l.NumSegments() {
			segFS, path := l.SegmentLocation(i)
			b, err := readWhole(segFS, path)
			if err == nil {
				err = checkWAL(b, uint32(l.Num), n == len(logs)-1)
			}
			if err != nil {
				return &CorruptError{Detail: fs.PathBase(path), Err: err}
			}
		}
	}
	return nil
}

func readWhole(fs vfs.FS, path string) ([]byte, error) {
	f, err := fs.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	b := make([]byte, info.Size())
	n, err := f.ReadAt(b, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b[:n], errors.Join(err, f.Close())
}
