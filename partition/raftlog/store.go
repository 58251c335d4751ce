package raftlog

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/go-hclog"

	"perdure/internal/clock"
	"perdure/internal/fsync"
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
	// Clock times syncs and the seal; the machine's if nil.
	Clock clock.Clock
	// Logger gets the backend's messages; nil for none.
	Logger hclog.Logger
	// Cache is the block cache to share with other Pebble stores; nil for one of 8 MiB.
	Cache *pebble.Cache
	// MemTableBytes is the size of one Pebble memtable, 64 MiB if 0. Two exist at most before writes wait.
	MemTableBytes uint64

	// OnSync is called after entries were stored durably, with how long the backend took to write and sync
	// them, waiting for other groups' writes that share the sync included; for StoreUnsynced, until AwaitSync
	// noticed. It must not block. Nil for none.
	OnSync func(time.Duration)

	// OnFatal is called once, with a *FatalError, when a write or sync fails. It must end the process
	// and should not return; it runs on the goroutine that was writing and must not call the store. If
	// it is nil, the message goes to the logger and to stderr and the process exits with 1. If it returns
	// (in a test), the write returns the error and so does everything after it.
	OnFatal func(error)

	// Insist repeats a write that failed for lack of space, before any part of it was stored, until it does
	// not fail so; its string names the store. It may block. Pebble writes through FS, which must do this
	// itself, as package disk does. Nil: one try.
	Insist func(what string, write func() error) error
}

// sealEvery bounds how often the seal follows the backend's flushes and compactions.
const sealEvery = time.Second

// Store is the log store of a node. All methods are safe for concurrent use.
type Store struct {
	dir     string
	backend Backend
	drv     driver
	clock   clock.Clock
	log     hclog.Logger
	seal    *seal
	lock    interface{ Close() error }

	fatalOnce sync.Once
	onFatal   func(error)
	onSync    func(time.Duration) // may be nil
	insist    func(string, func() error) error

	// closeMu is held shared by every operation that uses drv, and exclusively by Close.
	closeMu sync.RWMutex

	made     atomic.Bool // the store's making is complete
	sealDue  chan struct{}
	sealStop chan struct{}
	sealDone chan struct{}

	mu     sync.Mutex // guards what follows
	groups map[uint32]*groupLog
	failed error // *FatalError, or ErrClosed
}

