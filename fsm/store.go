package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	commandv1 "perdure/api/command/v1"
	"perdure/fsm/machine"
	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/internal/pebbleopen"
)

// format is the Pebble format version of new state stores. It rises only by a deliberate change.
const format = pebble.FormatValueSeparation

// The names of the store's own values, as opposed to the machine's.
const (
	metaStamp    = "stamp"
	metaCovered  = "covered"
	metaReceived = "received"
)

// MissingError reports that a required state store does not exist.
type MissingError struct{ Dir, Detail string }

func (e *MissingError) Error() string {
	return fmt.Sprintf("fsm: state store %s is missing: %s", e.Dir, e.Detail)
}

// ExistsError reports that the directory for a new store already holds a stamped one.
type ExistsError struct{ Dir string }

func (e *ExistsError) Error() string {
	return fmt.Sprintf("fsm: %s holds a state store already", e.Dir)
}

// ForeignError reports that a store belongs to another cluster, server or partition.
type ForeignError struct {
	Dir        string
	Have, Want []byte
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("fsm: state store %s is stamped %q, this node expects %q: it belongs elsewhere", e.Dir, e.Have, e.Want)
}

// DamagedError reports that a store is damaged: it could not be read.
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
	// Create makes a new store and refuses a stamped one; without it Open refuses a missing store. Stamp
	// identifies the store and must match an existing one's.
	Create bool
	Stamp  []byte
	Logger pebble.Logger
	// Flush makes a database durable. It may give up after OnFatal: Pebble retries a failing flush for ever.
	// (*pebble.DB).Flush if nil.
	Flush func(*pebble.DB) error
	// Passing reports whether an error of a flush or a compaction is transient and has damaged nothing, as
	// that of a full disk. The store then stays in service and Pebble retries. Nil means that no error is
	// transient.
	Passing func(error) bool
	// Await runs open once and may stop waiting for it after OnFatal: pebble.Open waits for ever for a flush
	// that fails or never ends. An abandoned open keeps running and closes the database if it succeeds. This
	// process must not open the directory again before open has returned. Nil waits without bound.
	Await func(open func() error) error
	// OnApplied is called for every command entry in log order, on every replica, once reads see the entry
	// (and perhaps later ones of the same batch). It skips entries that the state already had and those of a
	// failed batch. It runs on the applying goroutine and must not block. It must not change the result,
	// which is shared. Nil for none.
	OnApplied func(*machine.Result)
	// OnWritten is called after each batch of entries' writes with how many keys it wrote, and their and their
	// values' bytes. One goroutine at a time runs it; it must not block, nor call the store. Nil for none.
	OnWritten func(keys, bytes int)
	// OnRestored is called when the content of a snapshot has replaced the state; OnApplied is not called for
	// that content. It runs on the applying goroutine and must not block. Nil for none.
	OnRestored func()
	// Spare reports why a checkpoint that takes so many bytes now and keeps tables from being deleted is not to be made;
	// nil if it may be. On a full disk a checkpoint would hold up the entries behind it. Nil for no limit.
	Spare func(bytes int64) error
	// OnCheckpoint is called after each attempt to make the checkpoint of a cut, with the reason if there is none now, or
	// if older ones could not be removed. It runs on the applying goroutine and must not block. Nil for none.
	OnCheckpoint func(Checkpoint, error)
	// pendingKeys is how many keys may be pending; 0 means pendingKeys.
	pendingKeys int
	// anyStamp: the store may be of any partition.
	anyStamp bool
	// OnFatal is called once, when the store can no longer be trusted (a failed write, damage found in the
	// background). It runs on any goroutine, Pebble's included, and must not call the store. Required.
	OnFatal func(error)
}

// Store is the state of one partition. One goroutine at a time (Raft's) calls ApplyBatch, Restore and Close;
// all other methods may run concurrently with them.
//
// A failed store stays failed until it is reopened: it applies nothing, promises no durability, and serves
// reads from what it still has, if that is all that it had applied.
type Store struct {
	dir  string
	opts Options

	// mu guards db against replacement and Close during reads. An audit may read for long, so it ends at once
	// while a caller waits for it (auditWaiters).
	mu           sync.RWMutex
	auditWaiters auditWaiters
	db           *pebble.DB
	closed       bool

	pending pending
	machine *machine.Machine
	decoder decoder
	stuck   figure // executions, as of the last entry
	marks   marks
	failure failure
}

