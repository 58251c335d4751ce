package durable

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

const (
	// A buffer this full is committed by itself, so that no commit exceeds the size of one message.
	bufferBytes  = 1 << 20
	bufferEvents = 256

	// maxUnknown bounds how often a commit is repeated after the answer "outcome unknown". Then the
	// activation releases the task, and the next worker reads the outcome in the journal.
	maxUnknown = 20

	askBackoffMin = 20 * time.Millisecond
	askBackoffMax = time.Second
)

// buffer holds the events of operations that need no answer. They travel with the next commit.
type buffer struct {
	events   []*perdurev1.Event
	children []*perdurev1.ChildOptions
	sends    []*perdurev1.Send
	bytes    int
}

// commit is one commit to make; the buffer is added in front.
type commit struct {
	events []*perdurev1.Event
	// mayEnd says that the activation may be over after it: a wait or an ending is its last event. ends: the function has
	// returned, so the activation need not unwind after it.
	mayEnd, ends bool
	// acknowledges: its last event is ExecutionCancelled, so a refusal is not because of the cancelling.
	acknowledges bool
	// next begins the next incarnation; such a commit has no events, and the buffer is empty.
	next *perdurev1.ContinueAsNew
	// waitTimeout bounds a final wait for a signal; 0 means no bound.
	waitTimeout time.Duration
}

// stage puts events into the buffer. The error is ErrCancelled, when the buffer had to be committed.
func (t *activation) stage(child *perdurev1.ChildOptions, send *perdurev1.Send, events ...*perdurev1.Event) error {
	t.frontier("the code goes on")
	if err := t.settle(); err != nil {
		return err
	}
	if t.buf.events == nil {
		t.buf.events = events[:len(events):len(events)]
	} else {
		t.buf.events = append(t.buf.events, events...)
	}
	for _, e := range events {
		t.buf.bytes += proto.Size(e)
	}
	if child != nil {
		t.buf.children = append(t.buf.children, child)
	}
	if send != nil {
		t.buf.sends = append(t.buf.sends, send)
		t.buf.bytes += proto.Size(send)
	}
	if t.buf.bytes > bufferBytes || len(t.buf.events) > bufferEvents {
		return t.flush()
	}
	if len(t.held.steps) > 0 {
		t.arm()
	}
	return nil
}

// flush commits the buffer if there is anything in it, or a clean-up that the cluster does not know of. The
// error is ErrCancelled.
func (t *activation) flush() error {
	if err := t.settle(); err != nil {
		return err
	}
	if len(t.buf.events) == 0 && t.arming() <= 0 {
		return nil
	}
	return t.commit(commit{})
}

// dropBuffer drops the events that were never committed, and their child numbers: nothing acted upon them.
func (t *activation) dropBuffer() {
	t.buf = buffer{}
	t.held.steps, t.held.lazy = nil, 0
	t.next = min(t.next, uint32(len(t.journal.ops)))
}

// commit writes the buffer and c's events as one commit. It returns nil when it was applied and the task
// is still held, and ErrCancelled when it was not, because the execution is cancelling. In every other
// case the activation is over and it does not return.
func (t *activation) commit(c commit) error {
	t.frontier("the code goes on")
	if t.isLost() {
		t.unwind()
	}
	if err := t.settle(); err != nil {
		return err
	}
	p := t.propose(c)
	sticks := p.msg.GetKeeps()
	if sticks {
		t.w.setSticks(t.hold, t)
	}
	resp := t.ask(p.request)
	if sticks {
		t.w.setSticks(t.hold, nil)
	}
	return t.settled(p, resp)
}

// proposal is a commit as it is sent, at every attempt.
type proposal struct {
	msg *perdurev1.Commit
	// request builds the message of one attempt.
	request func() *perdurev1.WorkRequest
	// acknowledges and ends are the commit's.
	acknowledges, ends bool
}

// draft is what a commit has of the activation's state.
type draft struct {
	buf       buffer
	nextChild uint32
	knownSeq  uint64
	cleanupMS int64
}

func (t *activation) draft() draft {
	return draft{t.buf, uint32(len(t.journal.ops)), t.journal.next, t.arming()}
}

// propose makes the proposal of a commit from the buffer and c's events.
func (t *activation) propose(c commit) proposal {
	p := t.proposal(t.draft(), c)
	p.msg.Keeps = t.mayStick(c)
	return p
}

