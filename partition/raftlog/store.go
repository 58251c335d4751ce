package raftlog

import (
	"errors"
	"fmt"
	"os"
	"sort"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// Backend names a driver. The text is the configuration's value.
type Backend string

const (
	Pebble Backend = "pebble"
	BoltDB Backend = "boltdb"
)

// Options of Open. The zero value opens an existing Pebble store on the real file system.
type Options struct {
	// Backend is Pebble if empty. A directory made by one is refused by the other.
	Backend Backend

	// MustCreate makes a new store and refuses a directory that already holds one (ExistsError). A store
	// that was made but never stamped and holds no entry counts as not made: its maker crashed.
	// Without MustCreate nothing is ever created.
	MustCreate bool
	// MustExist refuses a directory without a store (MissingError). It is what Open does anyway when
	// MustCreate is not set; both together are refused.
	MustExist bool

	// FS is the file system, vfs.Default if nil. boltdb maps its files and works on the real one only.
	FS vfs.FS
	// Logger gets the backend's messages; nil for none.
	Logger hclog.Logger
	// Cache is the block cache to share with other Pebble stores; nil for one of 8 MiB.
	Cache *pebble.Cache
	// MemTableBytes is the size of one Pebble memtable, 64 MiB if 0. Up to four exist at once.
	MemTableBytes uint64

	// OnFatal is called once, with a *FatalError, when a write or sync fails. It must end the process
	// and should not return; it runs on the goroutine that was writing and must not call the store. If
	// it is nil, the message goes to the logger and to stderr and the process exits with 1. If it returns
	// (in a test), the write returns the error and so does everything after it.
	OnFatal func(error)
}

// Store is the log store of a node. All methods are safe for concurrent use.
type Store struct {
	dir     string
	backend Backend
	drv     driver
	log     hclog.Logger

	fatalOnce sync.Once
	onFatal   func(error)

	mu     sync.Mutex // guards what follows
	groups map[uint32]*groupLog
	failed error // *FatalError, or ErrClosed
}

// Open opens the store in dir. It blocks for as long as the backend needs to replay its write-ahead log.
// Errors: *MissingError, *ExistsError, *CorruptError, or what the file system said.
func Open(dir string, opts Options) (*Store, error) {
	if opts.MustCreate && opts.MustExist {
		return nil, fmt.Errorf("raftlog: store %s: MustCreate and MustExist exclude each other", dir)
	}
	if opts.Logger == nil {
		opts.Logger = hclog.NewNullLogger()
	}
	if opts.FS == nil {
		opts.FS = vfs.Default
	}
	s := &Store{
		dir:     dir,
		backend: opts.Backend,
		log:     opts.Logger,
		onFatal: opts.OnFatal,
		groups:  map[uint32]*groupLog{},
	}
	if s.onFatal == nil {
		s.onFatal = func(err error) {
			s.log.Error("ending the process", "error", err)
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	var err error
	switch opts.Backend {
	case Pebble, "":
		s.backend = Pebble
		s.drv, err = openPebble(dir, opts, s.fatal)
	case BoltDB:
		s.drv, err = openBolt(dir, opts, s.fatal)
	default:
		err = fmt.Errorf("raftlog: unknown backend %q (%s or %s)", opts.Backend, Pebble, BoltDB)
	}
	if err != nil {
		return nil, s.named(err)
	}
	return s, nil
}

// Backend says which driver the store runs on.
func (s *Store) Backend() Backend { return s.backend }

// Dir is the store's directory.
func (s *Store) Dir() string { return s.dir }

// Group returns the log of one group; the same value for the same number. It touches no file: errors
// come from the log's methods.
func (s *Store) Group(g uint32) Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	gl := s.groups[g]
	if gl == nil {
		gl = &groupLog{store: s, group: g}
		s.groups[g] = gl
	}
	return gl
}

// Groups lists the groups whose log is not empty, ascending.
func (s *Store) Groups() ([]uint32, error) {
	if err := s.err(); err != nil {
		return nil, err
	}
	gs, err := s.drv.groups()
	if err != nil {
		return nil, s.named(err)
	}
	sort.Slice(gs, func(i, j int) bool { return gs[i] < gs[j] })
	return gs, nil
}

// DropGroup removes the whole log of a group, durably, for a group this node no longer serves. No Raft
// instance may be using it.
func (s *Store) DropGroup(g uint32) error {
	gl := s.Group(g).(*groupLog)
	return gl.drop()
}

// Stamp returns what SetStamp stored; false if the store was never stamped.
func (s *Store) Stamp() ([]byte, bool) {
	if s.err() != nil {
		return nil, false
	}
	b, err := s.drv.stamp()
	return b, err == nil && b != nil
}

// SetStamp stores the caller's mark (cluster id and server id), durably. An empty stamp is refused.
func (s *Store) SetStamp(b []byte) error {
	if len(b) == 0 {
		return fmt.Errorf("raftlog: store %s: empty stamp", s.dir)
	}
	if err := s.err(); err != nil {
		return err
	}
	return s.wrote(s.drv.setStamp(b))
}

// Close releases the store. It does not wait for Raft instances: shut them down first.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.failed == ErrClosed {
		s.mu.Unlock()
		return nil
	}
	s.failed = ErrClosed
	s.mu.Unlock()
	return s.named(s.drv.close())
}

// err is why the store no longer answers, nil while it does.
func (s *Store) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// wrote passes on the result of a write; a failure that is not damage is the end.
func (s *Store) wrote(err error) error {
	if err == nil {
		return nil
	}
	var corrupt *CorruptError
	if errors.As(err, &corrupt) {
		return s.named(err)
	}
	return s.fatal(err)
}

// fatal ends the process, or (when OnFatal returns) the store.
func (s *Store) fatal(err error) error {
	fe := &FatalError{Store: s.dir, Err: err}
	s.mu.Lock()
	if s.failed == nil {
		s.failed = fe
	}
	s.mu.Unlock()
	s.fatalOnce.Do(func() { s.onFatal(fe) })
	return fe
}

// named puts the store's directory into an error that does not know it.
func (s *Store) named(err error) error {
	var corrupt *CorruptError
	if errors.As(err, &corrupt) && corrupt.Store == "" {
		corrupt.Store = s.dir
	}
	return err
}

// Log is the log of one group, as Raft wants it.
type Log interface {
	raft.LogStore
	raft.MonotonicLogStore
}
