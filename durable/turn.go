package durable

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/id"
)

// turn is one task in the hands of this worker: from the moment it arrives until the execution waits,
// ends, or is given back or lost. One goroutine runs it, the function included; the stream tells it from
// outside that it is lost, cancelling or abandoned.
type turn struct {
	w     *Worker
	task  *perdurev1.Task
	key   tokenKey
	info  ExecutionInfo
	codec Codec
	log   *slog.Logger

	// ctx is the function's context. It ends when the task is lost, when the execution is cancelled and
	// replay is over, or when the worker's stop grace is.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// lost is closed when the task is no longer this worker's: nothing more is sent for it.
	lost     chan struct{}
	loseOnce sync.Once
	// cancelAsked is set when anybody said that the execution is to cancel; live when replay is over.
	cancelAsked, live atomic.Bool
	// misuse is the first operation that was called where it must not be.
	misuse atomic.Pointer[MisuseError]

	// leaseFrom is the latest moment from which the lease surely held for its whole length, the zero time if none
	// is known; renewed is closed, and another one made, whenever it gets later.
	leaseMu   sync.Mutex
	leaseFrom time.Time
	renewed   chan struct{}
	// born is the last call id before the task arrived: heartbeats with a later one speak for it.
	born uint64
	// announced: the user was told of the task.
	announced atomic.Bool

	// busy belongs to Worker.mu: the turn counts against the worker's room. So do via and askedAt: the session whose
	// heartbeats have spoken for the turn last, and when the first of them did since one extended the lease; the zero
	// time when none has.
	busy    bool
	via     *session
	askedAt time.Time

	// owner is the goroutine that runs the function; 0 before it begins and once it is over.
	owner atomic.Uintptr

	// What follows belongs to the goroutine.
	journal replay
	// next is the child number the next operation takes; those from len(journal.ops) on are in the buffer.
	next uint32
	buf  buffer
	// inStep names the step that runs, quoted; empty when none does.
	inStep string
	// entered: the function was called. returned: it is over. unwinding: the goroutine is ending by
	// runtime.Goexit on purpose.
	entered, returned, unwinding bool
	// give says how to give the task back once the user's deferred functions have run; nil: not at all.
	give *giveBack
}

// giveBack is a Release to be sent.
type giveBack struct {
	problem string
	delay   time.Duration
}

func newTurn(w *Worker, task *perdurev1.Task) *turn {
	token := task.GetToken()
	t := &turn{
		w: w, task: task, key: keyOf(token),
		lost: make(chan struct{}), renewed: make(chan struct{}),
		log: w.log.With("id", token.GetId(), "function", task.GetFunction()),
		info: ExecutionInfo{
			ID: token.GetId(), Function: task.GetFunction(), Namespace: token.GetNamespace(),
			Incarnation: token.GetIncarnation(), Tags: task.GetTags(),
			Created: time.UnixMilli(task.GetCreatedMs()).UTC(),
		},
		codec:   w.opts.Codec,
		journal: replay{id: id.PromiseID(token.GetId())},
	}
	if ms := task.GetDeadlineMs(); ms > 0 {
		t.info.Deadline = time.UnixMilli(ms).UTC()
	}
	t.ctx, t.cancel = context.WithCancelCause(w.base)
	if task.GetStatus() == perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLING {
		t.cancelAsked.Store(true)
	}
	return t
}

// confirm notes that the lease surely holds for its whole length from a moment on.
func (t *turn) confirm(from time.Time) {
	t.leaseMu.Lock()
	defer t.leaseMu.Unlock()
	if from.After(t.leaseFrom) {
		t.leaseFrom = from
		close(t.renewed)
		t.renewed = make(chan struct{})
	}
}

func (t *turn) lease() (from time.Time, renewed <-chan struct{}) {
	t.leaseMu.Lock()
	defer t.leaseMu.Unlock()
	return t.leaseFrom, t.renewed
}

// leaseLeft is how much longer something may begin under the lease, as far as it is known; see the function of the
// same name.
func (t *turn) leaseLeft(now time.Time) time.Duration {
	from, _ := t.lease()
	return leaseLeft(from, now, t.w.opts.Lease)
}

// secureLease returns when something may begin under the lease: at once while enough of it is left, otherwise once
// a heartbeat has extended it. A turn that is lost meanwhile, or whose worker stops, ends here. asked says that it
// had to wait.
func (t *turn) secureLease() (asked bool) {
	for {
		if t.isLost() {
			t.unwind()
		}
		from, renewed := t.lease()
		if leaseLeft(from, t.w.clock.Now(), t.w.opts.Lease) > 0 {
			return asked
		}
		if t.w.isStopping() {
			t.give = &giveBack{}
			t.unwind()
		}
		asked = true
		t.w.askBeat(t)
		select {
		case <-renewed:
		case <-t.lost:
		case <-t.w.stopping:
		case <-t.w.clock.After(beatRest):
		}
	}
}

