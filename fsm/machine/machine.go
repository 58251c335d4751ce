package machine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/cut"
	"perdure/fsm/audit"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
	"perdure/id"
	"perdure/internal/slab"
)

// Config configures a machine. It must be the same on every replica of a partition.
type Config struct {
	// Partition is this partition's number, Partitions the cluster's number of partitions.
	Partition, Partitions uint32
	// CachedExecutions bounds the decoded executions in memory; 0 means 8,192. CachedBytes bounds their size;
	// 0 means 64 MiB. The few most recently used ones stay regardless.
	CachedExecutions, CachedBytes int
	// CachedReads bounds the cached headers, promises and tasks, in bytes; 0 means 4 MiB, under 0 none.
	CachedReads int
	// MaxReplies bounds the stored replies; 0 means 100,000. MaxReplyBytes bounds their size with their keys;
	// 0 means 64 MiB.
	MaxReplies, MaxReplyBytes uint64
	// LongJournal is how many entries make a journal a long one, which is an effect and no state; 0 means
	// id.JournalWarnEvents.
	LongJournal uint64
	// CheckInvariants checks the state after every command by the rules' own invariants. A violation stops
	// the machine.
	CheckInvariants bool
	// notifies is what one entry may notify, in tests; the zero value means notifyListeners and notifyBytes.
	notifies notifyBudget
	// aheadLeast is from how many objects on a tick reads their rows ahead, in tests; 0 means aheadLeast.
	aheadLeast int
}

func (c Config) part() state.Partition {
	return state.Partition{Number: c.Partition, Count: c.Partitions}
}

// Machine applies entries. It is not safe for concurrent use; queries do not go through it.
type Machine struct {
	cfg Config
	// reads caches what is below batch, present which sets of keys are empty, batch included.
	reads    *readCache
	present  presence
	batch    *layer
	writes   []state.Write // memory of Writes
	arena    arena
	txn      *txn
	clock    int64
	applied  uint64
	checksum uint64
	summed   []byte   // memory of sum
	encoded  []byte   // of sum, too: a header
	places   []*write // memory of scanQueue
	feature  uint64
	// cut is the cut that the partition is in, entering the one that it enters at the end of the entry; 0: none.
	cut, entering cut.Number
	evicted       int64
	// base is what is added to an index to make an incarnation. importing is the restore whose rows are being stored,
	// restored the one that has ended; loaded says that the caches contain what was imported.
	base, importing, restored uint64
	loaded                    bool
	// notified is what the entry in progress may still notify, clientRetry its interval for client tasks.
	notified    notifyBudget
	clientRetry int64
	replies     uint64
	// replyBytes is the size of the stored replies that record a size: those stored at state.LevelReplies.
	replyBytes uint64
	cache      *execCache
	entities   *entityCache
	// ready counts the pending tasks in each queue of workers, pinned lists the digests of a function whose queues are
	// not empty, in order, stuck counts the stuck executions, and digests are those of functions that have
	// any. All are caches of the state.
	ready   map[state.Queue]int
	pinned  map[state.Queue][]string
	stuck   int
	digests map[state.Queue]state.Digests
	// head is where each queue's first task was last found. Tasks are queued in the order of the clock, so no
	// task is before it; a scan from there skips the tombstones of assigned tasks.
	head map[state.Queue]int64
	// deadlines holds the positions at which searches for deadlines begin, for the same reason.
	deadlines state.DeadlineScan
	// committing is the commit that is being applied. commitReplies are unused answers, firsts unused Firsts.
	committing    commit
	commitReplies slab.Of[commitReply]
	firsts        slab.Of[First]
	// invariants checks what commands write, if the configuration asks for it.
	invariants audit.Invariants
	broken     error
}