// proposal is propose in any goroutine.
func (t *activation) proposal(d draft, c commit) proposal {
	msg := &perdurev1.Commit{
		Task:          t.key.token(),
		NextChild:     d.nextChild,
		KnownSeq:      d.knownSeq,
		Events:        append(d.buf.events[:len(d.buf.events):len(d.buf.events)], c.events...),
		Children:      d.buf.children,
		Sends:         d.buf.sends,
		WaitTimeoutMs: client.Millis(c.waitTimeout),
		ContinueAsNew: c.next,
		CleanupMs:     d.cleanupMS,
	}
	if c.mayEnd {
		// The node grants this credit only if the commit ends the activation (the reply is not ACQUIRED). After an
		// ACQUIRED reply there is nothing to revoke.
		msg.Credit = 1
	}
	req, w := t.w.c.NewRequest(), t.w
	return proposal{msg: msg, acknowledges: c.acknowledges, ends: c.ends, request: func() *perdurev1.WorkRequest {
		// A message of its own for every attempt: an earlier one may still be on its way out.
		again := &perdurev1.Commit{Request: req.Wire(), Task: msg.Task, NextChild: msg.NextChild, KnownSeq: msg.KnownSeq,
			Events: msg.Events, Children: msg.Children, Sends: msg.Sends, WaitTimeoutMs: msg.WaitTimeoutMs, CleanupMs: msg.CleanupMs,
			ContinueAsNew: msg.ContinueAsNew, Keeps: msg.Keeps, Credit: w.grantable(t.hold, msg.Credit)}
		return &perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_Commit{Commit: again}}
	}}
}

// settled applies the answer to a proposal, which had the whole buffer. It returns as commit does.
func (t *activation) settled(p proposal, resp answer) error {
	msg := p.msg
	if e := resp.GetError(); e != nil {
		if e.GetReason() == perdurev1.Reason_REASON_RULE_BROKEN && !p.acknowledges {
			if !t.journal.cancelled {
				t.refresh() // the rule may be that nothing new begins once cancelling has: see whether it has
			}
			if t.journal.cancelled {
				t.dropBuffer()
				t.cleanups.interrupted = true
				return ErrCancelled
			}
		}
		t.refused("a commit", e)
	}
	reply := resp.GetCommit()
	if reply == nil {
		t.failTask(fmt.Errorf("durable: a commit of %s was answered by %T", t.info.ID, resp.GetKind()))
	}
	t.w.committed(t)
	steps := t.held.steps
	t.held.steps, t.held.lazy = nil, 0
	if reply.GetState() != perdurev1.TaskState_TASK_STATE_ACQUIRED {
		t.w.activationEnded(t.hold)
		if t.over = p.ends; t.over {
			return nil
		}
		if t.wait.wake == nil {
			t.unwind()
		}
		t.stick(msg.Events)
		t.stepsRecorded(steps)
		t.receiptsRecorded(msg.Events)
		return nil
	}
	if t.journal.lacks(msg.Events, reply) {
		reply = t.readBack(reply)
	}
	applied, err := t.journal.absorb(msg.Events, reply)
	if err != nil {
		t.failTask(err)
	}
	if t.journal.cancelled || reply.GetStatus() == perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLING {
		t.askCancel()
	}
	if !applied {
		t.dropBuffer()
		t.cleanups.interrupted = true
		return ErrCancelled
	}
	t.buf = buffer{}
	t.stepsRecorded(steps)
	t.receiptsRecorded(msg.Events)
	if msg.CleanupMs != 0 {
		t.cleanups.armed = max(msg.CleanupMs, 0)
	}
	t.launch()
	return nil
}

// refused ends the activation after a refusal that repeating cannot help.
func (t *activation) refused(what string, e *perdurev1.CallError) {
	switch e.GetReason() {
	case perdurev1.Reason_REASON_STALE_TASK, perdurev1.Reason_REASON_EXECUTION_NOT_FOUND, perdurev1.Reason_REASON_ALREADY_FINISHED:
		// The task is lost or finished: nothing of this activation applies.
		t.w.lose(t.hold)
		t.unwind()
	}
	t.failTask(fmt.Errorf("durable: %s of %s was refused: %w", what, t.info.ID, callErrorOf(e)))
}

// callErrorOf is a CallError as an error.
func callErrorOf(e *perdurev1.CallError) error {
	return &api.Error{Reason: e.GetReason(), Message: e.GetMessage(), Meta: e.GetMetadata()}
}

// passing reports whether a call that failed so may succeed when it is repeated.
func passing(e *perdurev1.CallError) bool {
	if e.GetReason() != perdurev1.Reason_REASON_UNSPECIFIED {
		return api.Retryable(e.GetReason())
	}
	code := codes.Code(e.GetCode())
	return code == codes.Unavailable || code == codes.DeadlineExceeded || code == codes.Aborted
}

// ask makes a call and repeats it while that can help. It returns the answer, or the CallError that
// repeating cannot help. When the task is lost meanwhile it does not return.
func (t *activation) ask(build func() *perdurev1.WorkRequest) answer {
	return t.askUntil(build, never)
}

