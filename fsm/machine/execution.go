package machine

import (
	"container/list"
	"errors"
	"math"
	"strconv"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/entity"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/id"
	"perdure/journal"
	"perdure/recovery"
)

// execution is an execution in the machine's memory: its header and the guard state of its journal. It is a
// cache of what is stored.
type execution struct {
	ns string
	h  state.Header
	// j is the guard state of the journal. For an ended execution it is nil until history reads it.
	j *journal.State
	// holder is what entities know of it, nil until holder reads it.
	holder *entity.Holder
	// started is the start, in memory until the task is first acquired; see first.
	started journal.Event
	// waited are the entries since the commit that waits, in memory until the task is acquired; see afterWait.
	waited *waited
	// short are the entries of a journal that may become inline.
	short shortJournal
	// run is the graph run in memory. It is nil until graph reads it, and for all other kinds.
	run *graphRun
	// alone is the incarnation of which it is known that no promise had an id below the execution's when an operation
	// of it asked first; 0: of none. See commit.alone.
	alone uint64
	// dirty: the transaction's commit must write the header.
	dirty bool
	// touched: the execution is on the transaction's list. born says that this transaction created it, ending that it has
	// closed it, and has not listed it since: see inlineEnded.
	touched, born, ending bool
	place                 *list.Element
	// size is what the cache counts for it.
	size int
}

// execCache keeps the most recently used executions. Its content never reaches state or output.
type execCache struct {
	max, maxBytes int
	bytes         int
	byKey         map[state.Ref]*execution
	order         *list.List
	// found and foundBefore are the executions that were found last, both in byKey; nil for none.
	found, foundBefore *execution
}

func newExecCache(max, maxBytes int) *execCache {
	return &execCache{max: max, maxBytes: maxBytes, byKey: map[state.Ref]*execution{}, order: list.New()}
}

// leastCached is how many executions the cache holds regardless of their size: reading a long journal at
// every commit costs more than the memory.
const leastCached = 8

func (c *execCache) get(ns, objectID string) *execution {
	if ex := c.found; ex != nil && ex.h.ID == objectID && ex.ns == ns {
		return ex
	}
	if ex := c.foundBefore; ex != nil && ex.h.ID == objectID && ex.ns == ns {
		c.found, c.foundBefore = ex, c.found
		return ex
	}
	ex := c.byKey[state.Ref{Namespace: ns, ID: objectID}]
	if ex != nil {
		c.found, c.foundBefore = ex, c.found
	}
	return ex
}

// keep makes an execution the most recently used one.
func (c *execCache) keep(ex *execution) {
	if ex.place != nil {
		c.order.MoveToFront(ex.place)
		return
	}
	c.lose(ex) // it may follow another one of its id
	ex.place = c.order.PushFront(ex)
	c.byKey[state.Ref{Namespace: ex.ns, ID: ex.h.ID}] = ex
}

// lose forgets that an execution of the id of ex was found.
func (c *execCache) lose(ex *execution) {
	for _, found := range [...]**execution{&c.found, &c.foundBefore} {
		if *found != nil && (*found).h.ID == ex.h.ID && (*found).ns == ex.ns {
			*found = nil
		}
	}
}

// resize updates an execution's counted size, which depends on its buffered signals and its number of
// operations.
func (c *execCache) resize(ex *execution) {
	c.bytes -= ex.size
	ex.size = ex.j.Size() + ex.run.size() + ex.waited.size() + cap(ex.short.bytes)
	c.bytes += ex.size
}

// trim evicts the least recently used executions. It must not run within a transaction, whose touched
// executions must stay.
func (c *execCache) trim() {
	for c.order.Len() > c.max || c.bytes > c.maxBytes && c.order.Len() > leastCached {
		c.drop(c.order.Back().Value.(*execution))
	}
}

func (c *execCache) drop(ex *execution) {
	if ex.place != nil {
		c.order.Remove(ex.place)
		ex.place = nil
	}
	c.bytes, ex.size = c.bytes-ex.size, 0
	c.lose(ex)
	if c.byKey[state.Ref{Namespace: ex.ns, ID: ex.h.ID}] == ex {
		delete(c.byKey, state.Ref{Namespace: ex.ns, ID: ex.h.ID})
	}
}

// retryBound is the option of every journal.
var retryBound = journal.WithRetryBound(state.RetryBound)

func newJournal(objectID string) *journal.State {
	return journal.New(id.PromiseID(objectID), retryBound)
}

