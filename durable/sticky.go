package durable

import (
	"bytes"
	"container/list"
	"maps"
	"runtime"
	"slices"

	"google.golang.org/protobuf/proto"

	perdurev1 "perdure/api/perdure/v1"
)

// Sticky activations. A function that waits gives its task back, and its goroutine stays in memory: blocked in the
// operation that waits, without a hold. The worker keeps such functions in a cache. When it gets the execution's next
// task, the function continues under that hold instead of being replayed:
//
//	answer:  the commit's reply says SUSPENDED   keepLocked puts the activation into the cache
//	accept:  the execution's next task arrives   continueLocked gives the activation its hold
//	resume:  the goroutine reads the journal, checks that it continues its own, and returns to the function
//
// The next task may overtake the commit's reply. The activation gets its hold then (overtakesLocked), and the goroutine
// resumes when the reply has come.
//
// A function continues only if no other worker had the task meanwhile (Task versions rise by one at each
// acquisition) and the journal has each operation that it made, with the same result. Otherwise the function
// is dropped, and the task is replayed. The cache drops the function that has waited longest when it holds
// too many functions or too many bytes, and all of them when the worker stops. A dropped function unwinds by
// runtime.Goexit.

// Defaults of WorkerOptions.
const (
	defaultStickyFunctions = 1000
	defaultStickyBytes     = 64 << 20
)

// stickyWait is the state of an activation whose function waits in memory. Worker.mu guards it.
type stickyWait struct {
	// key is the token with which it waited, size what it counts in the cache.
	key  tokenKey
	size int
	// place is its place in the cache; nil if it is not there.
	place *list.Element
	// wake is closed when the wait is over: next is the hold to continue under, for task; nil if it must unwind.
	wake chan struct{}
	next *hold
	task *perdurev1.Task
}

// stickyCache holds the activations that wait in memory, the longest wait first:
// 0 <= len(byExec) = order.Len() <= functions and 0 <= size <= bytes. Worker.mu guards it.
type stickyCache struct {
	functions, bytes int
	byExec           map[execKey]*activation
	order            list.List
	size             int
}

// put adds an activation, and returns those that it must drop for it.
func (c *stickyCache) put(t *activation) (dropped []*activation) {
	if former := c.byExec[t.wait.key.exec()]; former != nil {
		c.remove(former)
		dropped = append(dropped, former)
	}
	c.byExec[t.wait.key.exec()] = t
	c.size += t.wait.size
	t.wait.place = c.order.PushBack(t)
	for c.order.Len() > c.functions || c.size > c.bytes {
		oldest := c.order.Front().Value.(*activation)
		c.remove(oldest)
		dropped = append(dropped, oldest)
	}
	return dropped
}

// remove takes an activation out; it does nothing if the cache does not have it.
func (c *stickyCache) remove(t *activation) {
	if t.wait.place != nil {
		c.order.Remove(t.wait.place)
		t.wait.place = nil
		c.size -= t.wait.size
		delete(c.byExec, t.wait.key.exec())
	}
}

// mayStick reports whether the function may wait in memory after a commit.
func (t *activation) mayStick(c commit) bool {
	n := len(c.events)
	return n > 0 && c.events[n-1].GetExecutionAwaiting() != nil && t.w.sticky.functions > 0 && t.cleanups.of == nil &&
		len(t.background.open) == 0
}

// keepLocked puts the activation of a hold into the cache when the reply to its commit says that its function
// waits. It runs before the session's next message, which may be the execution's next task.
func (w *Worker) keepLocked(t *hold, m *perdurev1.WorkResponse) {
	if t.sticks == nil || m.GetCommit().GetState() != perdurev1.TaskState_TASK_STATE_SUSPENDED || w.held[t.key.exec()] != t || w.isStopping() {
		return
	}
	w.stickLocked(t)
}

