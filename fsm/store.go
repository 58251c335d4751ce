package fsm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	commandv1 "perdure/api/command/v1"
	"perdure/fsm/keys"
	"perdure/fsm/machine"
)

// format is the rung of Pebble's format ladder that state stores are made at. It goes up only on purpose.
const format = pebble.FormatValueSeparation

// Names of the store's own values, beside the machine's.
const (
	metaStamp   = "stamp"
	metaCovered = "covered"
)

// MissingError says that a state store which must be there is not.
type MissingError struct{ Dir string }

func (e *MissingError) Error() string { return fmt.Sprintf("fsm: state store %s is missing", e.Dir) }

// ExistsError says that a directory which was to be made holds a state store in use.
type ExistsError struct{ Dir string }

func (e *ExistsError) Error() string {
	return fmt.Sprintf("fsm: %s holds a state store already", e.Dir)
}

// ForeignError says that a store belongs to another cluster, server or partition.
type ForeignError struct {
	Dir        string
	Have, Want []byte
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("fsm: state store %s is stamped %q, this node expects %q: it belongs elsewhere", e.Dir, e.Have, e.Want)
}

// DamagedError says that a store could not be read as what it is.
type DamagedError struct {
	Dir string
	Err error
}

func (e *DamagedError) Error() string { return fmt.Sprintf("fsm: state store %s: %v", e.Dir, e.Err) }
func (e *DamagedError) Unwrap() error { return e.Err }

// Options of Open.
type Options struct {
	// FS is the file system; vfs.Default if nil.
	FS vfs.FS
	// Cache is the block cache shared by the node's stores; nil for one of 8 MiB.
	Cache *pebble.Cache
	// MemTableBytes is the size of one memtable; 16 MiB if 0. Two exist at most before writes wait.
	MemTableBytes uint64
	Machine       machine.Config
	// Create makes a new store and refuses one that has been stamped; without it a missing store is
	// refused. Stamp is what the store is marked with, and must match when it exists.
	Create bool
	Stamp  []byte
	Logger pebble.Logger
	// OnFatal is called when the store can no longer be trusted (a failed write, damage seen in the
	// background). It must not call the store. Required.
	OnFatal func(error)
}

// Store is the state of one partition. ApplyBatch, Restore and Close belong to one goroutine at a time
// (Raft's); everything else may be called beside them.
type Store struct {
	dir  string
	opts Options

	// mu guards db against being replaced or closed while it is read.
	mu     sync.RWMutex
	db     *pebble.DB
	closed bool

	machine *machine.Machine
	failed  error
}

// ErrClosed is what reads of a closed store answer.
var ErrClosed = errors.New("fsm: the state store is closed")

// Open opens a partition's state. Errors: *MissingError, *ExistsError, *ForeignError, *DamagedError.
func Open(dir string, opts Options) (*Store, error) {
	if opts.FS == nil {
		opts.FS = vfs.Default
	}
	if opts.MemTableBytes == 0 {
		opts.MemTableBytes = 16 << 20
	}
	s := &Store{dir: dir, opts: opts}
	exists := false
	if _, err := opts.FS.Stat(dir); err == nil {
		desc, err := pebble.Peek(dir, opts.FS)
		if err != nil {
			return nil, &DamagedError{dir, err}
		}
		exists = desc.Exists
	}
	if !exists && !opts.Create {
		return nil, &MissingError{dir}
	}
	db, err := s.openDB(dir)
	if err != nil {
		return nil, &DamagedError{dir, err}
	}
	if err := s.adopt(db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

func (s *Store) openDB(dir string) (*pebble.DB, error) {
	o := &pebble.Options{
		FS:                          s.opts.FS,
		Cache:                       s.opts.Cache,
		DisableWAL:                  true,
		FormatMajorVersion:          format,
		MemTableSize:                s.opts.MemTableBytes,
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       32,
		MaxOpenFiles:                512,
		Logger:                      s.opts.Logger,
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) { s.opts.OnFatal(&DamagedError{dir, err}) },
			DataCorruption: func(info pebble.DataCorruptionInfo) {
				s.opts.OnFatal(&DamagedError{dir, fmt.Errorf("damaged file %s: %w", info.Path, info.Details)})
			},
		},
	}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom
	}
	return pebble.Open(dir, o)
}