// Stuck is how many executions wait for code that fits their journals.
func (s *Store) Stuck() int { return s.stuck.get() }

// figure is a number that any goroutine may read.
type figure struct {
	mu sync.Mutex
	n  int
}

func (f *figure) get() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}

func (f *figure) set(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n = n
}

// failure is the reason why a store can no longer be trusted. Any goroutine may set it.
type failure struct {
	mu  sync.Mutex
	err error
	// hung: Pebble has stopped in the middle of an operation and may hold its locks for ever.
	hung bool
}

func (f *failure) get() (err error, hung bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err, f.hung
}

// set reports whether this is the first failure.
func (f *failure) set(err error, hung bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := f.err == nil
	if first {
		f.err = err
	}
	f.hung = f.hung || hung
	return first
}

// fail halts the store.
func (s *Store) fail(err error) {
	if s.failure.set(err, false) {
		s.opts.OnFatal(err)
	}
}

// failed returns the error that halted the store, or nil.
func (s *Store) failed() error {
	err, _ := s.failure.get()
	return err
}

// fatalLogger receives Pebble's fatal errors.
type fatalLogger struct {
	pebble.Logger
	s *Store
}

// Fatalf implements pebble.Logger. Pebble expects it not to return.
func (l fatalLogger) Fatalf(format string, args ...any) {
	err := &DamagedError{l.s.dir, fmt.Errorf(format, args...)}
	if l.s.failure.set(err, true) {
		l.s.opts.OnFatal(err)
	}
	l.Logger.Fatalf(format, args...)
}

// ErrClosed is the error of reads of a closed store.
var ErrClosed = errors.New("fsm: the state store is closed")

func newStore(dir string, opts Options) *Store {
	if opts.FS == nil {
		opts.FS = vfs.Default
	}
	if opts.MemTableBytes == 0 {
		opts.MemTableBytes = 16 << 20
	}
	if opts.pendingKeys == 0 {
		opts.pendingKeys = pendingKeys
	}
	if opts.Logger == nil {
		opts.Logger = pebble.DefaultLogger
	}
	if opts.Flush == nil {
		opts.Flush = (*pebble.DB).Flush
	}
	if opts.Passing == nil {
		opts.Passing = func(error) bool { return false }
	}
	if opts.Await == nil {
		opts.Await = func(open func() error) error { return open() }
	}
	s := &Store{dir: dir, opts: opts}
	s.pending.free.L = &s.pending.mu
	return s
}

