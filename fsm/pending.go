package fsm

import (
	"bytes"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	commandv1 "perdure/api/command/v1"
	"perdure/fsm/machine"
	"perdure/fsm/query"
	"perdure/fsm/state"
)

// The machine keeps what entries have written until it is worth a batch of Pebble: most keys of a short execution are
// written again or removed soon, and are stored once or never. What is pending needs no other place: the log has the entries.
// Every read sees it.
//
// pendingKeys and pendingBytes bound it, in keys, removed ones included, and in bytes of values. One entry always fits.
// More keys would cost the machine's tables the cache of the processor, and a batch would delay the entries behind it: 8000 keys take some
// 10 ms.
const (
	pendingKeys  = 8000
	pendingBytes = 2 << 20
)

// As many writes are used again: more keys than machine.SpareWrites do not compile.
const _ = uint(machine.SpareWrites - pendingKeys)

// pending guards a store's machine: an entry is applied, or a batch stored, by the goroutine that holds the turn, which
// holds Store.mu, too.
//
//	version is odd while the turn is held: the state, which is the database under the machine's writes, is the same
//	whenever version is
type pending struct {
	mu      sync.Mutex
	free    sync.Cond
	version atomic.Uint64
	// storing is what the holder of the turn is storing, by key; nil if it does not. The machine has the same.
	storing []state.Write
}

func (p *pending) held() bool { return p.version.Load()&1 == 1 }

// take waits for the turn.
func (p *pending) take() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.held() {
		p.free.Wait()
	}
	p.version.Add(1)
}

func (p *pending) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.releaseLocked()
}

func (p *pending) releaseLocked() {
	p.version.Add(1)
	p.free.Broadcast()
}

// store gives readers what is being stored, so that they do not wait for a disk that stores nothing.
func (p *pending) store(writes []state.Write) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.storing = writes
	p.free.Broadcast()
}

// lock locks mu when the turn is free, or its holder is storing.
func (p *pending) lock() (storing bool) {
	p.mu.Lock()
	for p.held() && p.storing == nil {
		p.free.Wait()
	}
	return p.held()
}

// storePending stores what is pending in one batch. The caller holds the turn.
func (s *Store) storePending(db *pebble.DB) error {
	writes := s.machine.Writes()
	if len(writes) == 0 {
		return nil
	}
	s.pending.store(writes)
	err := commit(db, writes)
	s.pending.store(nil)
	if err != nil {
		return s.damaged(err)
	}
	if s.opts.OnWritten != nil {
		s.opts.OnWritten(len(writes), sizeOf(writes))
	}
	s.machine.Committed()
	return nil
}

// behind returns what halted the store, if the database lacks entries that it has applied. The caller holds pending.mu or
// the turn.
func (s *Store) behind() error {
	if s.machine.Pending() == 0 {
		return nil
	}
	return s.failed()
}

// settle stores what is pending, so that the database has all entries that are applied. It blocks on the disk. The caller
// holds Store.mu and the turn.
func (s *Store) settle(db *pebble.DB) error {
	if s.failed() != nil {
		return s.behind()
	}
	err := s.storePending(db)
	if err != nil {
		s.fail(err)
	}
	return err
}

// stored runs fn on the database when it has all entries that are applied, perhaps with later ones.
func (s *Store) stored(fn func(*pebble.DB) error) error {
	return s.read(func(db *pebble.DB) error {
		s.pending.take()
		err := s.settle(db)
		s.pending.release()
		if err != nil {
			return err
		}
		return fn(db)
	})
}

// snapshot runs fn on the state with all entries that are applied. It stores what is pending, unless another goroutine
// does.
func (s *Store) snapshot(fn func(state.Reader) error) error {
	return s.read(func(db *pebble.DB) error {
		p := &s.pending
		if storing := p.lock(); !storing && s.machine.Pending() > 0 {
			p.version.Add(1) // takes the turn
			p.mu.Unlock()
			err := s.settle(db)
			p.mu.Lock()
			p.releaseLocked() // nothing is applied before the snapshot
			if err != nil {
				p.mu.Unlock()
				return err
			}
		}
		err, above := s.behind(), slices.Clone(p.storing)
		snap := db.NewSnapshot()
		p.mu.Unlock()
		defer func() { _ = snap.Close() }()
		switch {
		case err != nil:
			return err
		case len(above) == 0:
			return fn(view{snap})
		}
		return fn(overlay{above, view{snap}})
	})
}

