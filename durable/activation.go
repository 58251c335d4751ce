package durable

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/id"
)

// activation is a run of a function on this worker. It acts for a hold, which says whether its task is still
// this worker's. One goroutine runs it, the function included.
type activation struct {
	*hold
	w    *Worker
	task *perdurev1.Task // until load
	// wait is the state of a function that waits in memory.
	wait stickyWait
	info ExecutionInfo
	// codec is the function's.
	codec Codec

	// ctx is the function's context. It ends when the task is lost, when the execution is cancelled and
	// replay has ended, or when the worker's stop grace ends.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// live is set when replay has ended.
	live atomic.Bool
	// misuse is the first operation that was called where it is not allowed.
	misuse atomic.Pointer[MisuseError]

	// owner is the goroutine that runs the function; 0 before it begins and after it ends.
	owner atomic.Uintptr

	// The goroutine alone uses the fields below.
	journal history
	// next is the child number the next operation takes; those from len(journal.ops) on are in the buffer.
	next uint32
	buf  buffer
	// held is about the results of steps in the buffer.
	held held
	// takesInput decodes an input as the function's.
	takesInput func(data []byte) error
	// section is the critical section that the function is in; nil for none.
	section *section
	// cleanups is what the function has registered to be run if it does not succeed.
	cleanups cleanups
	// background are the steps that GoStep started.
	background background
	// joined are the operations that are in a join set.
	joined map[uint32]bool
	// signals are the next signals that the function waits for by futures, by name.
	signals map[string]*nextSignal
	// versions are the versions of changes that the function has asked for.
	versions map[string]int
	// inStep names the step that runs; empty when none does.
	inStep string
	// entered: the function was called. returned: it has returned. unwinding: unwind ends the goroutine by
	// runtime.Goexit. over: the execution's end is recorded.
	entered, returned, unwinding, over bool
	// slot: it counts as a function that runs. idle: it has no hold, since the function waits in memory or was dropped.
	slot, idle bool
	// continued counts the waits after which the function continued in memory.
	continued int
	// release is what the activation sends after the user's deferred functions have run; nil for none.
	release *taskRelease
	// check is set if the activation checks a journal, for no task.
	check *replayCheck
}

// taskRelease is the Release of a task, before it is sent.
type taskRelease struct {
	problem string
	delay   time.Duration
	// mismatch: the code does not fit the journal.
	mismatch bool
}

// newActivation makes the activation that acts for a hold.
func newActivation(h *hold, task *perdurev1.Task) *activation {
	t := &activation{
		hold: h, w: h.w, task: task, info: infoOf(task), codec: h.w.opts.Codec,
		journal: history{id: id.PromiseID(h.key.id)},
	}
	t.cleanups.armed, t.cleanups.of = task.GetCleanupMs(), task.GetCleanupOf()
	t.ctx, t.cancel = context.WithCancelCause(t.w.base)
	h.attach(t)
	return t
}

// infoOf describes a task's execution to its function.
func infoOf(task *perdurev1.Task) ExecutionInfo {
	token := task.GetToken()
	info := ExecutionInfo{
		ID: token.GetId(), Function: task.GetFunction(), Namespace: token.GetNamespace(),
		Incarnation: token.GetIncarnation(), Tags: task.GetTags(),
		Created: time.UnixMilli(task.GetCreatedMs()).UTC(),
	}
	if ms := task.GetDeadlineMs(); ms > 0 {
		info.Deadline = time.UnixMilli(ms).UTC()
	}
	if of := task.GetCleanupOf(); of != nil {
		// The function sees the execution that it was.
		info.ID, info.Function, info.Incarnation = of.GetId(), of.GetFunction(), of.GetIncarnation()
		info.Created, info.Deadline = time.UnixMilli(of.GetCreatedMs()).UTC(), time.Time{}
		if ms := of.GetDeadlineMs(); ms > 0 {
			info.Deadline = time.UnixMilli(ms).UTC()
		}
		info.Cleanup = token.GetId()
	}
	return info
}