// Open opens a partition's state. Errors: *MissingError, *ExistsError, *ForeignError, *DamagedError. Open
// leaves a refused store unchanged.
func Open(dir string, opts Options) (*Store, error) {
	s := newStore(dir, opts)
	if _, err := s.inspect(); err != nil {
		return nil, err
	}
	db, err := s.openDB(dir, false)
	if err != nil {
		return nil, s.damaged(err)
	}
	if err := s.adopt(db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	_ = s.removeCheckpoints(keptCuts) // the next checkpoint reports what cannot be removed
	_ = s.opts.FS.RemoveAll(DeltaDir(dir))
	return s, nil
}

// openDB opens a database, unless the store fails meanwhile.
func (s *Store) openDB(dir string, readOnly bool) (*pebble.DB, error) {
	var mu sync.Mutex // guards the rest
	var db *pebble.DB
	var late bool // Await has given up
	err := s.opts.Await(func() error {
		opened, err := s.openPebble(dir, readOnly)
		mu.Lock()
		defer mu.Unlock()
		if err == nil && late {
			return closeDB(opened)
		}
		db = opened
		return err
	})
	mu.Lock()
	defer mu.Unlock()
	if err != nil {
		late = true
		if db != nil {
			err = errors.Join(err, closeDB(db))
		}
		return nil, err
	}
	return db, nil
}

// compactAt is L0CompactionThreshold: twice the number of memtables in L0 at which Pebble compacts them.
const compactAt = 16

func (s *Store) openPebble(dir string, readOnly bool) (db *pebble.DB, err error) {
	// Pebble panics when a directory cannot be synced, and on some damage.
	defer func() {
		if r := recover(); r != nil {
			db, err = nil, fmt.Errorf("pebble does not open: %v", r)
		}
	}()
	o := &pebble.Options{
		FS:                          s.opts.FS,
		Cache:                       s.opts.Cache,
		ReadOnly:                    readOnly,
		DisableWAL:                  true,
		FormatMajorVersion:          format,
		MemTableSize:                s.opts.MemTableBytes,
		MemTableStopWritesThreshold: 2,
		// A compaction of L0 merges eight memtables into a level of 96 MiB. With 3·10^6 executions on a node a level of 512 MiB,
		// which is no level between L0 and the last, costs a third more CPU a command.
		L0CompactionThreshold: compactAt,
		LBaseMaxBytes:         96 << 20,
		L0StopWritesThreshold: 40,
		MaxOpenFiles:          512,
		Logger:                fatalLogger{s.opts.Logger, s},
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) {
				if s.opts.Passing(err) {
					// Pebble has dropped the new table and retries; the table's inputs still exist.
					return
				}
				s.fail(s.damaged(err))
			},
			DataCorruption: func(info pebble.DataCorruptionInfo) {
				s.fail(&DamagedError{dir, fmt.Errorf("damaged file %s: %w", info.Path, info.Details)})
			},
		},
	}
	// Nearly each table has deleted keys everywhere, since tasks and deadlines come and go: with 10^6 executions stored, Pebble
	// compacted for no other reason, which was half of the bytes written and a quarter of the CPU.
	pebbleopen.KeepTombstones(o)
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom
	}
	return pebbleopen.Open(dir, o)
}

// adopt takes a checked database as the store's; it stamps a new one.
func (s *Store) adopt(db *pebble.DB) error {
	key := keys.MetaKey(metaStamp)
	if _, stamped, err := (view{db}).Get(key); err != nil {
		return s.damaged(err)
	} else if !stamped {
		if err := db.Set(key, s.opts.Stamp, pebble.NoSync); err != nil {
			return s.damaged(err)
		}
		if err := s.flush(db); err != nil {
			return s.damaged(err)
		}
	}
	m, err := machine.New(s.opts.Machine, view{db})
	if err != nil {
		return s.damaged(err)
	}
	s.db, s.machine = db, m
	s.stuck.set(m.Stuck())
	s.marks.begin(Mark{m.Applied(), m.Checksum()})
	return nil
}

// Dir is the store's directory.
func (s *Store) Dir() string { return s.dir }

// read runs fn on the database, and prevents its replacement and Close meanwhile.
func (s *Store) read(fn func(db *pebble.DB) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return ErrClosed
	}
	return fn(s.db)
}

// View runs fn on a consistent state. It may run concurrently with ApplyBatch. An error of fn counts as one
// of the storage: the store halts, and View returns a *DamagedError.
func (s *Store) View(fn func(state.Reader) error) error {
	err := s.snapshot(fn)
	if err == nil || errors.Is(err, ErrClosed) {
		return err
	}
	err = s.damaged(err)
	s.fail(err)
	return err
}

// damaged names the store, and the file if Pebble says which one it is.
func (s *Store) damaged(err error) error {
	var known *DamagedError
	if errors.As(err, &known) && known.Dir == s.dir {
		return err
	}
	if info := pebble.ExtractDataCorruptionInfo(err); info != nil {
		err = fmt.Errorf("damaged file %s: %w", info.Path, info.Details)
	}
	return &DamagedError{s.dir, err}
}

// Query answers a read of the applied state at the machine's clock, and returns the state's index.
func (s *Store) Query(q *commandv1.Query) (reply *commandv1.QueryReply, index uint64, err error) {
	by := s.short
	if isScan(q) {
		by = s.beside
	}
	if isScan(q) || isShort(q) {
		if reply, index, err = s.queryShort(by, q); err == nil {
			return reply, index, nil
		}
		// A snapshot says what is wrong.
	}
	err = s.View(func(r state.Reader) error {
		var err error
		if index, err = state.MetaNumber(r, state.MetaApplied); err != nil {
			return err
		}
		reply, err = query.Answer(r, s.opts.Machine.Partition, q)
		return err
	})
	return reply, index, err
}