// overlay is a state.Reader of writes, in the order of their keys, above what they were written to.
type overlay struct {
	writes []state.Write
	below  state.Reader
}

func compareWrite(w state.Write, key []byte) int { return bytes.Compare(w.Key, key) }

// Get implements state.Reader.
func (o overlay) Get(key []byte) ([]byte, bool, error) {
	if i, ok := slices.BinarySearchFunc(o.writes, key, compareWrite); ok {
		return o.writes[i].Value, o.writes[i].Value != nil, nil
	}
	return o.below.Get(key)
}

// Scan implements state.Reader.
func (o overlay) Scan(lower, upper []byte, fn func(key, value []byte) bool) error {
	from, _ := slices.BinarySearchFunc(o.writes, lower, compareWrite)
	mine := o.writes[from:]
	if upper != nil {
		to, _ := slices.BinarySearchFunc(mine, upper, compareWrite)
		mine = mine[:to]
	}
	more := true
	next := func() {
		if w := mine[0]; w.Value != nil {
			more = fn(w.Key, w.Value)
		}
		mine = mine[1:]
	}
	if err := o.below.Scan(lower, upper, func(key, value []byte) bool {
		for more && len(mine) > 0 && bytes.Compare(mine[0].Key, key) < 0 {
			next()
		}
		switch {
		case !more:
		case len(mine) > 0 && bytes.Equal(mine[0].Key, key):
			next()
		default:
			more = fn(key, value)
		}
		return more
	}); err != nil {
		return err
	}
	for more && len(mine) > 0 {
		next()
	}
	return nil
}

// errChanged ends a read during which entries were applied or stored.
var errChanged = errors.New("the state has changed meanwhile")

// steadyView is a state.Reader of the state while it is at one version. A short read so needs no snapshot of Pebble, whose end
// looks for compactions, and stores nothing that is pending.
type steadyView struct {
	view
	s       *Store
	version uint64
}

// pending calls look while the state is at the version.
func (v steadyView) pending(look func(*machine.Machine)) error {
	p := &v.s.pending
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.version.Load() != v.version {
		return errChanged
	}
	look(v.s.machine)
	return nil
}

// Get implements state.Reader.
func (v steadyView) Get(key []byte) (value []byte, ok bool, err error) {
	written := false
	if err := v.pending(func(m *machine.Machine) { value, ok, written = m.Written(key) }); err != nil || written {
		return value, ok, err
	}
	value, ok, err = v.view.Get(key)
	if v.s.pending.version.Load() != v.version {
		return nil, false, errChanged
	}
	return value, ok, err
}

// Scan implements state.Reader.
func (v steadyView) Scan(lower, upper []byte, fn func(key, value []byte) bool) error {
	var above []state.Write
	if err := v.pending(func(m *machine.Machine) { above = m.WrittenWithin(lower, upper) }); err != nil {
		return err
	}
	it, err := v.r.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return err
	}
	// All rows are as of one moment, which must be of the version.
	if v.s.pending.version.Load() != v.version {
		return errors.Join(errChanged, it.Close())
	}
	return overlay{above, iterated{it}}.Scan(lower, upper, fn)
}

// iterated is a state.Reader of what an iterator has, which the one Scan closes.
type iterated struct{ it *pebble.Iterator }

// Get implements state.Reader.
func (iterated) Get([]byte) ([]byte, bool, error) { return nil, false, errors.ErrUnsupported }

// Scan implements state.Reader.
func (i iterated) Scan(_, _ []byte, fn func(key, value []byte) bool) error { return scan(i.it, fn) }

// steadyTries is how often a short read is tried before it holds up what is applied. On a busy leader an entry comes every few
// milliseconds, and often the next one waits already.
const steadyTries = 3

// present is what a machine tells beside its rows.
type present struct {
	index     uint64
	clockMS   int64
	importing bool
}

func presentOf(m *machine.Machine) present { return present{m.Applied(), m.Clock(), m.Importing()} }

// steady runs fn on the state while it is at one version, without a snapshot. It fails with errChanged if entries are applied
// or stored meanwhile.
func (s *Store) steady(fn func(present, state.Reader) error) error {
	if s.pending.lock() {
		s.pending.mu.Unlock()
		return errChanged
	}
	m, version := s.machine, s.pending.version.Load()
	now, err := presentOf(m), s.behind()
	s.pending.mu.Unlock()
	if err != nil {
		return err
	}
	return s.read(func(db *pebble.DB) error { return fn(now, steadyView{view{db}, s, version}) })
}

