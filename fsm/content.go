package fsm

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/internal/fsync"
)

// The content of a snapshot is every key of one consistent state, except the store's own values (its stamp,
// and what it received itself):
//
//	magic "PRDC" 1 | count x (key length 4 | value length 4 | key | value) | 0xffffffff | xxhash64 8
//
// The checksum covers everything before it.
const (
	contentMagic = "PRDC\x01"
	contentEnd   = 0xffffffff
	maxContentKV = 64 << 20
)

// WriteContent writes a consistent view of the present state to w and returns the number of bytes. It may run
// concurrently with ApplyBatch.
func (s *Store) WriteContent(w io.Writer) (size int64, err error) {
	err = s.snapshot(func(r state.Reader) error {
		c := &contentWriter{w: bufio.NewWriterSize(w, 1<<20), sum: xxhash.New()}
		c.bytes([]byte(contentMagic))
		stamp, received := string(keys.MetaKey(metaStamp)), string(keys.MetaKey(metaReceived))
		if err := r.Scan(nil, nil, func(key, value []byte) bool {
			if k := string(key); k != stamp && k != received {
				c.number(uint32(len(key)))
				c.number(uint32(len(value)))
				c.bytes(key)
				c.bytes(value)
			}
			return c.err == nil
		}); err != nil {
			return err
		}
		c.number(contentEnd)
		c.bytes(binary.BigEndian.AppendUint64(nil, c.sum.Sum64()))
		if c.err == nil {
			c.err = c.w.Flush()
		}
		size = c.size
		return c.err
	})
	return size, err
}

type contentWriter struct {
	w    *bufio.Writer
	sum  hash.Hash64
	size int64
	err  error
}

func (c *contentWriter) bytes(b []byte) {
	if c.err != nil {
		return
	}
	_, _ = c.sum.Write(b)
	_, c.err = c.w.Write(b)
	c.size += int64(len(b))
}

func (c *contentWriter) number(n uint32) { c.bytes(binary.BigEndian.AppendUint32(nil, n)) }

// restore builds a new store from content in a second directory, then renames it into place. A crash leaves
// the old state or the new one. Unusable content leaves the present state in use; a failure during the
// exchange halts the store.
func (s *Store) restore(content io.Reader) error {
	if err := s.failed(); err != nil {
		return err
	}
	fs, incoming, retired := s.opts.FS, s.dir+".incoming", s.dir+".retired"
	if err := errors.Join(fs.RemoveAll(incoming), fs.RemoveAll(retired)); err != nil {
		return err
	}
	db, err := s.openDB(incoming, false)
	if err != nil {
		return err
	}
	err = readContent(db, content)
	if err == nil {
		err = s.claim(db)
	}
	if err == nil {
		err = s.flush(db)
	}
	if err = errors.Join(err, db.Close()); err != nil {
		return errors.Join(&DamagedError{s.dir, fmt.Errorf("snapshot content: %w", err)}, fs.RemoveAll(incoming))
	}
	s.auditWaiters.add(1)
	defer s.auditWaiters.add(-1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.pending.take()
	defer s.pending.release()
	if err := s.exchange(incoming, retired); err != nil {
		// The store has no database now, or one whose durability is unknown.
		s.fail(err)
		return err
	}
	return fs.RemoveAll(retired)
}

// claim stamps a database that was filled from content as this store's own.
func (s *Store) claim(db *pebble.DB) error {
	applied, err := state.MetaNumber(view{db}, state.MetaApplied)
	if err != nil {
		return err
	}
	if err := db.Set(keys.MetaKey(metaReceived), binary.BigEndian.AppendUint64(nil, applied), pebble.NoSync); err != nil {
		return err
	}
	return db.Set(keys.MetaKey(metaStamp), s.opts.Stamp, pebble.NoSync)
}

// exchange replaces the present store by a new one. The caller holds mu. After an error the store is closed.
func (s *Store) exchange(incoming, retired string) error {
	fs := s.opts.FS
	s.closed = true
	if err := s.db.Close(); err != nil {
		return s.damaged(err)
	}
	if err := fs.Rename(s.dir, retired); err != nil {
		return err
	}
	if err := fs.Rename(incoming, s.dir); err != nil {
		return err
	}
	if err := fsync.SyncDir(fs, fs.PathDir(s.dir)); err != nil {
		return err
	}
	db, err := s.openDB(s.dir, false)
	if err != nil {
		return s.damaged(err)
	}
	s.opts.Create = false
	if err := s.adopt(db); err != nil {
		return errors.Join(err, db.Close())
	}
	s.closed = false
	return nil
}

// Recover finishes or undoes an exchange of stores that a crash interrupted. Call it before Open.
func Recover(fs vfs.FS, dir string) error {
	if fs == nil {
		fs = vfs.Default
	}
	if _, err := fs.Stat(dir); err != nil {
		// The crash came after the old store was moved away and before the new one was moved into place: the
		// new one is complete.
		if _, err := fs.Stat(dir + ".incoming"); err == nil {
			if _, err := fs.Stat(dir + ".retired"); err == nil {
				if err := errors.Join(fs.Rename(dir+".incoming", dir), fsync.SyncDir(fs, fs.PathDir(dir))); err != nil {
					return err
				}
			}
		}
	}
	return errors.Join(fs.RemoveAll(dir+".incoming"), fs.RemoveAll(dir+".retired"))
}

func readContent(db *pebble.DB, content io.Reader) error {
	r := bufio.NewReaderSize(content, 1<<20)
	sum := xxhash.New()
	read := func(n int) ([]byte, error) {
		b := make([]byte, n)
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, err
		}
		_, _ = sum.Write(b)
		return b, nil
	}
	magic, err := read(len(contentMagic))
	if err != nil {
		return err
	}
	if string(magic) != contentMagic {
		return errors.New("not a snapshot of this kind")
	}
	batch := db.NewBatch()
	flush := func() error {
		err := batch.Commit(pebble.NoSync)
		err = errors.Join(err, batch.Close())
		batch = db.NewBatch()
		return err
	}
	for {
		n, err := read(4)
		if err != nil {
			return err
		}
		keyLen := binary.BigEndian.Uint32(n)
		if keyLen == contentEnd {
			want := sum.Sum64()
			var last [8]byte
			if _, err := io.ReadFull(r, last[:]); err != nil {
				return err
			}
			if binary.BigEndian.Uint64(last[:]) != want {
				return errors.New("checksum mismatch")
			}
			err := batch.Commit(pebble.NoSync)
			return errors.Join(err, batch.Close())
		}
		if n, err = read(4); err != nil {
			return err
		}
		valueLen := binary.BigEndian.Uint32(n)
		if keyLen > maxContentKV || valueLen > maxContentKV {
			return fmt.Errorf("key of %d bytes or value of %d bytes exceeds %d", keyLen, valueLen, maxContentKV)
		}
		key, err := read(int(keyLen))
		if err != nil {
			return err
		}
		value, err := read(int(valueLen))
		if err != nil {
			return err
		}
		if err := batch.Set(key, value, nil); err != nil {
			return err
		}
		if batch.Len() > 4<<20 {
			if err := flush(); err != nil {
				return err
			}
		}
	}
}