// Status is what a replica reports of its state.
type Status struct {
	// Applied is the index of the last applied entry. Covered is the highest index that a snapshot marker may
	// record.
	Applied, Covered uint64
	// Received is the applied index of the last snapshot content from another replica, which may be ahead of
	// this replica's log; 0 if there was none.
	Received uint64
	// Checksum is over every mutation up to Applied; equal on every replica at the same index.
	Checksum uint64
	ClockMS  int64
}

// Status reads the store's own values. It stores nothing: members ask each other for it each second.
func (s *Store) Status() (st Status, err error) {
	err = s.Peek(func(r state.Reader) error {
		st, err = status(r)
		return err
	})
	return st, err
}

func status(r state.Reader) (st Status, err error) {
	var errs [5]error
	var clock uint64
	st.Applied, errs[0] = state.MetaNumber(r, state.MetaApplied)
	st.Covered, errs[1] = state.MetaNumber(r, metaCovered)
	st.Checksum, errs[2] = state.MetaNumber(r, state.MetaChecksum)
	clock, errs[3] = state.MetaNumber(r, state.MetaClock)
	st.Received, errs[4] = state.MetaNumber(r, metaReceived)
	st.ClockMS = int64(clock)
	return st, errors.Join(errs[:]...)
}

// Cover makes the state durable and records that it covers a snapshot's index, which also counts entries that
// the machine never sees. After it returns nil, Raft may cut its log up to index. It blocks on the disk.
func (s *Store) Cover(index uint64) error {
	return s.stored(func(db *pebble.DB) error {
		if err := s.failed(); err != nil {
			return err // Raft counts an entry with an error response as applied
		}
		covered, err := state.MetaNumber(view{db}, metaCovered)
		if err != nil {
			return err
		}
		if index > covered {
			if err := db.Set(keys.MetaKey(metaCovered), binary.BigEndian.AppendUint64(nil, index), pebble.NoSync); err != nil {
				return err
			}
		}
		return s.flush(db)
	})
}

// Flush makes everything applied so far durable. It blocks on the disk.
func (s *Store) Flush() error { return s.stored(s.flush) }

// flush returns an error once the store has failed, since the lost writes may belong to the flushed state.
func (s *Store) flush(db *pebble.DB) error {
	if err := s.failed(); err != nil {
		return err
	}
	if err := s.opts.Flush(db); err != nil {
		return err
	}
	return s.failed()
}

// Close flushes and closes the store; no ApplyBatch may run. It closes a failed store without a flush. It
// blocks on the disk, and for ever if a read does.
func (s *Store) Close() error {
	if s.Hung() {
		// The files stay open until the process ends.
		return nil
	}
	_ = s.stored(func(*pebble.DB) error { return nil }) // what fails here has halted the store
	s.auditWaiters.add(1)
	defer s.auditWaiters.add(-1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	failed, hung := s.failure.get()
	if hung {
		return nil
	}
	if failed != nil {
		return closeDB(s.db)
	}
	// Without a flush Close drops the memtable, and the next start must replay it. A clean stop avoids that
	// replay, except on a full disk.
	err := s.flush(s.db)
	if err != nil && s.opts.Passing(err) {
		err = nil
	}
	return errors.Join(err, s.db.Close())
}

// Hung reports whether Pebble has stopped in the middle of an operation: then Close leaves its files and the
// directory's lock open until the process ends.
func (s *Store) Hung() bool {
	_, hung := s.failure.get()
	return hung
}

// closeDB closes a database that may be damaged: a failed read can leave references behind, and Pebble's
// Close then panics instead of returning an error.
func closeDB(db *pebble.DB) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("fsm: closing after damage: %v", r)
		}
	}()
	return db.Close()
}

// Metrics returns Pebble's own metrics.
func (s *Store) Metrics() (m *pebble.Metrics, err error) {
	err = s.read(func(db *pebble.DB) error {
		m = db.Metrics()
		return nil
	})
	return m, err
}
