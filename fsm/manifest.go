package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A state store's MANIFEST lists the files of the state. Pebble (v2.1.7) takes a record with a wrong checksum
// for a write that a crash has cut short. It then opens the state before that record and deletes the files of
// later ones. But Pebble syncs each record before it writes the next, so only the last one can be cut short;
// a bad record before another is damage.
//
// The file is blocks of 32 KiB, a block is chunks, and a record is one chunk or several:
//
//	checksum 4 | length 2 | kind 1 (1 whole record, 2 first, 3 middle, 4 last chunk of one) | content
//
// in little endian. The checksum is over kind and content. No chunk crosses a block's end; where none fits
// the rest of the block is zero.
const (
	manifestBlock = 32 << 10
	chunkHead     = 4 + 2 + 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// chunkEnd returns the offset behind the chunk at offset at, and whether the chunk begins a record; ok is
// false when no sound chunk is there.
func chunkEnd(b []byte, at int) (end int, begins, ok bool) {
	block := min((at/manifestBlock+1)*manifestBlock, len(b))
	if at+chunkHead > block {
		return 0, false, false
	}
	kind := b[at+6]
	end = at + chunkHead + int(binary.LittleEndian.Uint16(b[at+4:]))
	if kind < 1 || kind > 4 || end > block {
		return 0, false, false
	}
	// The checksum is stored rotated and with a constant added, as LevelDB does it.
	c := crc32.Checksum(b[at+6:end], castagnoli)
	if binary.LittleEndian.Uint32(b[at:]) != (c>>15|c<<17)+0xa282ead8 {
		return 0, false, false
	}
	return end, kind <= 2, true
}

// checkRecords refuses a MANIFEST in which a sound record follows one that is not.
func checkRecords(b []byte) error {
	at := 0
	for at < len(b) {
		end, _, ok := chunkEnd(b, at)
		if !ok {
			// The writer leaves a rest empty that is smaller than a chunk head.
			if left := manifestBlock - at%manifestBlock; left < chunkHead && at+left < len(b) {
				at += left
				continue
			}
			break
		}
		at = end
	}
	for later := at + 1; later+chunkHead <= len(b); later++ {
		if _, begins, ok := chunkEnd(b, later); ok && begins {
			return fmt.Errorf("the record at offset %d is damaged, one at %d follows it", at, later)
		}
	}
	return nil
}

// checkManifest reads a MANIFEST and checks its records.
func checkManifest(fs vfs.FS, path string) error {
	f, err := fs.Open(path)
	if err != nil {
		return err
	}
	b, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := checkRecords(b); err != nil {
		return fmt.Errorf("%s: %w", fs.PathBase(path), err)
	}
	return nil
}
