package durable

import (
	"sync"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

// A step's result is held in the buffer until the function asks for its next operation or returns. Then it is committed:
// before another step runs, and in one commit with a wait or with the end. So an execution's last step and its end are
// one commit.
//
// Code between two operations should be short. If it is not, the result is committed in the background, by a timer, so
// that a crash loses no more than a moment's results. An activation that gives its task back commits them first.
var defaultHold = holdTimes{step: 10 * time.Millisecond, repeatable: time.Second}

// holdTimes are how long results are held, of Repeatable steps and of others.
type holdTimes struct{ step, repeatable time.Duration }

// Repeatable records the step's result together with the next operation that is not a Repeatable step, or with the
// function's end. Several such steps in a row, and the end, are one commit.
//
// The promise is weaker than that of other steps: when the worker is lost, all Repeatable steps since the last commit
// run again, also those that had returned, and the ones after the first may run with other values than before. Use it
// for steps without effects, or with effects that do not matter when they happen again. Within a second, a result
// is recorded in any case. A step with WithIntent, and one of GoStep, is recorded as without this option.
func Repeatable() StepOption { return func(o *stepOptions) { o.repeatable = true } }

// held is what the buffer has of steps' results. The function's goroutine alone uses steps, lazy and since.
type held struct {
	// steps are the child numbers of the steps whose results are in the buffer; lazy counts the events of Repeatable ones.
	steps []uint32
	lazy  int
	// due is when the results are committed in the background.
	due   time.Time
	timer *time.Timer

	mu sync.Mutex
	// armed: the timer's goroutine is to commit the draft. sent is closed when the commit that it has begun, pending, is
	// answered; nil if there is none.
	armed   bool
	draft   draft
	pending proposal
	sent    chan struct{}
	resp    answer
	ok      bool
}

// holds reports whether a result of the step may wait in the buffer: the journal has nothing of the step yet, and the
// execution is not cancelling. After WithIntent the journal has its start, so the result is recorded at once and a cancel
// cannot come between.
func (s *stepRun) holds() bool {
	return s.t.journal.op(s.n) == nil && !s.t.cancelAsked.Load() && !s.t.w.isStopping()
}

// hold puts a step's events into the buffer. The error is ErrCancelled, when the buffer had to be committed.
func (s *stepRun) hold(events []*perdurev1.Event) error {
	t := s.t
	if err := t.settle(); err != nil {
		return err
	}
	h := &t.held
	after := t.w.hold.step
	if s.o.repeatable {
		after = t.w.hold.repeatable
		h.lazy += len(events)
	}
	due := t.w.clock.Now().Add(after)
	if len(h.steps) == 0 || due.Before(h.due) {
		h.due = due
	}
	h.steps = append(h.steps, s.n)
	return t.stage(nil, nil, events...)
}

// arm begins the time after which the buffer is committed in the background.
func (t *activation) arm() {
	h := &t.held
	d := t.draft()
	h.mu.Lock()
	h.armed, h.draft = true, d
	h.mu.Unlock()
	left := max(h.due.Sub(t.w.clock.Now()), 0)
	if h.timer == nil {
		h.timer = time.AfterFunc(left, t.commitHeld)
	} else {
		h.timer.Reset(left)
	}
}

// commitHeld commits what is held, in the timer's goroutine. settle joins it.
func (t *activation) commitHeld() {
	h := &t.held
	h.mu.Lock()
	if !h.armed {
		h.mu.Unlock()
		return
	}
	h.armed, h.sent = false, make(chan struct{})
	h.pending = t.proposal(h.draft, commit{})
	p, sent := h.pending, h.sent
	h.mu.Unlock()
	h.resp, h.ok = t.askOn(p.request, never)
	close(sent)
}

// settle ends the background commit: it stops the timer, or waits for the answer if the commit has been sent. Whatever
// reads or changes the buffer, or reads on in the journal, calls it first. The error is ErrCancelled.
func (t *activation) settle() error {
	p, sent := t.stopTimer()
	if sent == nil {
		return nil
	}
	<-sent
	if !t.held.ok {
		t.unwind()
	}
	return t.settled(p, t.held.resp)
}

// stopTimer stops the timer of a background commit. If it was too late, sent is closed when p is answered.
func (t *activation) stopTimer() (p proposal, sent chan struct{}) {
	h := &t.held
	if h.timer == nil {
		return p, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.armed {
		h.armed = false
		h.timer.Stop()
	}
	p, sent = h.pending, h.sent
	h.draft, h.pending, h.sent = draft{}, proposal{}, nil
	return p, sent
}

// stepsRecorded drops what the worker knows of steps whose results are in the journal now.
func (t *activation) stepsRecorded(steps []uint32) {
	for _, n := range steps {
		if !t.beats.none() {
			t.beats.drop(t.child(n))
		}
		t.journal.forget(n)
	}
}

// recordHeld joins the background commit of an activation that ends. If it gives its task back, it commits what is
// held, best effort like the release that follows.
func (t *activation) recordHeld() {
	h := &t.held
	p, sent := t.stopTimer()
	if sent != nil {
		<-sent
		if h.ok && h.resp.GetCommit() != nil {
			h.steps = nil
			if t.release != nil && t.release.problem != "" {
				t.release.delay = t.w.firstProblem(t) // the problem may have been counted before the answer came
			}
		}
	}
	if len(h.steps) == 0 || t.release == nil || t.isLost() {
		return
	}
	if sent == nil {
		p = t.propose(commit{})
	}
	resp, ok := t.tryThrice(p.request)
	if !ok || resp.GetCommit() == nil {
		return
	}
	for _, n := range h.steps {
		t.beats.drop(t.child(n))
	}
	if t.release.problem != "" {
		t.release.delay = t.w.firstProblem(t)
	}
}

// allRepeatable reports whether the buffer has only the results of Repeatable steps, so that another such step may run
// before they are recorded.
func (t *activation) allRepeatable() bool { return len(t.buf.events) == t.held.lazy && t.arming() <= 0 }