// announce tells the user of the task, once.
func (t *turn) announce() {
	if t.announced.CompareAndSwap(false, true) {
		t.w.event(Event{Kind: EventTask, ID: t.info.ID, Function: t.info.Function})
	}
}

// run is the turn's goroutine.
func (t *turn) run() {
	t.owner.Store(goroutine())
	defer t.close()
	asked := t.secureLease()
	t.announce()
	if !t.w.takeSlot(t) {
		return
	}
	defer t.w.freeSlot()
	f := t.w.functions[t.info.Function]
	if f == nil {
		t.giveUp(fmt.Errorf("durable: function %q is not registered with this worker", t.info.Function))
	}
	t.load()
	if asked {
		t.refresh() // what came with the task may be older than what was confirmed
	}
	if t.journal.ended {
		return // nothing can follow; the worker that wrote the end needs no help
	}
	t.checkpoint()
	t.goLiveIfReplayed()
	t.entered = true
	out, err := f.call(execContext{t.ctx, t}, t)
	t.returned = true
	t.complete(out, err)
}

// close is the last thing the goroutine does, however it ends. A panic and a runtime.Goexit that this
// package did not ask for are problems of the function; the execution is given back with them.
func (t *turn) close() {
	p := recover()
	t.owner.Store(0) // the runtime may give the goroutine's number to another one
	defer t.w.turnClosed(t)
	defer t.cancel(errLost)
	switch {
	case t.unwinding:
		if p != nil {
			t.log.Error("panic in a deferred function while the durable function gave up its turn", "panic", p, "stack", string(debug.Stack()))
		}
	case p != nil:
		t.log.Error("panic in a durable function", "panic", p, "stack", string(debug.Stack()))
		t.give = t.w.problem(t, fmt.Errorf("panic: %v", p))
	case t.entered && !t.returned:
		where := ""
		if t.inStep != "" {
			where = " in step " + t.inStep
		}
		t.give = t.w.problem(t, fmt.Errorf("durable: runtime.Goexit was called%s", where))
	}
	if t.give != nil && !t.isLost() {
		t.sendRelease(t.give)
	}
}

// load reads the whole journal: what came with the task, and the rest.
func (t *turn) load() {
	t.ingest(t.task.GetEntries())
	for t.journal.next < t.task.GetNextSeq() {
		if before := t.journal.next; t.readOn() == before {
			t.giveUp(fmt.Errorf("durable: the journal of %s ends at %d, before its announced length %d", t.info.ID, before, t.task.GetNextSeq()))
		}
	}
	if !t.journal.started {
		t.giveUp(fmt.Errorf("durable: the journal of %s does not begin with ExecutionStarted", t.info.ID))
	}
	t.task = nil // its entries are folded
}

// readPage fetches a page of entries.
func (t *turn) readPage(from uint64) []*perdurev1.JournalEntry {
	resp := t.ask(func() *perdurev1.WorkRequest {
		return &perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_ReadJournal{ReadJournal: &perdurev1.ReadJournal{
			Namespace: t.key.namespace, Id: t.key.id, Incarnation: t.key.incarnation, FromSeq: from}}}
	})
	if e := resp.GetError(); e != nil {
		t.refused("reading the journal", e)
	}
	return resp.GetJournal().GetEntries()
}

// readOn fetches a page of entries that were not seen yet and returns the new end.
func (t *turn) readOn() uint64 {
	t.ingest(t.readPage(t.journal.next))
	return t.journal.next
}

// readBack fetches what the reply to a commit lacks, because it was too much for one message: every entry
// that was not seen yet, the worker's own included, as in a reply that is repeated.
func (t *turn) readBack(reply *perdurev1.CommitReply) *perdurev1.CommitReply {
	whole := &perdurev1.CommitReply{State: reply.GetState(), Status: reply.GetStatus(), NextSeq: reply.GetNextSeq(), NextChild: reply.GetNextChild()}
	for next := t.journal.next; next < whole.NextSeq; {
		before := next
		for _, e := range t.readPage(next) {
			if e.GetSeq() == next && next < whole.NextSeq {
				whole.Entries = append(whole.Entries, e)
				next++
			}
		}
		if next == before {
			t.giveUp(fmt.Errorf("durable: the journal of %s lacks entry %d of its %d", t.info.ID, next, whole.NextSeq))
		}
	}
	return whole
}

// refresh fetches everything that arrived since.
func (t *turn) refresh() {
	for before := t.journal.next; t.readOn() != before; before = t.journal.next {
	}
}

func (t *turn) ingest(entries []*perdurev1.JournalEntry) {
	if err := t.journal.ingest(entries); err != nil {
		t.giveUp(err)
	}
	if t.journal.cancelled {
		t.askCancel()
	}
}

// checkpoint is where a turn that must not go on ends. Every operation passes it.
func (t *turn) checkpoint() {
	t.checkRight()
	if t.w.isStopping() {
		t.give = &giveBack{}
		t.unwind()
	}
}

// checkRight ends a turn that is lost, or whose function did what it must not.
func (t *turn) checkRight() {
	if t.isLost() {
		t.unwind()
	}
	if m := t.misuse.Load(); m != nil {
		t.giveUp(m)
	}
}

