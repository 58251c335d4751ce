package durable

import (
	"context"
	"slices"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/credit"
)

// A worker's capacity is Concurrency. Its ledger splits what no task has taken over the sessions:
//
//	busy - ending + announced - overcommitted <= Concurrency
//	0 <= ending <= Concurrency
//
// unless nodes have delivered tasks again that the worker had lost. The functions below are called with the
// worker's lock held.

// creditRest is the time for which a node is not asked for credit again that had none to spare.
const creditRest = 50 * time.Millisecond

func (k tokenKey) credit() credit.Task {
	return credit.Task{Namespace: k.namespace, ID: k.id, Incarnation: k.incarnation, Version: k.version}
}

// stepLocked gives the ledger an event, and the sessions what to grant and to revoke.
func (w *Worker) stepLocked(e credit.Event) {
	for _, a := range w.ledger.Step(w.clock.Now().UnixNano(), e) {
		switch a := a.(type) {
		case credit.Grant:
			if s := w.linkedLocked(a.Link); s != nil {
				s.toGrant += a.N
				s.signalCredit()
			}
		case credit.Revoke:
			// A node that splits the capacity itself revokes nothing, and is the only one.
			if s := w.linkedLocked(a.Link); s != nil && s.node != nil {
				s.toRevoke = a.N
				s.signalCredit()
			}
		case credit.Wake:
			after := w.clock.After(time.Unix(0, a.At).Sub(w.clock.Now().Round(0)))
			w.spawnLocked(func(ctx context.Context) {
				select {
				case <-after:
				case <-ctx.Done():
					return
				}
				w.mu.Lock()
				defer w.mu.Unlock()
				w.stepLocked(credit.Tick{})
			})
		}
	}
}

// linkedLocked is the live session of a link; nil if there is none.
func (w *Worker) linkedLocked(l credit.Link) *session {
	for _, s := range w.sessions {
		if s.link == l {
			return s
		}
	}
	return nil
}

// announceLocked announces the capacity that the ledger does not have. promised is credit that an unanswered call of a
// task that was lost may have granted.
func (w *Worker) announceLocked() {
	if w.leaving.Load() {
		return
	}
	if more := w.opts.Concurrency + w.ending - w.busy - w.promised - (w.ledger.Announced() - w.ledger.Overcommitted()); more > 0 {
		w.stepLocked(credit.Announced{N: more})
	}
}

// endingLocked gives the credit of a hold out again whose function has returned, as the commit of its end is sent by s: the entry
// that ends this task then assigns the next one. If the credit waited for the answer, each task of a busy worker would take two entries.
func (w *Worker) endingLocked(t *hold, s *session) {
	if !t.returned || t.ending || !t.busy || w.leaving.Load() || w.ending >= w.opts.Concurrency {
		return
	}
	t.ending = true
	w.ending++
	if s == nil || !slices.Contains(w.sessions, s) || s.drained || !w.ledger.MayExtend() || !s.out.inBatches() {
		w.announceLocked()
		return
	}
	w.stepLocked(credit.Extended{Link: s.link, N: 1})
	s.returned++
}

// returnedCredit is the message with the credit of endingLocked; nil if there is none. It follows the commits in a batch.
func (s *session) returnedCredit() *perdurev1.WorkRequest {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	n := s.returned
	if s.returned = 0; n == 0 {
		return nil
	}
	s.w.lastCall++
	return &perdurev1.WorkRequest{CallId: s.w.lastCall, Timestamp: s.w.timestamps.next(s.w.clock.Now()),
		Kind: &perdurev1.WorkRequest_Credit{Credit: &perdurev1.Credit{Tasks: uint32(n)}}}
}

func (s *session) signalCredit() {
	select {
	case s.creditWake <- struct{}{}:
	default:
	}
}

// sendCredit sends the node what the ledger grants and revokes, until ctx ends.
func (s *session) sendCredit(ctx context.Context) {
	for {
		s.w.mu.Lock()
		grant, revoke := s.toGrant, s.toRevoke
		s.toGrant, s.toRevoke = 0, 0
		id := s.w.lastCall + 1
		s.w.lastCall += 2
		s.w.mu.Unlock()
		if grant > 0 {
			s.send(&perdurev1.WorkRequest{CallId: id, Kind: &perdurev1.WorkRequest_Credit{Credit: &perdurev1.Credit{Tasks: uint32(grant)}}})
		}
		if revoke > 0 {
			s.send(&perdurev1.WorkRequest{CallId: id + 1, Kind: &perdurev1.WorkRequest_RevokeCredit{RevokeCredit: &perdurev1.RevokeCredit{Tasks: uint32(revoke)}}})
		}
		select {
		case <-s.creditWake:
		case <-ctx.Done():
			return
		}
	}
}

// grantable is the credit that a message may grant when it is sent, for the task that the message ends: 0 from a
// stopping worker, while other nodes need the credit more, and if the task's credit is out already.
func (w *Worker) grantable(t *hold, n uint32) uint32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	over := w.busy - w.ending - 1 + w.promised + w.ledger.Announced() - w.ledger.Overcommitted() + int(n) - w.opts.Concurrency
	if t.ending || w.leaving.Load() || !w.ledger.MayExtend() || over > 0 {
		return 0
	}
	return n
}

// creditIn is the credit that a call grants if it ends its task's activation.
func creditIn(m *perdurev1.WorkRequest) int {
	switch k := m.GetKind().(type) {
	case *perdurev1.WorkRequest_Commit:
		return int(k.Commit.GetCredit())
	case *perdurev1.WorkRequest_CommitEntity:
		return int(k.CommitEntity.GetCredit())
	case *perdurev1.WorkRequest_Release:
		return int(k.Release.GetCredit())
	}
	return 0
}

// endsActivation reports whether an answer says that its task's activation has ended: the call's credit is
// granted then.
func endsActivation(m *perdurev1.WorkResponse) bool {
	switch k := m.GetKind().(type) {
	case *perdurev1.WorkResponse_Commit:
		return k.Commit.GetState() != perdurev1.TaskState_TASK_STATE_ACQUIRED
	case *perdurev1.WorkResponse_CommitEntity:
		return k.CommitEntity.GetNext() == nil
	case *perdurev1.WorkResponse_Release:
		return true
	}
	return false
}