// New opens the machine over a state; an empty state is that of a new partition.
func New(cfg Config, below state.Reader) (*Machine, error) {
	if err := cfg.part().Check(); err != nil {
		return nil, err
	}
	if cfg.CachedExecutions == 0 {
		cfg.CachedExecutions = 8192
	}
	if cfg.LongJournal == 0 {
		cfg.LongJournal = id.JournalWarnEvents
	}
	if cfg.CachedBytes == 0 {
		cfg.CachedBytes = 64 << 20
	}
	if cfg.CachedReads == 0 {
		cfg.CachedReads = 4 << 20
	}
	if cfg.aheadLeast == 0 {
		cfg.aheadLeast = aheadLeast
	}
	if cfg.notifies == (notifyBudget{}) {
		cfg.notifies = notifyBudget{listeners: notifyListeners, bytes: notifyBytes}
	}
	if cfg.MaxReplies == 0 {
		cfg.MaxReplies = 100_000
	}
	if cfg.MaxReplyBytes == 0 {
		cfg.MaxReplyBytes = 64 << 20
	}
	reads := newReadCache(below, cfg.CachedReads)
	if err := reads.absences.step(below); err != nil {
		return nil, err
	}
	m := &Machine{cfg: cfg, reads: reads, batch: baseOf(reads), cache: newExecCache(cfg.CachedExecutions, cfg.CachedBytes),
		entities: newEntityCache(), ready: map[state.Queue]int{}, head: map[state.Queue]int64{},
		pinned: map[state.Queue][]string{}, digests: map[state.Queue]state.Digests{}}
	m.txn = newTxn(m)
	for _, v := range []struct {
		name string
		into *uint64
	}{{state.MetaApplied, &m.applied}, {state.MetaChecksum, &m.checksum}, {state.MetaFeature, &m.feature}, {state.MetaReplies, &m.replies}, {state.MetaReplyBytes, &m.replyBytes},
		{state.MetaBase, &m.base}, {state.MetaImporting, &m.importing}, {state.MetaRestored, &m.restored}, {state.MetaCut, (*uint64)(&m.cut)}} {
		n, err := state.MetaNumber(below, v.name)
		if err != nil {
			return nil, err
		}
		*v.into = n
	}
	for _, v := range []struct {
		name string
		into *int64
	}{{state.MetaClock, &m.clock}, {state.MetaEvicted, &m.evicted}} {
		n, err := state.MetaNumber(below, v.name)
		if err != nil {
			return nil, err
		}
		*v.into = int64(n)
	}
	if err := state.CheckLevel(below); err != nil {
		return nil, fmt.Errorf("fsm: %w", err)
	}
	if err := m.countReady(below); err != nil {
		return nil, err
	}
	if err := m.readDigests(below); err != nil {
		return nil, err
	}
	if err := m.present.read(below); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *Machine) putMeta(name string, n uint64) {
	key := m.arena.close(append(append(m.arena.open(), byte(keys.Meta)), name...))
	m.batch.put(key, m.arena.close(binary.BigEndian.AppendUint64(m.arena.open(), n)))
}

func (m *Machine) countReady(below state.Reader) error {
	var bad error
	err := below.Scan([]byte{byte(keys.Ready)}, []byte{byte(keys.Ready) + 1}, func(key, _ []byte) bool {
		ns, rest, err := keys.CutString(key[1:])
		if err == nil {
			var fn string
			if fn, _, err = keys.CutString(rest); err == nil {
				if _, client := state.AddressOf(fn); !client {
					m.queued(state.QueueOf(ns, fn), 1)
				}
				return true
			}
		}
		bad = &state.CorruptError{What: "place in a queue", Key: append([]byte(nil), key...), Detail: err.Error()}
		return false
	})
	return errors.Join(err, bad)
}

// Applied is the index of the last applied entry, Clock the machine's time in unix milliseconds, and
// Checksum covers every mutation up to Applied.
func (m *Machine) Applied() uint64  { return m.applied }
func (m *Machine) Clock() int64     { return m.clock }    // see Applied
func (m *Machine) Checksum() uint64 { return m.checksum } // see Applied

// Importing reports whether the rows of a restore are being stored: the state is not complete.
func (m *Machine) Importing() bool { return m.importing != 0 }