// lockedView is a state.Reader of the state while pending.mu is held and nothing is being stored.
type lockedView struct {
	view
	m *machine.Machine
}

// Get implements state.Reader.
func (v lockedView) Get(key []byte) ([]byte, bool, error) {
	if value, ok, written := v.m.Written(key); written {
		return value, ok, nil
	}
	return v.view.Get(key)
}

// Scan implements state.Reader.
func (v lockedView) Scan(lower, upper []byte, fn func(key, value []byte) bool) error {
	return overlay{v.m.WrittenWithin(lower, upper), v.view}.Scan(lower, upper, fn)
}

// locked runs fn on the state without a snapshot, and stores nothing. No entry is applied before fn returns, which must read few rows
// and not call the store.
func (s *Store) locked(fn func(present, state.Reader) error) error {
	return s.read(func(db *pebble.DB) error {
		p := &s.pending
		storing := p.lock()
		defer p.mu.Unlock()
		if err := s.behind(); err != nil {
			return err
		}
		if storing { // what is below may get these writes meanwhile
			return fn(presentOf(s.machine), overlay{p.storing, view{db}})
		}
		return fn(presentOf(s.machine), lockedView{view{db}, s.machine})
	})
}

// short runs fn on the state as of one moment: at first beside what is applied, then instead of it. It may run fn several times, and
// fn must return the errors of its reads.
func (s *Store) short(fn func(present, state.Reader) error) error {
	if err := s.beside(fn); !errors.Is(err, errChanged) {
		return err
	}
	return s.locked(fn)
}

// beside tries steady some times. It fails with errChanged if entries were applied or stored meanwhile each time.
func (s *Store) beside(fn func(present, state.Reader) error) (err error) {
	for range steadyTries {
		if err = s.steady(fn); !errors.Is(err, errChanged) {
			return err
		}
	}
	return err
}

// Peek is View for reads of few rows, some thousands at most: it takes no snapshot, and stores nothing. It may run fn again. fn must
// return the errors of its reads, and not call the store.
func (s *Store) Peek(fn func(state.Reader) error) error {
	if err := s.short(func(_ present, r state.Reader) error { return fn(r) }); err == nil {
		return nil
	}
	return s.View(fn) // says what is wrong
}

// Free reports that no execution and no promise has an id, for nearly all such ids without a read. False means that one may
// have it.
func (s *Store) Free(namespace, id string) bool {
	s.pending.lock()
	defer s.pending.mu.Unlock()
	return s.machine.Free(namespace, id)
}

// Learn reads for a millisecond what Free needs to know, after a start or after many removals, and reports whether there is more to
// read. Entries and reads wait meanwhile. An error halts the store, as one of Apply.
func (s *Store) Learn() (more bool, err error) {
	err = s.read(func(*pebble.DB) error {
		s.pending.take()
		defer s.pending.release()
		if err := s.failed(); err != nil {
			return err
		}
		var err error
		if more, err = s.machine.Learn(); err != nil {
			err = s.damaged(err)
			s.fail(err)
		}
		return err
	})
	return more, err
}

// queryShort is Query without a snapshot, by steady, beside, locked or short.
func (s *Store) queryShort(by func(func(present, state.Reader) error) error, q *commandv1.Query) (reply *commandv1.QueryReply, index uint64, err error) {
	err = by(func(now present, r state.Reader) (err error) {
		index = now.index
		x := &query.Read{Must: state.Must{From: r}, ClockMS: now.clockMS, Partition: s.opts.Machine.Partition, Query: q, ListBudget: query.ListBudget,
			Importing: now.importing}
		reply, err = x.Answer()
		return err
	})
	return reply, index, err
}

// isScan reports whether a query reads no row, most often, and perhaps many. A leader looks each second for schedules that are due.
func isScan(q *commandv1.Query) bool { return q.GetSchedules().GetDueMs() != 0 }

// isShort reports whether a query reads few rows: a page of a journal at most.
func isShort(q *commandv1.Query) bool {
	switch q.Kind.(type) {
	case *commandv1.Query_Result, *commandv1.Query_Task, *commandv1.Query_Journal, *commandv1.Query_Promise:
		return true
	}
	return false
}
