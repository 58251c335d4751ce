package durable

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

// hold is one task that this worker holds: from its arrival until a commit or a release gives the task back, or it is
// lost. Sessions and heartbeats keep it, an activation acts for it. What an activation sends names the hold's token.
type hold struct {
	w   *Worker
	key tokenKey
	// id and function are the execution's for logs and events: of a clean-up, the cancelled one's. runs is the function
	// that the task asks for.
	id, function, runs string

	// lost is closed when the task is no longer this worker's: nothing more is sent for it.
	lost     chan struct{}
	loseOnce sync.Once
	// cancelAsked is set when the journal or the node says that the execution is cancelling.
	cancelAsked atomic.Bool
	// sticks is the activation to keep in memory if the reply to the commit under way says that its function
	// waits; nil for none. Worker.mu guards it.
	sticks *activation
	// acting is the activation whose context ends with the hold; nil if there is none.
	actingMu sync.Mutex
	acting   *activation

	// leaseFrom is the latest moment from which the lease holds for its whole length, the zero time if none is known.
	// confirm closes renewed when leaseFrom increases; it is nil until an activation waits for that.
	leaseMu   sync.Mutex
	leaseFrom time.Time
	renewed   chan struct{}
	// born is the last call id before the task arrived: heartbeats with a higher id include it.
	born uint64
	// announced: OnEvent has got EventTask.
	announced atomic.Bool

	// arrived are the signals that have come for the execution since.
	arrived arrivals

	// beats is what the execution's steps that have no result have reported.
	beats stepBeats

	// Worker.mu guards what follows. busy: the hold counts against the worker's capacity, until it is ending. returned: its function
	// has returned. asks counts the calls that have
	// no answer yet. home is the session that the task came by; it sends the task's messages. via is the session whose
	// heartbeat last included the hold; askedAt is when the first of its unanswered heartbeats was sent, or zero.
	// ended: its token is one that the worker never begins again. overtaken: the execution's next task came before the
	// answer to its commit, and its activation continues under that one.
	busy      bool
	returned  bool
	ending    bool
	ended     bool
	overtaken bool
	asks      int
	home      *session
	via       *session
	askedAt   time.Time
}

func newHold(w *Worker, task *perdurev1.Task) *hold {
	info := infoOf(task)
	t := &hold{w: w, key: keyOf(task.GetToken()), id: info.ID, function: info.Function,
		runs: task.GetFunction(), lost: make(chan struct{})}
	t.beats.load(task.GetSteps())
	if task.GetStatus() == perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLING {
		t.cancelAsked.Store(true)
	}
	return t
}

// logger makes a logger with the task's id and function. Few tasks log, so the hold keeps none.
func (t *hold) logger() *slog.Logger { return t.w.log.With("id", t.key.id, "function", t.runs) }

// attach makes an activation the one that acts for the hold; nil for none.
func (t *hold) attach(a *activation) {
	t.actingMu.Lock()
	t.acting = a
	t.actingMu.Unlock()
	if a != nil && t.isLost() {
		a.cancel(errLost)
	}
}

// actor is the activation that acts for the hold; nil if there is none.
func (t *hold) actor() *activation {
	t.actingMu.Lock()
	defer t.actingMu.Unlock()
	return t.acting
}

// endContext ends the context of the function that acts for the hold. Any goroutine may call it.
func (t *hold) endContext(why error) {
	if a := t.actor(); a != nil {
		a.cancel(why)
	}
}

// confirm records that the lease holds for its whole length from a moment on.
func (t *hold) confirm(from time.Time) {
	t.leaseMu.Lock()
	defer t.leaseMu.Unlock()
	if from.After(t.leaseFrom) {
		t.leaseFrom = from
		if t.renewed != nil {
			close(t.renewed)
			t.renewed = nil
		}
	}
}

// lease returns leaseFrom.
func (t *hold) lease() time.Time {
	t.leaseMu.Lock()
	defer t.leaseMu.Unlock()
	return t.leaseFrom
}

// renewal returns leaseFrom, and a channel that is closed when it increases.
func (t *hold) renewal() (from time.Time, renewed <-chan struct{}) {
	t.leaseMu.Lock()
	defer t.leaseMu.Unlock()
	if t.renewed == nil {
		t.renewed = make(chan struct{})
	}
	return t.leaseFrom, t.renewed
}

// leaseLeft applies the function leaseLeft to the hold's lease.
func (t *hold) leaseLeft(now time.Time) time.Duration {
	return leaseLeft(t.lease(), now, t.w.opts.Lease)
}

// announce sends EventTask, once.
func (t *hold) announce() {
	if t.announced.CompareAndSwap(false, true) {
		t.w.event(Event{Kind: EventTask, ID: t.id, Function: t.function})
	}
}

func (t *hold) isLost() bool {
	select {
	case <-t.lost:
		return true
	default:
		return false
	}
}

// lose marks the task as no longer this worker's. Any goroutine may call it.
func (t *hold) lose() {
	t.loseOnce.Do(func() {
		close(t.lost)
		t.endContext(errLost)
	})
}

// askCancel ends the function's context with ErrCancelled, at once or when replay ends: code that reads the context
// during replay must see what it saw the first time. Any goroutine may call it.
func (t *hold) askCancel() {
	t.cancelAsked.Store(true)
	if a := t.actor(); a != nil && a.live.Load() {
		a.cancel(ErrCancelled)
	}
}

// bareRelease is a release of the task without a problem and without a delay.
func (t *hold) bareRelease() *perdurev1.WorkRequest {
	return &perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_Release{Release: &perdurev1.Release{Task: t.key.token(), Steps: t.lastReports()}}}
}

// sendAbandon releases the task without a wait for the answer: if the release is lost, the lease expires.
func (t *hold) sendAbandon() {
	t.w.mu.Lock()
	s := t.w.routeLocked(t)
	t.w.mu.Unlock()
	if s != nil {
		m := t.bareRelease()
		m.CallId = t.w.callID()
		s.send(m)
	}
}