// Open opens the store in dir. It blocks for as long as the backend needs to replay its write-ahead log.
// Errors: *MissingError, *ExistsError, *CorruptError, or what the file system said. A refused store may
// have been replayed, but no acknowledged entry was removed from it.
func Open(dir string, opts Options) (*Store, error) {
	if opts.MustCreate && opts.MustExist {
		return nil, fmt.Errorf("raftlog: store %s: MustCreate and MustExist exclude each other", dir)
	}
	if opts.Backend == "" {
		opts.Backend = Pebble
	}
	if opts.Backend != Pebble && opts.Backend != BoltDB {
		return nil, fmt.Errorf("raftlog: unknown backend %q (%s or %s)", opts.Backend, Pebble, BoltDB)
	}
	if opts.Logger == nil {
		opts.Logger = hclog.NewNullLogger()
	}
	if opts.FS == nil {
		opts.FS = vfs.Default
	}
	if opts.Clock == nil {
		opts.Clock = clock.System{}
	}
	s := &Store{
		dir:      dir,
		clock:    opts.Clock,
		backend:  opts.Backend,
		log:      opts.Logger,
		seal:     &seal{fs: opts.FS, dir: dir},
		onFatal:  opts.OnFatal,
		onSync:   opts.OnSync,
		insist:   opts.Insist,
		groups:   map[uint32]*groupLog{},
		sealDue:  make(chan struct{}, 1),
		sealStop: make(chan struct{}),
		sealDone: make(chan struct{}),
	}
	if s.onFatal == nil {
		s.onFatal = func(err error) {
			s.log.Error("process ends after a failed write", "event", "raft_log_failed", "error", err)
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if s.insist == nil || s.backend == Pebble {
		s.insist = func(_ string, write func() error) error { return write() }
	}
	if err := s.open(opts); err != nil {
		if s.drv != nil {
			_ = s.drv.close()
		}
		if s.lock != nil {
			_ = s.lock.Close()
		}
		return nil, s.named(err)
	}
	go s.sealLoop()
	return s, nil
}

func (s *Store) open(opts Options) (err error) {
	fs := opts.FS
	if opts.MustCreate {
		if err := fsync.MakeDir(fs, s.dir); err != nil {
			return err
		}
	} else if _, err := fs.Stat(s.dir); notExist(err) {
		return &MissingError{Store: s.dir, Detail: "no such directory"}
	}
	if s.lock, err = fs.Lock(fs.PathJoin(s.dir, "lock")); err != nil {
		return fmt.Errorf("raftlog: store %s is in use: %w", s.dir, err)
	}
	old, err := readSeal(fs, s.dir)
	if err != nil {
		return err
	}
	fresh, err := s.checkSeal(old, opts)
	if err != nil {
		return err
	}
	if fresh {
		// First the intention, so that what a crash leaves is known to be worthless.
		s.seal.data = sealData{state: sealCreating, backend: s.backend}
		if err := s.seal.change(func(*sealData) bool { return true }); err != nil {
			return err
		}
	} else {
		s.seal.data = old.clone()
		if err := old.witness.check(fs, s.dbDir(fs), old.state == sealClean); err != nil {
			return err
		}
		if s.backend == Pebble {
			if err := checkRecordFiles(fs, s.dbDir(fs)); err != nil {
				return err
			}
		}
		// The backend changes its files when it opens. A seal that knows them exactly must not outlive that.
		if err := s.seal.change(func(d *sealData) bool {
			d.state = sealLive
			for g, sp := range d.groups {
				d.groups[g] = span{last: sp.last}
			}
			return old.state == sealClean
		}); err != nil {
			return err
		}
	}
	hooks := hooks{fatal: s.fatal, changed: s.sealSoon, flushed: s.sealFlushed, register: s.register}
	if s.backend == Pebble {
		s.drv, err = openPebble(s.dbDir(fs), opts, fresh, hooks)
	} else {
		s.drv, err = openBolt(s.dbDir(fs), opts, fresh, s.seal.data.groups, hooks)
	}
	if err != nil {
		return err
	}
	if !fresh {
		if err := s.compare(old); err != nil {
			// Back to the stricter seal, so that the next start refuses for the same reason.
			return errors.Join(err, s.seal.change(func(d *sealData) bool { *d = old.clone(); return true }))
		}
		if opts.MustCreate {
			spans, err := s.spans()
			if err != nil {
				return err
			}
			for g, sp := range spans {
				if sp.last != 0 {
					return &ExistsError{Store: s.dir, Detail: fmt.Sprintf("group %d holds entries", g)}
				}
			}
		}
	}
	// From here on the floors in memory are those of every group.
	if _, err := s.spans(); err != nil {
		return err
	}
	s.made.Store(true)
	return s.reseal()
}

// dbDir is where the backend's files are.
func (s *Store) dbDir(fs vfs.FS) string { return fs.PathJoin(s.dir, "db") }

// checkSeal decides from the seal alone whether to create the store (fresh), open it, or refuse it.
func (s *Store) checkSeal(old *sealData, opts Options) (fresh bool, err error) {
	fs := opts.FS
	_, statErr := fs.Stat(s.dbDir(fs))
	files := statErr == nil
	switch {
	case old == nil && files:
		return false, &CorruptError{Detail: "there are files, but no seal"}
	case old == nil && opts.MustCreate:
		return true, nil
	case old == nil:
		return false, &MissingError{Store: s.dir, Detail: "no store was made here"}
	case old.state == sealCreating && opts.MustCreate:
		return true, fs.RemoveAll(s.dbDir(fs))
	case old.state == sealCreating:
		return false, &MissingError{Store: s.dir, Detail: "its creation was not finished"}
	case old.backend != s.backend:
		return false, &BackendError{Store: s.dir, Made: old.backend, Asked: s.backend}
	case !files:
		return false, &CorruptError{Detail: "the store's files are gone"}
	case opts.MustCreate && len(old.stamp) > 0:
		return false, &ExistsError{Store: s.dir, Detail: "it is stamped"}
	}
	return false, nil
}

// compare checks the groups' logs against the seal.
func (s *Store) compare(old *sealData) error {
	gs, err := s.drv.groups()
	if err != nil {
		return err
	}
	for g := range old.groups {
		if !slices.Contains(gs, g) {
			gs = append(gs, g)
		}
	}
	for _, g := range gs {
		first, last, err := s.drv.bounds(g)
		if err != nil {
			return err
		}
		want, sealed := old.groups[g]
		damage := &CorruptError{Group: g, HasGroup: true}
		switch {
		case old.state == sealClean && (want != span{first, last}):
			damage.Detail = fmt.Sprintf("the log is %d..%d, it was closed as %d..%d", first, last, want.first, want.last)
			return damage
		case sealed && last < want.last:
			damage.Detail = fmt.Sprintf("the log ends at %d, it reached %d", last, want.last)
			return damage
		}
		// The ends must be readable; the middle is for Check and Verify.
		for _, index := range []uint64{first, last} {
			if index == 0 {
				continue
			}
			if err := s.group(g).checkOne(index); err != nil {
				return err
			}
		}
	}
	return nil
}

// Backend says which driver the store runs on.
func (s *Store) Backend() Backend { return s.backend }

// Dir is the store's directory.
func (s *Store) Dir() string { return s.dir }

// Group returns the log of one group; the same value for the same number. It touches no file: errors
// come from the log's methods.
func (s *Store) Group(g uint32) Log { return s.group(g) }

func (s *Store) group(g uint32) *groupLog {
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
	s.closeMu.RLock()
	defer s.closeMu.RUnlock()
	spans, err := s.spans()
	if err != nil {
		return nil, s.named(err)
	}
	var gs []uint32
	for _, g := range sortedGroups(spans) {
		if spans[g].last != 0 {
			gs = append(gs, g)
		}
	}
	return gs, nil
}

// spans returns the bounds of every group the backend has. The caller holds closeMu.
func (s *Store) spans() (map[uint32]span, error) {
	if err := s.err(); err != nil {
		return nil, err
	}
	gs, err := s.drv.groups()
	if err != nil {
		return nil, err
	}
	out := make(map[uint32]span, len(gs))
	for _, g := range gs {
		first, last, err := s.group(g).bounds()
		if err != nil {
			return nil, err
		}
		out[g] = span{first, last}
	}
	return out, nil
}

// DropGroup removes the whole log of a group, durably, for a group this node no longer serves. No Raft
// instance may be using it.
func (s *Store) DropGroup(g uint32) error {
	s.closeMu.RLock()
	defer s.closeMu.RUnlock()
	if err := s.err(); err != nil {
		return err
	}
	l := s.group(g)
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if err := l.AwaitSync(^uint64(0)); err != nil {
		return err
	}
	l.hide(0, 0)
	return s.wrote(s.drv.drop(g, func() error {
		return s.seal.change(func(d *sealData) bool {
			_, ok := d.groups[g]
			delete(d.groups, g)
			return ok
		})
	}))
}

// Stamp returns what SetStamp stored; false if the store was never stamped.
func (s *Store) Stamp() ([]byte, bool) {
	s.seal.mu.Lock()
	defer s.seal.mu.Unlock()
	return slices.Clone(s.seal.data.stamp), len(s.seal.data.stamp) > 0
}

// SetStamp stores the caller's mark (cluster id and server id), durably. An empty stamp is refused.
func (s *Store) SetStamp(b []byte) error {
	if len(b) == 0 {
		return fmt.Errorf("raftlog: store %s: empty stamp", s.dir)
	}
	s.closeMu.RLock()
	defer s.closeMu.RUnlock()
	if err := s.err(); err != nil {
		return err
	}
	return s.wrote(s.seal.change(func(d *sealData) bool {
		d.stamp = slices.Clone(b)
		return true
	}))
}

// Close releases the store, after what is under way has ended. It does not wait for Raft instances: shut
// them down first.
func (s *Store) Close() error {
	s.closeMu.Lock()
	defer s.closeMu.Unlock()
	s.mu.Lock()
	groups := slices.Collect(maps.Values(s.groups))
	s.mu.Unlock()
	var drained error
	for _, l := range groups {
		drained = cmp.Or(drained, l.AwaitSync(^uint64(0)))
	}
	spans, spansErr := s.spans()
	spansErr = cmp.Or(drained, spansErr)
	s.mu.Lock()
	failed := s.failed
	s.failed = ErrClosed
	s.mu.Unlock()
	if errors.Is(failed, ErrClosed) {
		return nil
	}
	close(s.sealStop)
	<-s.sealDone
	if failed != nil {
		// The backend may hold locks it will never release. Its files are left to the end of the process.
		return s.lock.Close()
	}
	err := s.drv.close()
	// A store that cannot be read keeps its live seal: nothing exact is known of it.
	if spansErr == nil && err == nil {
		err = s.sealExact(spans)
	}
	return s.named(errors.Join(spansErr, err, s.lock.Close()))
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
	_ = errors.As(err, &fe) // it may have been through here
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