// never gives up no call.
func never(*perdurev1.CallError) bool { return false }

// askUntil is ask which also returns a CallError that givesUp accepts.
func (t *activation) askUntil(build func() *perdurev1.WorkRequest, givesUp func(*perdurev1.CallError) bool) answer {
	resp, ok := t.askOn(build, givesUp)
	if !ok {
		t.unwind()
	}
	return resp
}

// askOn is askUntil in any goroutine: ok is false when the task is lost.
func (t *activation) askOn(build func() *perdurev1.WorkRequest, givesUp func(*perdurev1.CallError) bool) (resp answer, ok bool) {
	h := t.hold
	pause, unknown := askBackoffMin, 0
	for {
		resp, ok := t.w.roundTrip(h, build)
		if !ok {
			return answer{}, false
		}
		e := resp.GetError()
		if e == nil || !passing(e) || givesUp(e) {
			return resp, true
		}
		if e.GetReason() == perdurev1.Reason_REASON_OUTCOME_UNKNOWN {
			if unknown++; unknown == maxUnknown {
				return resp, true
			}
		}
		rest := pause
		if after := time.Duration((&api.Error{Meta: e.GetMetadata()}).RetryAfterMS()) * time.Millisecond; after > rest {
			rest = after + time.Duration(rand.Int64N(int64(after)/2+1)) // spread the retries of callers that were refused together
		}
		select {
		case <-t.w.clock.After(rest):
		case <-h.lost:
			return answer{}, false
		}
		pause = min(2*pause, askBackoffMax)
	}
}

// sendRelease releases the task, best effort: otherwise the lease expires.
func (t *activation) sendRelease(g *taskRelease) {
	const credit = 1
	resp, ok := t.tryThrice(func() *perdurev1.WorkRequest {
		return &perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_Release{Release: &perdurev1.Release{
			Task: t.key.token(), Problem: cut(g.problem, maxMessageBytes), DelayMs: client.Millis(g.delay), CodeMismatch: g.mismatch, Credit: t.w.grantable(t.hold, credit),
			Steps: t.lastReports()}}}
	})
	if ok && resp.GetError() == nil {
		t.w.activationEnded(t.hold)
	}
}

// tryThrice makes a call of an activation that ends; ok is false when there is no answer, or none that will do.
func (t *activation) tryThrice(build func() *perdurev1.WorkRequest) (resp answer, ok bool) {
	for range 3 {
		resp, ok = t.w.roundTrip(t.hold, build)
		if !ok {
			return resp, false
		}
		if e := resp.GetError(); e == nil || !passing(e) {
			return resp, true
		}
		select {
		case <-t.w.clock.After(askBackoffMax / 4):
		case <-t.lost:
			return resp, false
		}
	}
	return resp, false
}

// await waits until enough of the child numbers, each once, are resolved: one, any or all of them. It
// returns nil or ErrCancelled; when it has to wait, the activation ends here.
func (t *activation) await(kind perdurev1.AwaitKind, ns ...uint32) error {
	slices.Sort(ns) // the journal keeps a wait's members in ascending order
	if err := t.settleSteps(kind, ns); err != nil {
		return err
	}
	for tries := 0; ; tries++ {
		var open []string
		for _, n := range ns {
			if !t.journal.resolved(n) {
				open = append(open, t.child(n))
			}
		}
		if len(open) == 0 || (kind == perdurev1.AwaitKind_AWAIT_KIND_ANY && len(open) < len(ns)) {
			if kind != perdurev1.AwaitKind_AWAIT_KIND_ANY {
				t.answered(ns...)
			}
			return nil
		}
		if tries == maxWaits {
			t.failTask(fmt.Errorf("durable: %s: %d commits found the wait satisfied, but the journal lacks %v", t.info.ID, maxWaits, open))
		}
		continued := t.continued
		if err := t.awaitOnce(&perdurev1.ExecutionAwaiting{WaitingOn: open, Kind: kind}); err != nil {
			return err
		}
		if t.continued != continued {
			tries = -1 // as a replay counts them
		}
	}
}

// maxWaits is how often a wait is committed in one activation: a reply that leaves the task here brings the results.
const maxWaits = 3

// awaitOnce commits a wait. It returns nil when the wait is satisfied already or the function has waited in memory, and
// ErrCancelled; otherwise the activation ends here.
func (t *activation) awaitOnce(wait *perdurev1.ExecutionAwaiting) error {
	if t.cancelling() {
		return ErrCancelled
	}
	return t.commit(commit{mayEnd: true, events: []*perdurev1.Event{{Kind: &perdurev1.Event_ExecutionAwaiting{ExecutionAwaiting: wait}}}})
}