// overtakesLocked reports whether a task has overtaken, on a session, the answer to the commit of a hold: it is the
// execution's next one, and a call of the hold has no answer yet. The answer will be that the function waits, or that the
// hold was lost. overtakesLocked puts the hold's activation into the cache, where continueLocked finds it.
func (w *Worker) overtakesLocked(s *session, t *hold, next tokenKey) bool {
	if t == nil || t.sticks == nil || next.incarnation != t.key.incarnation || next.version != t.key.version+1 || t.isLost() || w.isStopping() {
		return false
	}
	for _, c := range w.calls {
		if c.t == t && c.via == s && !c.answered {
			t.overtaken = true
			w.stickLocked(t)
			return true
		}
	}
	return false
}

// stickLocked puts the activation of a hold into the cache. The hold has ended.
func (w *Worker) stickLocked(t *hold) {
	a := t.sticks
	w.unheldLocked(t)
	t.attach(nil)
	a.wait = stickyWait{key: t.key, size: a.journal.size + a.buf.bytes + stickyOverhead, wake: make(chan struct{})}
	for _, dropped := range w.sticky.put(a) {
		dropped.dropLocked()
	}
}

// stickyOverhead is what an activation counts besides its journal.
const stickyOverhead = 4 << 10

// dropLocked makes a waiting function unwind. The cache does not have it any more.
func (t *activation) dropLocked() {
	close(t.wait.wake)
}

// continueLocked gives a task to the function that waits for it in memory; false if there is none, or not for
// this task.
func (w *Worker) continueLocked(t *hold, task *perdurev1.Task) bool {
	a := w.sticky.byExec[t.key.exec()]
	if a == nil {
		return false
	}
	w.sticky.remove(a)
	if !a.follows(t.key, task) {
		a.dropLocked()
		return false
	}
	a.wait.next, a.wait.task = t, task
	t.attach(a)
	close(a.wait.wake)
	return true
}

// follows reports whether a task is the next one after that with which the function waited: no worker had one between.
func (t *activation) follows(key tokenKey, task *perdurev1.Task) bool {
	info := infoOf(task)
	return key.incarnation == t.wait.key.incarnation && key.version == t.wait.key.version+1 &&
		task.GetCleanupOf() == nil && task.GetEntity() == nil && info.Function == t.info.Function &&
		info.Created.Equal(t.info.Created) && info.Deadline.Equal(t.info.Deadline) && maps.Equal(info.Tags, t.info.Tags)
}

// dropSticky drops all functions that wait in memory. The worker is stopping, so no others follow.
func (w *Worker) dropSticky() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.sticky.order.Len() > 0 {
		t := w.sticky.order.Front().Value.(*activation)
		w.sticky.remove(t)
		t.dropLocked()
	}
}

// stick waits in memory for the execution's next task. It returns when the function may continue under it, and
// unwinds when the function is dropped. sent are the events of the commit that ended the last hold.
func (t *activation) stick(sent []*perdurev1.Event) {
	t.background.stop()
	t.background = background{}
	t.hold.lose() // what still refers to it sends nothing
	t.leaveSlot()
	t.idle = true
	t.w.holdClosed(t.hold)
	t.buf = buffer{}
	<-t.wait.wake
	t.w.mu.Lock()
	next, task := t.wait.next, t.wait.task
	t.wait = stickyWait{}
	t.w.mu.Unlock()
	if next == nil {
		t.dropped("a waiting function leaves the memory")
		t.unwind()
	}
	t.resume(next, task, sent)
}

// unknownSeq stands for the number of an entry that the worker has not read.
const unknownSeq = ^uint64(0)

// resume makes the activation act for its next hold, if the journal continues what the function knows. Otherwise it hands the
// hold to a new activation, and unwinds. sent are the events of the commit that ended the last hold.
func (t *activation) resume(next *hold, task *perdurev1.Task, sent []*perdurev1.Event) {
	former := t.hold
	t.hold, t.idle = next, false
	asked := t.secureLease()
	t.announce()
	t.enterSlot()
	continues := t.readOnAfter(task, sent)
	if asked {
		t.refresh()
	}
	if t.journal.ended {
		t.unwind() // nothing can follow the end
	}
	if !continues || len(t.journal.ops) != int(t.next) {
		t.dropped("the journal does not continue a waiting function's")
		t.hold, t.idle = former, true
		t.w.replace(next, task)
		t.unwind()
	}
	t.cleanups.armed = task.GetCleanupMs()
	t.continued++
	t.w.event(Event{Kind: EventContinued, ID: t.info.ID, Function: t.info.Function})
	t.checkpoint()
}