// Writes returns the mutations since the last Committed, by key, each key once; the caller stores them in one batch, and
// Pebble's memtable takes keys that are in order at less cost. They are valid until the next Committed. A stopped
// machine returns none: the writes of its last entry must not be stored.
func (m *Machine) Writes() []state.Write {
	if m.broken != nil {
		return nil
	}
	out := slices.Grow(m.writes[:0], len(m.batch.table.log))
	m.batch.ordered(func(w *write) { out = append(out, w.asWrite()) })
	m.writes = out
	return out
}

func (w *write) asWrite() state.Write {
	v := w.content()
	if w.removed {
		v = nil
	} else if v == nil {
		v = []byte{}
	}
	return state.Write{Key: w.key, Value: v}
}

// WriteBytes is about how many bytes Writes holds.
func (m *Machine) WriteBytes() int { return m.batch.bytes }

// Pending is about how many keys Writes holds; 0 only if it holds none, and the machine has not stopped.
func (m *Machine) Pending() int { return len(m.batch.table.log) }

// Written is the value of a key among Writes, which nothing changes. It is not there if Writes removes the key; written is
// false if Writes does not contain it. Written must not be called during Apply.
func (m *Machine) Written(key []byte) (value []byte, there, written bool) {
	w := m.batch.find(key)
	if w == nil {
		return nil, false, false
	}
	return w.content(), !w.removed, true
}

// WrittenWithin lists those of Writes with keys in [lower, upper), as Written does.
func (m *Machine) WrittenWithin(lower, upper []byte) []state.Write {
	var out []state.Write
	for _, w := range m.batch.within(lower, upper) {
		out = append(out, w.asWrite())
	}
	return out
}

// Committed notes that the state below contains Writes now.
func (m *Machine) Committed() {
	for _, w := range m.batch.table.log {
		if !w.void {
			m.reads.written(w)
		}
		m.batch.spare.take(w)
	}
	m.batch.reset()
	if clear(m.writes); cap(m.writes) > SpareWrites {
		m.writes = nil
	}
	clear(m.committing.events)
	m.committing = commit{own: m.committing.own[:0], events: m.committing.events[:0]} // without the command
}

// Apply applies one entry at a Raft index. Entries at or below Applied are skipped (nil result). An
// error means that this replica must stop: damage, an unknown command, a broken invariant. A refused
// command is not an error; its reply says why.
func (m *Machine) Apply(index uint64, entry *commandv1.Entry) (res *Result, err error) {
	if m.broken != nil {
		return nil, m.broken
	}
	if index <= m.applied {
		return nil, nil
	}
	defer func() {
		if err != nil {
			res, m.broken = nil, fmt.Errorf("fsm: partition %d stopped at index %d: %w", m.cfg.Partition, index, err)
			err = m.broken
		}
	}()
	defer state.Catch(&err)
	// A time of 0 means "none" for an end, a lease or a grace, so no entry has the time 0, whatever its
	// leader's clock.
	m.clock = max(m.clock, entry.TimeMs, 1)
	m.notified = m.cfg.notifies
	if m.clientRetry = min(entry.ClientRetryMs, maxClientRetryMS); m.clientRetry < 1 {
		m.clientRetry = defaultClientRetryMS
	}
	res = &Result{Replies: make([]*commandv1.Reply, len(entry.Commands))}
	for i, cmd := range entry.Commands {
		reply, err := m.command(index, cmd, &res.Effects)
		if err != nil {
			return nil, err
		}
		res.Replies[i] = reply
	}
	if len(entry.Grants) > 0 && m.importing == 0 {
		m.txn.begin(index)
		m.txn.assign(entry.Grants)
		if err := m.txn.commitChecked(&res.Effects); err != nil {
			return nil, err
		}
	}
	if err := m.enterCut(index, res); err != nil {
		return nil, err
	}
	m.reportReady(&res.Effects)
	m.applied = index
	m.putMeta(state.MetaApplied, m.applied)
	m.putMeta(state.MetaClock, uint64(m.clock))
	m.putMeta(state.MetaChecksum, m.checksum)
	if m.feature == 0 {
		m.feature = state.LevelFirst
		m.putMeta(state.MetaFeature, m.feature)
	}
	return res, nil
}