// secureLease blocks until a step may begin under the lease: at once while enough of it is left, otherwise until a
// heartbeat has extended it. It unwinds if the task is lost or the worker stops. asked reports that it had to wait.
func (t *activation) secureLease() (asked bool) {
	for {
		if t.isLost() {
			t.unwind()
		}
		if t.leaseLeft(t.w.clock.Now()) > 0 {
			return asked
		}
		from, renewed := t.renewal()
		if leaseLeft(from, t.w.clock.Now(), t.w.opts.Lease) > 0 {
			return asked
		}
		if t.w.isStopping() {
			t.release = &taskRelease{}
			t.unwind()
		}
		asked = true
		t.w.askBeat(t.hold)
		select {
		case <-renewed:
		case <-t.lost:
		case <-t.w.stopping:
		case <-t.w.clock.After(beatRest):
		}
	}
}

// begin runs an activation in a goroutine: in one that has run others, whose stack has grown already, or in a new one.
func (w *Worker) begin(t *activation) {
	select {
	case w.begun <- t:
	default:
		go w.runActivations(t)
	}
}

func (w *Worker) runActivations(t *activation) {
	for t != nil {
		t.run() // which ends the goroutine if the activation unwinds
		t = w.nextActivation()
	}
}

// maxIdle is how many goroutines wait for their next activation.
const maxIdle = 64

// nextActivation blocks until there is another activation; nil if the goroutine is to end.
func (w *Worker) nextActivation() *activation {
	w.mu.Lock()
	waits := !w.over && w.ctx != nil && w.waiting < maxIdle
	if waits {
		w.waiting++
		w.running.Add(1)
	}
	w.mu.Unlock()
	if !waits {
		return nil
	}
	defer func() {
		w.mu.Lock()
		w.waiting--
		w.mu.Unlock()
		w.running.Done()
	}()
	select {
	case t := <-w.begun:
		return t
	case <-w.ctx.Done():
		return nil
	}
}

// run runs the function, and what it needs before and after it.
func (t *activation) run() {
	t.owner.Store(goroutine())
	defer t.close()
	asked := t.secureLease()
	t.announce()
	defer t.leaveSlot()
	t.enterSlot()
	f := t.w.functions[t.info.Function]
	if f == nil {
		t.failTask(fmt.Errorf("durable: function %q is not registered with this worker", t.info.Function))
	}
	if e, ok := f.(runner); ok && t.task.GetEntity() != nil {
		t.runEntity(e)
		return
	}
	t.load(t.task)
	t.task = nil // its entries are folded
	if asked {
		t.refresh() // the entries in the task may be older than the lease that the heartbeat confirmed
	}
	if t.journal.ended {
		return // nothing can follow the end
	}
	if t.cleanups.of != nil {
		t.loadCancelled()
	}
	t.checkpoint()
	ctx := execContext{t.functionContext(), t}
	t.goLiveIfReplayed()
	t.entered = true
	out, err := f.call(ctx, t)
	switch {
	case t.cleanups.of != nil:
		out, err = nil, t.cleanUp(ctx, err)
	case err != nil:
		err = t.afterError(ctx, err)
	}
	t.returned = true
	t.complete(out, err)
}

// close ends the goroutine's work, however it ends. A panic, or a runtime.Goexit that this package did not call, is a
// problem of the function: close releases the task with it.
func (t *activation) close() {
	p := recover()
	t.owner.Store(0) // the runtime may give the goroutine's number to another one
	defer t.w.activationClosed(t)
	defer t.cancel(errLost)
	t.background.stop() // before the task goes to another worker
	switch {
	case t.unwinding:
		if p != nil {
			t.logger().Error("panic in a deferred function", "event", "deferred_panic", "panic", p, "stack", string(debug.Stack()))
		}
	case p != nil:
		t.logger().Error("panic in a durable function", "event", "function_panic", "panic", p, "stack", string(debug.Stack()))
		t.release = t.w.problem(t, fmt.Errorf("panic: %v", p))
	case t.entered && !t.returned:
		where := ""
		if t.inStep != "" {
			where = " in step " + strconv.Quote(t.inStep)
		}
		t.release = t.w.problem(t, fmt.Errorf("durable: runtime.Goexit was called%s", where))
	}
	t.recordHeld()
	if t.release != nil && !t.isLost() {
		t.sendRelease(t.release)
	}
}