// adopt checks what was opened and makes it the store's.
func (s *Store) adopt(db *pebble.DB) error {
	key := keys.MetaKey(metaStamp)
	have, stamped, err := view{db}.Get(key)
	if err != nil {
		return &DamagedError{s.dir, err}
	}
	switch {
	case stamped && !bytes.Equal(have, s.opts.Stamp):
		return &ForeignError{s.dir, have, s.opts.Stamp}
	case stamped && s.opts.Create:
		return &ExistsError{s.dir}
	case !stamped && !s.opts.Create:
		return &DamagedError{s.dir, errors.New("the store was never finished: it has no stamp")}
	case !stamped:
		if err := db.Set(key, s.opts.Stamp, pebble.NoSync); err != nil {
			return &DamagedError{s.dir, err}
		}
		if err := db.Flush(); err != nil {
			return &DamagedError{s.dir, err}
		}
	}
	m, err := machine.New(s.opts.Machine, view{db})
	if err != nil {
		return &DamagedError{s.dir, err}
	}
	s.db, s.machine = db, m
	return nil
}

// Dir is where the store is.
func (s *Store) Dir() string { return s.dir }

// read runs fn on the database, which cannot go away meanwhile.
func (s *Store) read(fn func(db *pebble.DB) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return ErrClosed
	}
	return fn(s.db)
}

// View runs fn on a consistent state. It may run beside ApplyBatch.
func (s *Store) View(fn func(machine.Reader) error) error {
	return s.read(func(db *pebble.DB) error {
		snap := db.NewSnapshot()
		defer func() { _ = snap.Close() }()
		return fn(view{snap})
	})
}

// Query answers a read of the applied state, and the index it is of. now is unix milliseconds.
func (s *Store) Query(now int64, q *commandv1.Query) (reply *commandv1.QueryReply, index uint64, err error) {
	err = s.View(func(r machine.Reader) error {
		var err error
		if index, err = metaNumber(r, "applied"); err != nil {
			return err
		}
		reply, err = machine.Query(r, now, s.opts.Machine.Partition, q)
		return err
	})
	return reply, index, err
}

// Status is what a replica tells of its state.
type Status struct {
	// Applied is the index of the last entry applied, Covered the highest index that a snapshot marker
	// may stand for.
	Applied, Covered uint64
	// Checksum is over every mutation up to Applied; equal on every replica at the same index.
	Checksum uint64
	ClockMS  int64
}

// Status reads the store's own values.
func (s *Store) Status() (st Status, err error) {
	err = s.View(func(r machine.Reader) error {
		var errs [4]error
		var clock uint64
		st.Applied, errs[0] = metaNumber(r, "applied")
		st.Covered, errs[1] = metaNumber(r, metaCovered)
		st.Checksum, errs[2] = metaNumber(r, "checksum")
		clock, errs[3] = metaNumber(r, "clock")
		st.ClockMS = int64(clock)
		return errors.Join(errs[:]...)
	})
	return st, err
}

func metaNumber(r machine.Reader, name string) (uint64, error) {
	v, ok, err := r.Get(keys.MetaKey(name))
	if err != nil || !ok {
		return 0, err
	}
	if len(v) != 8 {
		return 0, &machine.CorruptError{What: "value " + name, Key: keys.MetaKey(name), Detail: fmt.Sprintf("%d bytes, not 8", len(v))}
	}
	return binary.BigEndian.Uint64(v), nil
}

// Cover makes the state durable and notes that it covers a snapshot's index, which counts entries the
// machine never sees. When it returns nil, Raft may cut its log up to index. It blocks on the disk.
func (s *Store) Cover(index uint64) error {
	return s.read(func(db *pebble.DB) error {
		covered, err := metaNumber(view{db}, metaCovered)
		if err != nil {
			return err
		}
		if index > covered {
			if err := db.Set(keys.MetaKey(metaCovered), binary.BigEndian.AppendUint64(nil, index), pebble.NoSync); err != nil {
				return err
			}
		}
		return db.Flush()
	})
}

// Flush makes everything applied so far durable. It blocks on the disk.
func (s *Store) Flush() error {
	return s.read(func(db *pebble.DB) error { return db.Flush() })
}

// Close flushes and closes the store. No ApplyBatch may be under way.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	// Close alone would throw the memtable away; replay would bring it back, but a clean stop should
	// not need one.
	err := s.db.Flush()
	return errors.Join(err, s.db.Close())
}

// Metrics shows Pebble's own figures.
func (s *Store) Metrics() (m *pebble.Metrics, err error) {
	err = s.read(func(db *pebble.DB) error {
		m = db.Metrics()
		return nil
	})
	return m, err
}