// reportReady drops from Ready the queues that the entry's grants have emptied, and duplicates.
func (m *Machine) reportReady(fx *Effects) {
	queues := fx.Ready[:0]
next:
	for _, q := range fx.Ready {
		if m.ready[q] == 0 {
			continue
		}
		for _, k := range queues {
			if k == q {
				continue next
			}
		}
		queues = append(queues, q)
	}
	fx.Ready = queues
}

func (m *Machine) command(index uint64, cmd *commandv1.Command, fx *Effects) (*commandv1.Reply, error) {
	t := m.txn
	run, known := ruleOf(cmd)
	if !known {
		return nil, fmt.Errorf("unknown command kind %T: written by a newer version; this replica must not guess", cmd.Kind)
	}
	if run.about != cmd.Id {
		// The router chose the partition by one id and the command would change another, perhaps of another
		// partition.
		return wire.Refusal(api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST,
			"a command for %q that is about %q", cmd.Id, run.about).With("id", cmd.Id)), nil
	}
	if refused := m.mayServe(cmd); refused != nil {
		return wire.Refusal(refused), nil
	}
	if cmd.Id != "" {
		if refused := m.mustOwn(cmd.Namespace, cmd.Id); refused != nil {
			return wire.Refusal(refused), nil
		}
		// The object's expirations run first, and stay applied even if the command is refused.
		t.begin(index)
		t.runExpirations(cmd.Namespace, cmd.Id)
		if !t.idle() {
			if err := t.commitChecked(fx); err != nil {
				return nil, err
			}
			t.begin(index)
		}
	} else {
		t.begin(index)
	}
	if reply, repeated, refused := t.repeated(cmd, run); repeated {
		t.abort()
		if refused != nil {
			return wire.Refusal(refused), nil
		}
		return reply, nil
	}
	reply, refused := run.apply(t, cmd)
	if refused != nil {
		t.abort()
		reply = wire.Refusal(refused)
		if !run.stored || !bindsRetries(cmd, refused) {
			return reply, nil
		}
		t.begin(index)
	}
	if run.stored {
		t.storeReply(cmd, reply)
	}
	if err := t.commitChecked(fx); err != nil {
		return nil, err
	}
	return reply, nil
}

// mustOwn refuses an id of another partition.
func (m *Machine) mustOwn(ns, objectID string) *api.Error {
	if p := state.PartitionOf(ns, objectID, m.cfg.Partitions); p != m.cfg.Partition {
		return api.Errorf(perdurev1.Reason_REASON_TRY_LATER, "%q belongs to partition %d, not %d", objectID, p, m.cfg.Partition).With("id", objectID)
	}
	return nil
}

// sum continues the checksum over one mutation.
func (m *Machine) sum(w *write) {
	const most = 4 << 10 // a larger value is not copied
	value := w.value
	if h := w.header(); h != nil {
		m.encoded = h.Append(m.encoded[:0])
		value = m.encoded
	}
	b := binary.BigEndian.AppendUint64(m.summed[:0], m.checksum)
	b = binary.BigEndian.AppendUint64(b, uint64(len(w.key)))
	if w.removed {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	b = append(b, w.key...)
	if m.summed = b; len(value) <= most {
		m.summed = append(b, value...)
		m.checksum = xxhash.Sum64(m.summed)
		return
	}
	var d xxhash.Digest
	d.Reset()
	_, _ = d.Write(b)
	_, _ = d.Write(value)
	m.checksum = d.Sum64()
}

// State returns the state below with all changes since the last Committed. It serves to read the effect of
// entries on a state that must not be written. It must not be read during Apply.
func (m *Machine) State() state.Reader { return m.batch }