// unwind ends the goroutine here: the user's deferred functions run, nothing after the call does. The
// function cannot mistake it for an error, because it sees none.
func (t *turn) unwind() {
	t.unwinding = true
	runtime.Goexit()
}

// giveUp unwinds and gives the execution back with a problem, to be tried again later.
func (t *turn) giveUp(err error) {
	t.give = t.w.problem(t, err)
	t.unwind()
}

func (t *turn) isLost() bool {
	select {
	case <-t.lost:
		return true
	default:
		return false
	}
}

// lose is called from outside: the task is somebody else's, or nobody's.
func (t *turn) lose() {
	t.loseOnce.Do(func() {
		close(t.lost)
		t.cancel(errLost)
	})
}

// askCancel is called from anywhere: the execution is to cancel. The function's context ends now, or as
// soon as replay is over: code that looks at it during replay must see what it saw the first time.
func (t *turn) askCancel() {
	t.cancelAsked.Store(true)
	if t.live.Load() {
		t.cancel(ErrCancelled)
	}
}

// goLiveIfReplayed notes the end of replay: every recorded operation was asked for.
func (t *turn) goLiveIfReplayed() {
	if t.live.Load() || int(t.next) < len(t.journal.ops) {
		return
	}
	t.live.Store(true)
	if t.cancelAsked.Load() {
		t.cancel(ErrCancelled)
	}
}

// take gives the operation its child number. rec is what the journal has under it; nil when the function
// is at the frontier, where nothing is recorded. The error is ErrCancelled, at the frontier only.
func (t *turn) take(kind opKind, name string) (n uint32, rec *record, err error) {
	t.mustBeText("the name", name)
	n = t.next
	if rec = t.journal.op(n); rec == nil {
		if t.cancelAsked.Load() {
			return 0, nil, ErrCancelled
		}
		t.next++
		return n, nil, nil
	}
	if rec.kind != kind || (rec.name != name && named(kind)) {
		t.giveUp(&MismatchError{ID: t.child(n), Journal: rec.kind.describe(rec.name),
			Code: "the code asks for " + kind.describe(name)})
	}
	t.next++
	t.goLiveIfReplayed()
	return n, rec, nil
}

// mustBeText gives the execution back when a string is none that a message can carry.
func (t *turn) mustBeText(what, s string) {
	if !utf8.ValidString(s) {
		t.giveUp(fmt.Errorf("durable: %s of %s, %q, is not valid UTF-8", what, t.child(t.next), s))
	}
}

// named says that operations of this kind have a name to compare.
func named(k opKind) bool { return k == opStep || k == opChild || k == opSend || k == opSignal }

// child is the id of the n-th operation.
func (t *turn) child(n uint32) string { return string(t.journal.id.Child(n)) }

// outcome is the recorded result of the n-th operation, which is resolved.
func (t *turn) outcome(n uint32) ([]byte, error) {
	o := t.journal.op(n).outcome
	if f := o.GetFailure(); f != nil {
		return nil, errorOf(f)
	}
	return o.GetValue(), nil
}

// complete ends the execution with what the function returned.
func (t *turn) complete(out []byte, err error) {
	t.checkRight() // a worker that stops still records what is finished
	if t.cancelAsked.Load() {
		t.acknowledge()
		return
	}
	if int(t.next) < len(t.journal.ops) {
		rec := t.journal.ops[t.next]
		t.giveUp(&MismatchError{ID: t.child(t.next), Journal: rec.kind.describe(rec.name), Code: "the code returns before it"})
	}
	end := &perdurev1.Event{Kind: &perdurev1.Event_ExecutionCompleted{ExecutionCompleted: &perdurev1.ExecutionCompleted{Result: out}}}
	if err != nil {
		end.Kind = &perdurev1.Event_ExecutionFailed{ExecutionFailed: &perdurev1.ExecutionFailed{Error: failureOf(err)}}
	}
	if t.commit(commit{events: []*perdurev1.Event{end}, mayEnd: true}) != nil {
		t.acknowledge()
		return
	}
	t.giveUp(fmt.Errorf("durable: the task of %s is still held after its end was committed", t.info.ID))
}

// acknowledge ends a cancelled execution. What the function returned does not matter any more.
func (t *turn) acknowledge() {
	if !t.journal.cancelled {
		t.refresh() // a heartbeat said it; the reason is in the journal
	}
	if !t.journal.cancelled {
		t.giveUp(fmt.Errorf("durable: %s is said to be cancelling, its journal does not say so", t.info.ID))
	}
	t.dropBuffer()
	_ = t.commit(commit{mayEnd: true, acknowledges: true, events: []*perdurev1.Event{{Kind: &perdurev1.Event_ExecutionCancelled{
		ExecutionCancelled: &perdurev1.ExecutionCancelled{Reason: t.journal.reason}}}}})
	t.giveUp(fmt.Errorf("durable: the task of %s is still held after its cancellation was acknowledged", t.info.ID))
}