// load reads the journal: the entries that came with the task, unless it leaves out some that are needed, and the rest.
func (t *activation) load(task *perdurev1.Task) {
	if firstSeq(task) <= t.journal.next {
		t.ingest(task.GetEntries())
	}
	for t.journal.next < task.GetNextSeq() {
		if before := t.journal.next; t.readOn() == before {
			t.failTask(fmt.Errorf("durable: the journal of %s ends at %d, before its announced length %d", t.info.ID, before, task.GetNextSeq()))
		}
	}
	if !t.journal.started {
		t.failTask(fmt.Errorf("durable: the journal of %s does not begin with ExecutionStarted", t.info.ID))
	}
}

// firstSeq is the number of the first entry that came with a task.
func firstSeq(task *perdurev1.Task) uint64 {
	if entries := task.GetEntries(); len(entries) > 0 {
		return entries[0].GetSeq()
	}
	return 0
}

// readPage fetches a page of entries.
func (t *activation) readPage(from uint64) []*perdurev1.JournalEntry {
	return t.readPageOf(t.key.id, t.key.incarnation, from)
}

// readPageOf fetches a page of the journal of any execution.
func (t *activation) readPageOf(executionID string, incarnation, from uint64) []*perdurev1.JournalEntry {
	resp := t.ask(func() *perdurev1.WorkRequest {
		return &perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_ReadJournal{ReadJournal: &perdurev1.ReadJournal{
			Namespace: t.key.namespace, Id: executionID, Incarnation: incarnation, FromSeq: from}}}
	})
	if e := resp.GetError(); e != nil {
		t.refused("reading the journal", e)
	}
	return resp.GetJournal().GetEntries()
}

// readOn fetches a page of entries that were not seen yet and returns the new end.
func (t *activation) readOn() uint64 {
	t.ingest(t.readPage(t.journal.next))
	return t.journal.next
}

// readBack fetches the entries that the reply to a commit leaves out because one message cannot carry them.
// It reads every entry that was not seen yet, the worker's own included, as in a reply that is repeated.
func (t *activation) readBack(reply *perdurev1.CommitReply) *perdurev1.CommitReply {
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
			t.failTask(fmt.Errorf("durable: the journal of %s lacks entry %d of its %d", t.info.ID, next, whole.NextSeq))
		}
	}
	return whole
}

// refresh fetches everything that arrived since.
func (t *activation) refresh() {
	for before := t.journal.next; t.readOn() != before; before = t.journal.next {
	}
}

func (t *activation) ingest(entries []*perdurev1.JournalEntry) {
	if err := t.journal.ingest(entries); err != nil {
		t.failTask(err)
	}
	if t.journal.cancelled {
		t.askCancel()
	}
}

// checkpoint unwinds if the activation must end: lost, misused, or the worker stops. Every operation calls it.
func (t *activation) checkpoint() {
	t.checkRight()
	if t.w.isStopping() {
		t.release = &taskRelease{}
		t.unwind()
	}
}

// checkRight unwinds if the task is lost or the function misused the context.
func (t *activation) checkRight() {
	if t.isLost() {
		t.unwind()
	}
	if m := t.misuse.Load(); m != nil {
		t.failTask(m)
	}
}

// unwind does not return: it ends the goroutine by runtime.Goexit after the user's deferred functions have run. The
// function sees no error that it could handle by mistake.
func (t *activation) unwind() {
	t.unwinding = true
	runtime.Goexit()
}

// failTask does not return: it unwinds, and the task is released with a problem and a delay.
func (t *activation) failTask(err error) {
	if t.check != nil {
		t.check.err = err
		t.unwind()
	}
	t.release = t.w.problem(t, err)
	t.unwind()
}

// goLiveIfReplayed records the end of replay: the function has asked for every recorded operation.
func (t *activation) goLiveIfReplayed() {
	if t.live.Load() || int(t.next) < len(t.journal.ops) {
		return
	}
	if t.cleanups.replaying {
		t.cleanups.end(ErrCancelled)
		return
	}
	t.live.Store(true)
	if t.cancelAsked.Load() {
		t.cancel(ErrCancelled)
	}
}

// take gives the operation its child number. rec is the journal's record under it; nil when the function is
// at the frontier, where nothing is recorded. The error is ErrCancelled, at the frontier only.
func (t *activation) take(kind opKind, name string) (n uint32, rec *record, err error) {
	if named(kind) {
		t.mustBeName(name)
	}
	n = t.next
	if rec = t.journal.op(n); rec == nil {
		if t.cancelling() {
			return 0, nil, ErrCancelled
		}
		if t.check != nil {
			t.frontier("the code asks for " + kind.describe(name))
		}
		t.next++
		return n, nil, nil
	}
	if rec.kind != kind || (rec.name != name && named(kind)) {
		t.failTask(&MismatchError{ID: t.child(n), Journal: rec.kind.describe(rec.name),
			Code: "the code asks for " + kind.describe(name)})
	}
	t.next++
	t.goLiveIfReplayed()
	return n, rec, nil
}