// touch puts an execution on the transaction's list.
func (t *txn) touch(ex *execution) *execution {
	if !ex.touched {
		ex.touched = true
		if ex.j != nil {
			ex.j.BeginWith(t.undo())
		}
		ex.run.begin()
		t.touched, t.headers = append(t.touched, ex), append(t.headers, ex.h)
		t.m.cache.keep(ex)
	}
	return ex
}

// execution finds an execution, reading its journal if it is not in memory. For an ended execution it reads
// only the header, so its cost does not depend on the journal's length.
func (t *txn) execution(ns, objectID string) (*execution, bool) {
	if ex := t.m.cache.get(ns, objectID); ex != nil {
		return t.touch(ex), true
	}
	// An execution has a promise, so a new id takes one read.
	if _, ok := t.store(ns).Promise(objectID); !ok {
		return nil, false
	}
	h, ok := t.stored().Header(ns, objectID)
	if !ok {
		return nil, false
	}
	ex := &execution{ns: ns, h: h}
	if !h.Status.Terminal() {
		ex.j = t.readJournal(ex)
	}
	return t.touch(ex), true
}

// history returns the guard state of an execution's journal, and reads the journal first if needed.
func (t *txn) history(ex *execution) *journal.State {
	if ex.j == nil {
		ex.j = t.readJournal(ex)
		ex.j.BeginWith(t.undo())
	}
	return ex.j
}

// readJournal builds the guard state from the stored journal.
func (t *txn) readJournal(ex *execution) *journal.State {
	j, h := newJournal(ex.h.ID), &ex.h
	t.journalEntries(ex, 0, math.MaxUint64, func(key, value []byte) bool {
		entry, err := journal.DecodeEntry(value)
		if err == nil {
			err = j.Append(entry.Seq, entry.Event)
		}
		ex.short.add(entry.Seq, value)
		if err != nil {
			state.PanicCorrupt("journal", key, err)
		}
		return true
	})
	if j.NextSeq() != h.Events || j.Status() != h.Status {
		state.PanicCorrupt("journal", keys.JournalPrefix(ex.ns, h.ID, h.Incarnation), errors.New("it has "+strconv.FormatUint(j.NextSeq(), 10)+" entries and ends "+j.Status().String()+
			", the header says "+strconv.FormatUint(h.Events, 10)+" and "+h.Status.String()))
	}
	return j
}

// append adds one event to an execution's journal. The guard checks it; on a refusal the caller aborts the
// transaction.
func (t *txn) append(ex *execution, ev journal.Event) error {
	seq := ex.j.NextSeq()
	if err := ex.j.Append(seq, ev); err != nil {
		return err
	}
	a := &t.m.arena
	b := a.close(journal.AppendEntry(a.open(), journal.Entry{Seq: seq, Time: t.now, Event: ev}))
	t.putEntry(ex, seq, b)
	ex.h.Events, ex.h.Status = ex.j.NextSeq(), ex.j.Status()
	ex.h.Leaf = ex.h.Leaf && state.IsRecord(ev)
	ex.dirty = true
	if ex.waited != nil {
		ex.waited = ex.waited.add(journal.Entry{Seq: seq, Time: t.now, Event: ev})
	}
	if ex.h.Events == t.m.cfg.LongJournal {
		t.fx.Long = append(t.fx.Long, state.Ref{Namespace: ex.ns, ID: ex.h.ID})
	}
	return nil
}

// must appends an event that the rules cannot refuse; a refusal is a defect and stops the replica.
func (t *txn) must(ex *execution, ev journal.Event) {
	if err := t.append(ex, ev); err != nil {
		panic(state.Fault{Err: err})
	}
}

// birth holds the parameters of a new execution.
type birth struct {
	id, function, digest string
	input                []byte
	tags                 []recovery.Tag
	deadlineMS           int64 // 0: none
	startMS              int64 // when its task becomes pending; 0: at once
	policy               state.ClosePolicy
	parent               string
	parentIncarnation    uint64
	parentPromise        string
	key                  string
	request              []byte
	retry                state.Retry
	// graph makes it a graph run, which has no task. stored is its encoding with the input; the other fields are for a
	// run that continues an earlier incarnation.
	graph      *perdurev1.Graph
	stored     []byte
	generation uint32
	former     uint64
	signals    []latch
}

