package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"perdure/internal/fsync"
)

// The seal is a small file next to the backend's files. It records what the store is (backend, stamp) and its
// required content, because a backend alone cannot distinguish a damaged store from an older one: Pebble
// takes a broken MANIFEST record for the end of a cut write, starts from the version before it and deletes
// unknown files. A deleted write-ahead log leaves no trace. Bolt falls back to its older meta page.
//
//   - While the store is open (state live), floors: each group's log reaches at least to index n. The
//     floors rise with each of the backend's flushes, before it removes the write-ahead log behind them,
//     and are lowered before a truncation goes below them. Also the bytes the MANIFEST must begin with,
//     and the youngest write-ahead log.
//   - After Close (state clean), exact: each group's log is first..last, and there is no other group.
//
// The file is replaced by rename, so it is never half written. It cannot detect damage younger than itself in
// a store that was not closed: a last commit that a flipped bit cut short looks like one that a power failure
// cut short.
const (
	sealName    = "seal"
	sealMagic   = "PRDL"
	sealVersion = 1
	maxSeal     = 64 << 20
)

type sealState byte

const (
	sealCreating sealState = 1 // the backend's files are being made; they may be thrown away
	sealLive     sealState = 2
	sealClean    sealState = 3
)

// span is what a group's log holds, or in a live seal its floor (first is 0 then).
type span struct{ first, last uint64 }

// witness is what the backend's own files must show.
type witness struct {
	manifest string // file name; empty for a backend without one
	length   uint64 // of the part that was hashed
	hash     uint64
	wal      uint64 // number of the youngest write-ahead log, 0 for none
}

type sealData struct {
	state   sealState
	backend Backend
	stamp   []byte
	witness witness
	groups  map[uint32]span
}

func (d *sealData) clone() sealData {
	out := *d
	out.groups = make(map[uint32]span, len(d.groups))
	for g, s := range d.groups {
		out.groups[g] = s
	}
	return out
}

// encode writes
//
//	magic 4 | version 1 | state 1 | backend | stamp | manifest | length 8 | hash 8 | wal 8 |
//	count 4 | count x (group 4 | first 8 | last 8) | checksum 8
//
// where backend, stamp and manifest are a length of 4 bytes and that many bytes; integers big endian;
// groups ascending; xxhash64 over everything before it.
func (d *sealData) encode() []byte {
	b := append([]byte(sealMagic), sealVersion, byte(d.state))
	for _, f := range [][]byte{[]byte(d.backend), d.stamp, []byte(d.witness.manifest)} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(f)))
		b = append(b, f...)
	}
	for _, n := range []uint64{d.witness.length, d.witness.hash, d.witness.wal} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(d.groups)))
	for _, g := range sortedGroups(d.groups) {
		b = binary.BigEndian.AppendUint32(b, g)
		b = binary.BigEndian.AppendUint64(b, d.groups[g].first)
		b = binary.BigEndian.AppendUint64(b, d.groups[g].last)
	}
	return binary.BigEndian.AppendUint64(b, xxhash.Sum64(b))
}

func sortedGroups(m map[uint32]span) []uint32 {
	gs := make([]uint32, 0, len(m))
	for g := range m {
		gs = append(gs, g)
	}
	slices.Sort(gs)
	return gs
}

var errSealShort = errors.New("seal ends early")

func decodeSeal(b []byte) (*sealData, error) {
	if len(b) < 4+2+8 {
		return nil, errSealShort
	}
	body := b[:len(b)-8]
	if xxhash.Sum64(body) != binary.BigEndian.Uint64(b[len(body):]) {
		return nil, errChecksum
	}
	if string(body[:4]) != sealMagic {
		return nil, errors.New("not a seal")
	}
	if body[4] != sealVersion {
		return nil, fmt.Errorf("seal version %d, this program knows %d", body[4], sealVersion)
	}
	d := &sealData{state: sealState(body[5]), groups: map[uint32]span{}}
	if d.state < sealCreating || d.state > sealClean {
		return nil, fmt.Errorf("unknown state %d", d.state)
	}
	rest := body[6:]
	var fields [3][]byte
	for i := range fields {
		if len(rest) < 4 {
			return nil, errSealShort
		}
		n := binary.BigEndian.Uint32(rest)
		rest = rest[4:]
		if uint64(n) > uint64(len(rest)) {
			return nil, errSealShort
		}
		fields[i], rest = slices.Clone(rest[:n]), rest[n:]
	}
	d.backend, d.stamp, d.witness.manifest = Backend(fields[0]), fields[1], string(fields[2])
	if len(rest) < 3*8+4 {
		return nil, errSealShort
	}
	d.witness.length = binary.BigEndian.Uint64(rest)
	d.witness.hash = binary.BigEndian.Uint64(rest[8:])
	d.witness.wal = binary.BigEndian.Uint64(rest[16:])
	count := binary.BigEndian.Uint32(rest[24:])
	rest = rest[28:]
	if uint64(len(rest)) != uint64(count)*20 {
		return nil, fmt.Errorf("%d bytes for %d groups", len(rest), count)
	}
	for i := range count {
		g := binary.BigEndian.Uint32(rest)
		if i > 0 && g <= binary.BigEndian.Uint32(body[len(body)-len(rest)-20:]) {
			return nil, errors.New("groups out of order")
		}
		d.groups[g] = span{binary.BigEndian.Uint64(rest[4:]), binary.BigEndian.Uint64(rest[12:])}
		rest = rest[20:]
	}
	return d, nil
}

// seal is the file and its present content.
type seal struct {
	fs  vfs.FS
	dir string

	mu   sync.Mutex // held while the content is decided on and written
	data sealData
}

// readSeal returns nil if there is none.
func readSeal(fs vfs.FS, dir string) (*sealData, error) {
	b, err := readFile(fs, fs.PathJoin(dir, sealName))
	if err != nil {
		if notExist(err) {
			return nil, nil
		}
		return nil, err
	}
	d, err := decodeSeal(b)
	if err != nil {
		return nil, &CorruptError{Detail: sealName, Err: err}
	}
	return d, nil
}

func readFile(fs vfs.FS, path string) ([]byte, error) {
	f, err := fs.Open(path)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxSeal))
	return b, errors.Join(err, f.Close())
}

// change writes the seal that fn makes of the present one; fn returns false to leave it as it is.
func (s *seal) change(fn func(d *sealData) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.data.clone()
	if !fn(&d) {
		return nil
	}
	if err := s.write(&d); err != nil {
		return err
	}
	s.data = d
	return nil
}

func (s *seal) write(d *sealData) error {
	return fsync.WriteFile(s.fs, s.fs.PathJoin(s.dir, sealName), d.encode())
}