// maxName is the longest name that the server takes, in bytes.
const maxName = 256

// mustBeName releases the task with a problem when the server would refuse the name of the next operation.
func (t *activation) mustBeName(name string) {
	t.mustBeText("the name", name)
	switch {
	case name == "":
		t.failTask(fmt.Errorf("durable: the name of %s is empty", t.child(t.next)))
	case len(name) > maxName:
		t.failTask(fmt.Errorf("durable: the name of %s has %d bytes, the limit is %d: %s", t.child(t.next), len(name), maxName, cut(name, 64)))
	case strings.Contains(name, "\x00"):
		t.failTask(fmt.Errorf("durable: the name of %s, %q, has a NUL byte", t.child(t.next), name))
	}
}

// mustBeText releases the task with a problem when s is not valid UTF-8, which no message can carry.
func (t *activation) mustBeText(what, s string) {
	if !utf8.ValidString(s) {
		t.failTask(fmt.Errorf("durable: %s of %s, %q, is not valid UTF-8", what, t.child(t.next), s))
	}
}

// named reports whether operations of kind k have a name to compare.
func named(k opKind) bool {
	return k == opStep || k == opChild || k == opSend || k == opSignal || k == opSignalFuture || k == opHTTP
}

// child is the id of the n-th operation.
func (t *activation) child(n uint32) string { return string(t.journal.id.Child(n)) }

// outcome is the recorded result of the n-th operation, which is resolved.
func (t *activation) outcome(n uint32, codec Codec) ([]byte, error) {
	o := t.journal.op(n).outcome
	if f := o.GetFailure(); f != nil {
		return nil, errorBy(codec, f)
	}
	return o.GetValue(), nil
}

// complete ends the execution with the function's result.
func (t *activation) complete(out []byte, err error) {
	t.checkRight() // a stopping worker still records a finished execution
	t.background.stop()
	if t.cancelAsked.Load() {
		_ = t.settle() // ErrCancelled at most
		t.dropBuffer() // a cancelling execution records none of it
		_ = t.collect()
	}
	if t.cancelAsked.Load() {
		t.acknowledge()
		return
	}
	if int(t.next) < len(t.journal.ops) {
		rec := t.journal.ops[t.next]
		t.failTask(&MismatchError{ID: t.child(t.next), Journal: rec.kind.describe(rec.name), Code: "the code returns before it"})
	}
	end := &perdurev1.Event{Kind: &perdurev1.Event_ExecutionCompleted{ExecutionCompleted: &perdurev1.ExecutionCompleted{Result: out}}}
	if err != nil {
		end.Kind = &perdurev1.Event_ExecutionFailed{ExecutionFailed: &perdurev1.ExecutionFailed{Error: failureBy(t.codec, err)}}
	}
	t.leaveSlot()
	t.w.functionReturned(t.hold)
	if t.commit(commit{events: []*perdurev1.Event{end}, mayEnd: true, ends: true}) != nil {
		t.acknowledge()
		return
	}
	if t.over {
		return
	}
	t.failTask(fmt.Errorf("durable: the task of %s is still held after its end was committed", t.info.ID))
}

// acknowledge ends a cancelled execution and drops the function's result.
func (t *activation) acknowledge() {
	_ = t.settle() // ErrCancelled at most
	if !t.journal.cancelled {
		t.refresh() // a heartbeat reply said so; the reason is in the journal
	}
	if !t.journal.cancelled {
		t.failTask(fmt.Errorf("durable: %s is cancelling, but its journal has no CancelRequested", t.info.ID))
	}
	t.dropBuffer()
	_ = t.commit(commit{mayEnd: true, acknowledges: true, events: []*perdurev1.Event{{Kind: &perdurev1.Event_ExecutionCancelled{
		ExecutionCancelled: &perdurev1.ExecutionCancelled{Reason: t.journal.reason}}}}})
	t.failTask(fmt.Errorf("durable: the task of %s is still held after its cancellation was acknowledged", t.info.ID))
}
