package machine

import (
	"perdure/entity"
	"perdure/journal"
	"perdure/recovery"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// txn holds one command's writes over the entry's. commit and abort apply to it as a whole.
type txn struct {
	*layer
	m *Machine
	// index is the entry's, above all incarnations before it.
	index uint64
	now   int64
	fx    Effects
	// touched are the executions this transaction has read or changed, in order.
	touched []*execution
	// headers are those of touched when the transaction first read them.
	headers []state.Header
	// undos are the memory of journals' transactions, of which this transaction uses the first undone.
	undos  []*journal.Undo
	undone int
	// entities are the entities that this transaction has read or changed, in order. posted are messages of this
	// partition that it has yet to receive.
	entities []*entityObject
	posted   []posted
	// promise and task are the last ones read or written, decoded: most commands read the same one several
	// times. formerPromise and formerTask are those of the access before, of another id.
	promise, formerPromise lastPromise
	task, formerTask       lastTask
	// place is the place in a queue whose task is being assigned.
	place lastPlace
	// space is the store of the namespace that was used last.
	space *store
	// level is the feature level that the transaction needs; 0 for any.
	level uint64
	// terminating is the execution that is being terminated, and gets no clean-up.
	terminating *execution
	// graphStarts counts the nodes of graphs that this transaction has started.
	graphStarts int
	// sweepLeft is 1 more than the keys that this transaction's sweeps may still read; 0 before the first.
	sweepLeft int
	// ready are changes of the queues' lengths, stuck is that of the number of stuck executions.
	ready []readyChange
	stuck int
	// deadlines holds the positions at which this transaction's searches for deadlines ended; 0 for kinds that it
	// did not search.
	deadlines state.DeadlineScan
}

type readyChange struct {
	queue state.Queue
	by    int
}

// queued notes a change of a queue's length.
func (t *txn) queued(q state.Queue, by int) {
	if n := len(t.ready); n > 0 && t.ready[n-1].queue == q {
		t.ready[n-1].by += by
		return
	}
	t.ready = append(t.ready, readyChange{q, by})
}

func newTxn(m *Machine) *txn { return &txn{m: m, layer: m.batch.above()} }

func (t *txn) begin(index uint64) {
	t.reset()
	t.index, t.now = index+t.m.base, t.m.clock
	t.fx = Effects{}
	t.untouch()
	t.undone = 0
	t.entities, t.posted = t.entities[:0], nil
	t.ready = t.ready[:0]
	t.graphStarts, t.level, t.sweepLeft, t.terminating, t.stuck = 0, 0, 0, nil, 0
	t.deadlines, t.promise.born, t.place = state.DeadlineScan{}, false, lastPlace{}
}

// undo is memory for a transaction of a journal, which ends with this one.
func (t *txn) undo() *journal.Undo {
	if t.undone == len(t.undos) {
		t.undos = append(t.undos, &journal.Undo{})
	}
	t.undone++
	return t.undos[t.undone-1]
}

// idle reports that the transaction has changed nothing and has nothing to do at its end. Another command may use it as it
// is then.
func (t *txn) idle() bool {
	for _, ex := range t.touched {
		if ex.dirty {
			return false
		}
	}
	return len(t.table.log) == 0 && len(t.entities) == 0 && len(t.posted) == 0 && t.level == 0 && t.sweepLeft == 0 && t.deadlines == state.DeadlineScan{}
}

// commitChecked receives the messages of this partition, checks the invariants, if so configured, then commits.
func (t *txn) commitChecked(fx *Effects) error {
	t.deliverPosted()
	t.putEntities()
	t.inlineEnded()
	if t.m.cfg.CheckInvariants && t.m.importing == 0 {
		if err := t.checkInvariants(); err != nil {
			return err
		}
	}
	t.commit(fx)
	return nil
}

// commit hands the writes to the entry and adds them to the checksum.
func (t *txn) commit(fx *Effects) {
	for _, ex := range t.touched {
		if ex.dirty {
			t.putHeader(ex)
			if ex.h.Kind == state.KindGraph {
				t.fx.Graphs = append(t.fx.Graphs, state.Ref{Namespace: ex.ns, ID: ex.h.ID})
			}
		}
		if ex.j != nil {
			ex.j.Commit()
			if ex.run.commit(); ex.run != nil {
				t.m.cache.keep(ex) // before the attempts that it has started
			}
			t.m.cache.resize(ex)
		}
		ex.dirty, ex.touched, ex.born = false, false, false
		if ex.h.ClosedMS != 0 {
			t.m.cache.drop(ex) // a further read is unlikely
		}
	}
	t.m.cache.trim()
	t.keepEntities()
	if t.m.feature < t.level {
		t.m.feature = t.level
		t.m.putMeta(state.MetaFeature, t.level)
	}
	for kind, from := range t.deadlines {
		t.m.deadlines[kind] = max(t.m.deadlines[kind], from)
	}
	var empty []byte
	for _, w := range t.table.log {
		if !w.void {
			if w.key[0] == byte(keys.Deadline) && !w.removed {
				t.m.deadlines.Lower(w.key)
			}
			t.m.sum(w)
			empty = t.m.count(w, empty)
			t.m.reads.absences.write(w)
			t.m.batch.set(w)
		}
	}
	for _, c := range t.ready {
		t.m.queued(c.queue, c.by)
	}
	t.m.stuck += t.stuck
	fx.add(&t.fx)
	t.reset()
	t.untouch()
	t.ready = t.ready[:0]
}

// putHeader writes a header as it is in memory. One with a long journal is seldom read before the next commit replaces it, so it is
// encoded when it is: a fan-out of 20 would copy its journal twenty times.
func (t *txn) putHeader(ex *execution) {
	const long = arenaChunk / 8
	key := t.of(keys.Header, ex.ns, ex.h.ID)
	switch n := headerSize(&ex.h); {
	case len(ex.h.Open) > long:
		w := t.spare.next()
		w.key, w.object = key, t.spare.copyOf(&ex.h)
		t.set(w)
	case n > long:
		t.put(key, ex.h.Append(make([]byte, 0, n))) // it would grow beyond the arena's chunk, by more than it needs
	default:
		t.put(key, t.m.arena.close(ex.h.Append(t.m.arena.open())))
	}
	ex.dirty = false
}

// abort drops all writes and rolls back the executions in memory.
func (t *txn) abort() {
	for i, ex := range t.touched {
		if ex.j != nil {
			ex.j.Rollback()
		}
		ex.run.rollback()
		if ex.born {
			t.m.cache.drop(ex)
		}
		ex.h, ex.dirty, ex.touched, ex.born, ex.ending = t.headers[i], false, false, false, false
		ex.holder, ex.short = nil, shortOf(&ex.h)
		switch {
		case ex.place == nil:
		case ex.h.ClosedMS != 0:
			t.m.cache.drop(ex)
		case ex.j != nil:
			t.m.cache.resize(ex)
		}
	}
	t.m.cache.trim()
	for _, o := range t.entities {
		t.m.entities.drop(o)
	}
	t.entities, t.posted = t.entities[:0], nil
	t.forgetLast()
	t.reset()
	t.untouch()
	t.ready = t.ready[:0]
	t.fx = Effects{}
}

// untouch empties the list of touched executions. The memory of a large one is not kept.
func (t *txn) untouch() {
	const kept = 1024
	clear(t.headers)
	t.touched, t.headers = t.touched[:0], t.headers[:0]
	if cap(t.headers) > kept {
		t.headers = nil
	}
}

// stored reads the state without allocating keys.
func (t *txn) stored() state.Must { return state.Must{From: t, Space: t.m.arena.open()} }

// of, deadlineOf and visibilityOf are keys.Of, keys.DeadlineOf and keys.VisibilityOf in the arena.
func (t *txn) of(f keys.Family, parts ...string) []byte {
	return t.m.arena.close(keys.Append(t.m.arena.open(), f, parts...))
}

func (t *txn) deadlineOf(kind keys.DeadlineKind, at int64, ns, objectID string) []byte {
	return t.m.arena.close(keys.AppendDeadline(t.m.arena.open(), kind, at, ns, objectID))
}

func (t *txn) visibilityOf(ns string, class keys.VisibilityClass, createdMS int64, objectID string) []byte {
	return t.m.arena.close(keys.AppendVisibility(t.m.arena.open(), ns, class, createdMS, objectID))
}

// get is Get for rules whose interfaces have no error; see Must.
func (t *txn) get(key []byte) ([]byte, bool) { return state.Must{From: t}.Get(key) }

// scan is Scan likewise.
func (t *txn) scan(lower, upper []byte, fn func(key, value []byte) bool) {
	state.Must{From: t}.Scan(lower, upper, fn)
}

// effects adds the effects of a recovery rule to the entry's. Its Unblocks are empty: see store.Listeners.
func (t *txn) effects(ns string, fx recovery.Effects) {
	for _, e := range fx.Executes {
		task, ok := t.store(ns).Task(e.ID)
		if !ok || task.State != recovery.TaskPending {
			continue
		}
		if address, client := state.AddressOf(e.Target); client {
			t.put(keys.ReadyOf(ns, e.Target, task.RetryAt, e.ID), []byte{})
			t.fx.Executed = append(t.fx.Executed, Execute{Namespace: ns, Address: address, ID: e.ID, Version: e.Version})
			continue
		}
		q, value := state.QueueOf(ns, e.Target), []byte{}
		if t.m.feature >= state.LevelFunctions {
			value = state.PlaceWithRetry
			t.remove(t.deadlineOf(keys.DeadlineRetry, task.RetryAt, ns, e.ID))
		}
		t.putFresh(t.m.arena.close(keys.AppendReady(t.m.arena.open(), ns, e.Target, task.RetryAt, e.ID)), value)
		t.queued(q, 1)
		if n := len(t.fx.Ready); n == 0 || t.fx.Ready[n-1] != q {
			t.fx.Ready = append(t.fx.Ready, q)
		}
	}
}

// ruleError converts a refusal of the rules into an API error.
func ruleError(ns string, err error) *api.Error {
	switch e := err.(type) {
	case nil:
		return nil
	case *api.Error:
		return e
	case *entity.Error:
		return api.Errorf(perdurev1.Reason_REASON_RULE_BROKEN, "%s", e.Error()).
			With("namespace", ns).With("id", string(e.Entity)).With("rule", e.Rule)
	case *journal.Violation:
		return api.Errorf(perdurev1.Reason_REASON_RULE_BROKEN, "%s", e.Error()).
			With("namespace", ns).With("id", string(e.Execution)).With("rule", e.Rule)
	case *recovery.Error:
		reason := perdurev1.Reason_REASON_RULE_BROKEN
		switch {
		case e.Code == recovery.NotFound:
			reason = perdurev1.Reason_REASON_PROMISE_NOT_FOUND
		case e.Code == recovery.Invalid:
			reason = perdurev1.Reason_REASON_BAD_REQUEST
		case e.Rule == recovery.RuleVersion || e.Rule == recovery.RuleIncarnation || e.Rule == recovery.RuleState:
			reason = perdurev1.Reason_REASON_STALE_TASK
		}
		return api.Errorf(reason, "%s", e.Error()).With("namespace", ns).With("id", e.ID).With("rule", e.Rule)
	default:
		panic(state.Fault{Err: err})
	}
}