// dropped reports that the function waits in memory no more.
func (t *activation) dropped(why string) {
	t.logger().Debug(why, "event", "sticky_dropped", "bytes", t.journal.size)
	t.w.event(Event{Kind: EventDropped, ID: t.info.ID, Function: t.info.Function})
}

// readOnAfter reads the journal, and reports whether it continues what the function knows. A task that leaves out what the worker
// has begins with the commit that sent the events: that is the proof. Otherwise all of the journal is compared.
func (t *activation) readOnAfter(task *perdurev1.Task, sent []*perdurev1.Event) bool {
	if first := firstSeq(task); first > 0 && first == t.journal.next && wrote(task.GetEntries(), sent) {
		known := len(t.journal.ops)
		t.load(task)
		for _, rec := range t.journal.ops[known:] {
			if rec.kind == opRandom || rec.kind == opTime {
				t.journal.forget(rec.n) // the function got it before the commit
			}
		}
		return true
	}
	expected := t.journal
	for _, ev := range sent {
		if expected.add(unknownSeq, ev) != nil {
			expected.ops = nil // it continues nothing
			break
		}
		expected.forgetValue(ev)
	}
	t.journal = history{id: expected.id}
	t.load(task)
	if !t.journal.continues(&expected, t.next) {
		return false
	}
	t.journal.forgetAlso(&expected)
	return true
}

// wrote reports whether entries have the events of a commit, in their order.
func wrote(entries []*perdurev1.JournalEntry, sent []*perdurev1.Event) bool {
	for _, e := range entries {
		if len(sent) > 0 && sameEvent(e.GetEvent(), sent[0]) {
			sent = sent[1:]
		}
	}
	return len(sent) == 0
}

// replace begins a new activation for a hold whose function in memory is of no use.
func (w *Worker) replace(t *hold, task *perdurev1.Task) {
	w.mu.Lock()
	w.activations++
	w.mu.Unlock()
	w.begin(newActivation(t, task))
}

// leaveSlot lets another function run; enterSlot waits until this one may, and unwinds if it must not.
func (t *activation) leaveSlot() {
	if t.slot {
		t.slot = false
		t.w.freeSlot()
	}
}

func (t *activation) enterSlot() {
	if t.slot = t.w.takeSlot(t); !t.slot {
		runtime.Goexit()
	}
}

// continues reports whether r is the journal that a function in memory expects, and what came since: it has n
// operations, as many as the function has made, and each that the function knows is the same, with the same
// result at the same place. Of forgotten operations it compares the sum of their fingerprints.
func (r *history) continues(expected *history, n uint32) bool {
	if len(r.ops) != int(n) || len(expected.ops) != int(n) || !bytes.Equal(r.input, expected.input) || r.next < expected.next {
		return false
	}
	forgotten := uint64(0)
	for i, was := range expected.ops {
		is := r.ops[i]
		if was.spent() {
			forgotten += is.fingerprint()
			continue
		}
		if is.kind != was.kind || is.name != was.name || is.policy != was.policy || is.timeMs != was.timeMs || was.done && !is.done {
			return false
		}
		if was.done && (is.doneSeq != was.doneSeq && was.doneSeq != unknownSeq || !sameOutcome(is.outcome, was.outcome)) {
			return false
		}
		if was.set != nil && (!slices.Equal(is.set.submitted, was.set.submitted) || !slices.Equal(is.set.consumed, was.set.consumed)) {
			return false
		}
	}
	return forgotten == expected.forgotten
}

// forgetAlso forgets the operations that an earlier history of the same journal has forgotten.
func (r *history) forgetAlso(earlier *history) {
	for i, was := range earlier.ops {
		if was.spent() {
			r.forget(uint32(i))
		}
	}
}

func sameOutcome(a, b *perdurev1.Outcome) bool {
	if a.GetFailure() != nil || b.GetFailure() != nil {
		return proto.Equal(a, b)
	}
	return bytes.Equal(a.GetValue(), b.GetValue())
}
