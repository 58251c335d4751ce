package raftlog

import (
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"

	"perdure/internal/fsync"
)

func notExist(err error) bool { return errors.Is(err, iofs.ErrNotExist) }

// manifestReader hashes the MANIFEST of a Pebble store, which only grows until it is replaced by one with
// another name; so each check reads only the new bytes.
type manifestReader struct {
	fs  vfs.FS
	dir string // of the Pebble store

	mu     sync.Mutex
	name   string
	length uint64
	hash   xxhash.Digest
}

// read returns the present manifest's name, length and hash, and the youngest write-ahead log.
func (m *manifestReader) read() (witness, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	desc, err := pebble.Peek(m.dir, m.fs)
	if err != nil {
		return witness{}, err
	}
	name := m.fs.PathBase(desc.ManifestFilename)
	if name != m.name {
		m.name, m.length = name, 0
		m.hash.Reset()
	}
	n, err := hashFrom(m.fs, m.fs.PathJoin(m.dir, name), m.length, ^uint64(0), &m.hash, true)
	m.length += n
	if err != nil {
		return witness{}, err
	}
	w := witness{manifest: name, length: m.length, hash: m.hash.Sum64()}
	if w.wal, err = youngestWAL(m.fs, m.dir); err != nil {
		return witness{}, err
	}
	// Pebble may be between writing and syncing. The seal's demands must not depend on this.
	return w, fsync.SyncDir(m.fs, m.dir)
}

// hashFrom adds at most max bytes of the file, from offset on, to h and returns how many there were. With
// sync they are on disk when it returns.
func hashFrom(fs vfs.FS, path string, offset, max uint64, h *xxhash.Digest, sync bool) (uint64, error) {
	f, err := fs.Open(path)
	if err != nil {
		return 0, err
	}
	var n uint64
	buf := make([]byte, 64<<10)
	for n < max {
		want := min(uint64(len(buf)), max-n)
		k, err := f.ReadAt(buf[:want], int64(offset+n))
		_, _ = h.Write(buf[:k])
		n += uint64(k)
		if errors.Is(err, io.EOF) || (err == nil && k == 0) {
			break
		}
		if err != nil {
			return n, errors.Join(err, f.Close())
		}
	}
	if sync {
		if err := f.Sync(); err != nil {
			return n, errors.Join(err, f.Close())
		}
	}
	return n, f.Close()
}

func youngestWAL(fs vfs.FS, dir string) (uint64, error) {
	logs, err := wal.Scan(wal.Dir{FS: fs, Dirname: dir})
	if err != nil || len(logs) == 0 {
		return 0, err
	}
	return uint64(logs[len(logs)-1].Num), nil
}

// check compares a Pebble store that is not open with what its seal saw.
func (w *witness) check(fs vfs.FS, dir string, clean bool) error {
	if w.manifest == "" {
		return nil
	}
	desc, err := pebble.Peek(dir, fs)
	if err != nil {
		return &CorruptError{Detail: "the store's markers", Err: err}
	}
	if !desc.Exists {
		return &CorruptError{Detail: "the store's files are gone"}
	}
	switch name := fs.PathBase(desc.ManifestFilename); {
	case name == w.manifest:
		var h xxhash.Digest
		h.Reset()
		limit := w.length
		if clean {
			limit++ // nothing may have been added
		}
		n, err := hashFrom(fs, fs.PathJoin(dir, name), 0, limit, &h, false)
		if err != nil {
			return &CorruptError{Detail: name, Err: err}
		}
		if n != w.length {
			return &CorruptError{Detail: fmt.Sprintf("%s has %d bytes, %d were sealed", name, n, w.length)}
		}
		if h.Sum64() != w.hash {
			return &CorruptError{Detail: name, Err: errChecksum}
		}
	case clean || !youngerManifest(name, w.manifest):
		return &CorruptError{Detail: fmt.Sprintf("the store points to %s, %s was sealed", name, w.manifest)}
	}
	young, err := youngestWAL(fs, dir)
	if err != nil || young >= w.wal {
		return err
	}
	// While a store opens, the log of before is removed as soon as a flush has made it superfluous, and the
	// next one may not be there yet.
	name := fs.PathBase(desc.ManifestFilename)
	b, err := readWhole(fs, fs.PathJoin(dir, name))
	var oldest uint64
	if err == nil {
		oldest, err = checkManifest(b)
	}
	if err != nil {
		return &CorruptError{Detail: name, Err: err}
	}
	if clean || w.wal >= oldest {
		return &CorruptError{Detail: fmt.Sprintf("write-ahead log %06d is missing", w.wal)}
	}
	return nil
}

// youngerManifest compares names of the form MANIFEST-000123.
func youngerManifest(a, b string) bool {
	a, b = strings.TrimPrefix(a, "MANIFEST-"), strings.TrimPrefix(b, "MANIFEST-")
	if len(a) != len(b) {
		return len(a) > len(b)
	}
	return a > b
}
