package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/cespare/xxhash/v2"
	"github.com/hashicorp/raft"
)

// Origin says which kind of content a marker refers to.
type Origin uint8

const (
	Local    Origin = 1 // the group's own state, which covers the index
	Received Origin = 2 // content from another node, committed to the directory that the caller gave
)

func (o Origin) String() string {
	switch o {
	case Local:
		return "local"
	case Received:
		return "received"
	}
	return fmt.Sprintf("origin %d", uint8(o))
}

// Marker is one snapshot. Size is the number of bytes received, 0 for a local one.
type Marker struct {
	raft.SnapshotMeta
	Origin Origin
	// Seq numbers the markers of a group in the order they were begun, and is never used twice. ID is
	// made of it, so a directory for received content may be named by ID.
	Seq uint64
}

func markerID(index, term, seq uint64) string { return fmt.Sprintf("%d-%d-%d", term, index, seq) }

// A marker file is
//
//	magic "PRDS" | version 1 | origin 1 | group 4 | seq 8 | snapshot version 1 | index 8 | term 8 |
//	size 8 | configuration index 8 | server count 4 | count x (suffrage 1 | id | address) | checksum 8
//
// where id and address are a length of 4 bytes and that many bytes; integers big endian; xxhash64 over
// everything before it.
const (
	markerMagic   = "PRDS"
	markerVersion = 1
	markerHead    = 4 + 1 + 1 + 4 + 8 + 1 + 8 + 8 + 8 + 8 + 4
	maxMarker     = 1 << 20
)

func encodeMarker(group uint32, m *Marker) []byte {
	b := make([]byte, 0, markerHead+64*len(m.Configuration.Servers)+8)
	b = append(b, markerMagic...)
	b = append(b, markerVersion, byte(m.Origin))
	b = binary.BigEndian.AppendUint32(b, group)
	b = binary.BigEndian.AppendUint64(b, m.Seq)
	b = append(b, byte(m.Version))
	b = binary.BigEndian.AppendUint64(b, m.Index)
	b = binary.BigEndian.AppendUint64(b, m.Term)
	b = binary.BigEndian.AppendUint64(b, uint64(m.Size))
	b = binary.BigEndian.AppendUint64(b, m.ConfigurationIndex)
	b = binary.BigEndian.AppendUint32(b, uint32(len(m.Configuration.Servers)))
	for _, s := range m.Configuration.Servers {
		b = append(b, byte(s.Suffrage))
		b = binary.BigEndian.AppendUint32(b, uint32(len(s.ID)))
		b = append(b, s.ID...)
		b = binary.BigEndian.AppendUint32(b, uint32(len(s.Address)))
		b = append(b, s.Address...)
	}
	return binary.BigEndian.AppendUint64(b, xxhash.Sum64(b))
}

var errShort = errors.New("file ends early")

// decodeMarker reads what encodeMarker wrote, and refuses every other byte string.
func decodeMarker(group uint32, b []byte) (Marker, error) {
	if len(b) < markerHead+8 {
		return Marker{}, errShort
	}
	body := b[:len(b)-8]
	if xxhash.Sum64(body) != binary.BigEndian.Uint64(b[len(body):]) {
		return Marker{}, errors.New("checksum mismatch")
	}
	if string(b[:4]) != markerMagic {
		return Marker{}, errors.New("not a marker")
	}
	if b[4] != markerVersion {
		return Marker{}, fmt.Errorf("marker version %d, this program knows %d", b[4], markerVersion)
	}
	if g := binary.BigEndian.Uint32(b[6:]); g != group {
		return Marker{}, fmt.Errorf("marker of group %d", g)
	}
	size := binary.BigEndian.Uint64(b[35:])
	if size > math.MaxInt64 {
		return Marker{}, fmt.Errorf("marker size %d exceeds %d", size, int64(math.MaxInt64))
	}
	m := Marker{
		Origin: Origin(b[5]),
		Seq:    binary.BigEndian.Uint64(b[10:]),
		SnapshotMeta: raft.SnapshotMeta{
			Version:            raft.SnapshotVersion(b[18]),
			Index:              binary.BigEndian.Uint64(b[19:]),
			Term:               binary.BigEndian.Uint64(b[27:]),
			Size:               int64(size),
			ConfigurationIndex: binary.BigEndian.Uint64(b[43:]),
		},
	}
	if m.Origin != Local && m.Origin != Received {
		return Marker{}, fmt.Errorf("unknown %s", m.Origin)
	}
	count := binary.BigEndian.Uint32(b[51:])
	rest := body[markerHead:]
	field := func() (string, error) {
		if len(rest) < 4 {
			return "", errShort
		}
		n := binary.BigEndian.Uint32(rest)
		rest = rest[4:]
		if uint64(n) > uint64(len(rest)) {
			return "", errShort
		}
		s := string(rest[:n])
		rest = rest[n:]
		return s, nil
	}
	for range count {
		if len(rest) < 1 {
			return Marker{}, errShort
		}
		s := raft.Server{Suffrage: raft.ServerSuffrage(rest[0])}
		rest = rest[1:]
		id, err := field()
		if err != nil {
			return Marker{}, err
		}
		addr, err := field()
		if err != nil {
			return Marker{}, err
		}
		s.ID, s.Address = raft.ServerID(id), raft.ServerAddress(addr)
		m.Configuration.Servers = append(m.Configuration.Servers, s)
	}
	if len(rest) != 0 {
		return Marker{}, fmt.Errorf("%d bytes after the last server", len(rest))
	}
	m.ID = markerID(m.Index, m.Term, m.Seq)
	return m, nil
}
