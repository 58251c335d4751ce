package durable

import (
	"slices"
	"sync"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/credit"
)

// call is a request for a hold that is not answered yet.
type call struct {
	id    uint64
	t     *hold
	build func() *perdurev1.WorkRequest
	mu    sync.Mutex // build draws the age of a request, for one sender at a time
	sent  int        // the credit in the last message, guarded by mu
	reply chan answer
	// The worker's lock guards these: where it was sent last, the credit that it may grant although its task
	// is lost, and whether an answer has come.
	via      *session
	promise  int
	answered bool
}

func (c *call) message() *perdurev1.WorkRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.build()
	m.CallId = c.id
	c.sent = creditIn(m)
	return m
}

func (c *call) granted() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sent
}

// answer is the response to a call, and the session it came by.
type answer struct {
	*perdurev1.WorkResponse
	via *session
}

func (w *Worker) callID() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lastCall++
	return w.lastCall
}

// roundTrip sends a request for a hold and blocks until the answer comes, over as many sessions as that needs.
// ok is false when the task was lost meanwhile; then nothing more is sent for it.
func (w *Worker) roundTrip(t *hold, build func() *perdurev1.WorkRequest) (resp answer, ok bool) {
	c := &call{t: t, build: build, reply: make(chan answer, 1)}
	w.mu.Lock()
	if t.isLost() {
		w.mu.Unlock()
		return answer{}, false
	}
	w.lastCall++
	c.id = w.lastCall
	w.calls[c.id] = c
	t.asks++
	c.via = w.routeLocked(t)
	s := c.via
	w.endingLocked(t, s)
	w.mu.Unlock()
	if s != nil {
		s.send(c.message())
	}
	answered := false
	select {
	case resp = <-c.reply:
		answered = true
	case <-t.lost:
	}
	sent := c.granted()
	w.mu.Lock()
	defer w.mu.Unlock()
	t.asks--
	if answered {
		delete(w.calls, c.id)
		return resp, true
	}
	if w.calls[c.id] != nil {
		if sent == 0 || !slices.Contains(w.sessions, c.via) {
			delete(w.calls, c.id)
		} else { // until the answer, or the end of the session, the node may have the credit
			c.promise = sent
			w.promised += sent
		}
	}
	return answer{}, false
}

// answer passes a response to its call; a response without a call is dropped.
func (w *Worker) answer(s *session, m *perdurev1.WorkResponse) {
	w.mu.Lock()
	c := w.calls[m.GetCallId()]
	w.mu.Unlock()
	if c == nil {
		return
	}
	// Before the next message of the session, which may be a task that uses the credit.
	sent, lost := c.granted(), false
	w.mu.Lock()
	if w.calls[c.id] == c && c.via == s {
		delete(w.calls, c.id)
		w.promised -= c.promise
		if sent > 0 && endsActivation(m) && slices.Contains(w.sessions, s) && !s.drained {
			w.stepLocked(credit.Extended{Link: s.link, N: sent})
		}
	}
	if !c.answered { // else an earlier session has answered already
		c.answered = true
		if endsActivation(m) { // now, so that other tasks may extend their nodes' credit before this activation goes on
			w.finishedLocked(c.t)
		}
		w.keepLocked(c.t, m)
		lost = c.t.overtaken && m.GetCommit().GetState() != perdurev1.TaskState_TASK_STATE_SUSPENDED
		c.reply <- answer{m, s}
	}
	w.announceLocked()
	w.mu.Unlock()
	if lost { // the task that overtook the answer was acquired when this one's lease had ended
		w.lose(c.t)
	}
}