// start creates an execution: its promise, its task (pending), its header, the first journal entry, and its
// listing entry. The id must be free.
func (t *txn) start(ns string, b birth) (*execution, error) {
	if b.function == "" {
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "execution %q names no function", b.id).
			With("namespace", ns).With("id", b.id)
	}
	timeout := b.deadlineMS
	if timeout == 0 {
		timeout = state.Never
	}
	req := recovery.CreateRequest{ID: b.id, Incarnation: t.index, Tags: b.tags, Target: t.pinnedTarget(b.function, b.digest), TimeoutAt: timeout}
	if b.startMS > t.now {
		req.DelayUntil = b.startMS
	}
	kind := state.KindFunction
	if b.graph != nil {
		kind = state.KindGraph
		req.Target, req.External, req.Tags = "", true, state.WithGraphTag(b.tags)
	}
	_, fx, err := recovery.Create(t.store(ns), t.now, req, retryMS)
	if err != nil {
		return nil, err
	}
	ex := t.touch(&execution{
		ns: ns, born: true,
		h: state.Header{
			ID: b.id, Incarnation: t.index, Function: b.function, Digest: b.digest, CreatedMS: t.now,
			DeadlineMS: b.deadlineMS, Tags: b.tags, Parent: b.parent, ParentIncarnation: b.parentIncarnation,
			ParentPromise: b.parentPromise, StartRequest: b.request, Kind: kind, Generation: b.generation, Former: b.former,
			HeaderMore: state.HeaderMore{ClosePolicy: b.policy, Retry: b.retry, Leaf: kind == state.KindFunction && b.generation == 0 && t.m.feature >= state.LevelLeaves},
		},
		j: newJournal(b.id),
	})
	started, kept := mayKeep(journal.ExecutionStarted{ComponentDigest: b.digest, Input: b.input, Parent: id.PromiseID(b.parent), IdempotencyKey: b.key})
	if err := t.append(ex, started); err != nil {
		return nil, err
	}
	if kept && b.graph == nil {
		ex.started = started
	}
	t.effects(ns, fx)
	if b.graph != nil {
		t.putGraph(ex, b)
	}
	t.putFresh(t.visibilityOf(ns, keys.Open, ex.h.CreatedMS, b.id), t.m.arena.close(state.AppendListingOpen(t.m.arena.open(), b.function)))
	if p, _ := t.store(ns).Promise(b.id); p.State != recovery.PromisePending {
		// The deadline had expired before the start.
		t.ended(ns, recovery.Settlement{Promise: p, Changed: true})
	}
	if b.graph != nil {
		t.advance(ex)
	}
	return ex, nil
}

// close records the end of an execution in its header and in the listing.
func (t *txn) close(ex *execution) {
	if ex.h.ClosedMS != 0 {
		return
	}
	ex.h.ClosedMS = t.now
	t.leaveSection(ex)
	t.dropHeartbeats(ex)
	t.reachChildren(ex)
	defer t.startCleanup(ex)
	if ex.h.IsCleanup() {
		t.cleanedUp(ex)
	}
	if ex.h.GraceAt != 0 {
		t.remove(t.deadlineOf(keys.DeadlineGrace, ex.h.GraceAt, ex.ns, ex.h.ID))
		ex.h.GraceAt = 0
	}
	if ex.h.GraphAt != 0 {
		t.remove(t.deadlineOf(keys.DeadlineGraph, ex.h.GraphAt, ex.ns, ex.h.ID))
		ex.h.GraphAt = 0
	}
	ex.h.Leaf = ex.h.Leaf && ex.h.CleanupMS == 0
	ex.dirty = true
	t.remove(t.visibilityOf(ex.ns, keys.Open, ex.h.CreatedMS, ex.h.ID))
	if ex.ending = t.mayInline(ex); !ex.ending {
		t.spill(ex)
		t.listEnd(ex)
	}
}

// listEnd writes the listing entry of an ended execution.
func (t *txn) listEnd(ex *execution) {
	t.put(t.visibilityOf(ex.ns, closedClass(ex.h.Status), ex.h.CreatedMS, ex.h.ID),
		t.m.arena.close(state.AppendListingClosed(t.m.arena.open(), &ex.h)))
}

func finished(ex *execution) *api.Error {
	return api.Errorf(perdurev1.Reason_REASON_ALREADY_FINISHED, "execution %q has ended: %s", ex.h.ID, ex.h.Status).
		With("namespace", ex.ns).With("id", ex.h.ID).With("status", ex.h.Status.String())
}

// closedClass is the listing class of an ended execution.
func closedClass(s journal.Status) keys.VisibilityClass {
	switch s {
	case journal.StatusCompleted:
		return keys.Completed
	case journal.StatusFailed:
		return keys.Failed
	default:
		return keys.Cancelled
	}
}

// closedStatus is a status of a class of ended executions; 0 for another class.
func closedStatus(class keys.VisibilityClass) journal.Status {
	switch class {
	case keys.Completed:
		return journal.StatusCompleted
	case keys.Failed:
		return journal.StatusFailed
	case keys.Cancelled:
		return journal.StatusCancelled
	}
	return 0
}
