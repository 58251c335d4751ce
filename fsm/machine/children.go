package machine

import (
	"fmt"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/id"
	"perdure/journal"
	"perdure/recovery"
)

// childrenBudget bounds how many open children one expiration reaches.
const childrenBudget = 128

// reachChildren lets a function's cancel, or its end, reach its open children: from the next tick on, a part
// at a time, so that the cost of a command does not depend on their number, and a tree of any depth needs no
// recursion.
func (t *txn) reachChildren(ex *execution) {
	if ex.h.Kind != state.KindFunction || t.m.feature < state.LevelFunctions {
		return
	}
	t.dropChildrenDeadline(ex.ns, &ex.h)
	ex.h.ChildrenAt, ex.h.ChildrenFrom, ex.dirty = 0, 0, true
	if n, ok := ex.j.NextOpenCall(0); ok {
		t.reachFrom(ex, n)
	}
}

func (t *txn) reachFrom(ex *execution, n uint32) {
	ex.h.ChildrenAt, ex.h.ChildrenFrom, ex.dirty = t.now, n, true
	t.put(keys.DeadlineOf(keys.DeadlineChildren, t.now, ex.ns, ex.h.ID), []byte{})
	t.fx.expiration(t.now)
}

func (t *txn) dropChildrenDeadline(ns string, h *state.Header) {
	if h.ChildrenAt != 0 {
		t.remove(keys.DeadlineOf(keys.DeadlineChildren, h.ChildrenAt, ns, h.ID))
	}
}

// reachMoreChildren reaches the next open children.
func (t *txn) reachMoreChildren(ns, objectID string) {
	t.runExpirations(ns, objectID) // it may end the execution, which begins again with the first child
	ex, ok := t.execution(ns, objectID)
	if !ok || ex.h.ChildrenAt == 0 || ex.h.ChildrenAt > t.now {
		return
	}
	n, left := ex.h.ChildrenFrom, childrenBudget
	t.dropChildrenDeadline(ns, &ex.h)
	ex.h.ChildrenAt, ex.h.ChildrenFrom, ex.dirty = 0, 0, true
	for {
		n, ok = t.history(ex).NextOpenCall(n)
		if !ok {
			return
		}
		if left--; left < 0 {
			t.reachFrom(ex, n)
			return
		}
		t.reachChild(ex, string(id.PromiseID(objectID).Child(n)))
		n++
	}
}

// ending is how a child ends because of its parent.
type ending struct {
	terminate bool
	reason    string
	// graceMS is that of a cancel; 0: the default.
	graceMS int64
}

// reachChild cancels or terminates one child, if its close policy says so.
func (t *txn) reachChild(ex *execution, promise string) {
	p, ok := t.store(ex.ns).Promise(promise)
	if !ok || p.State.Settled() {
		return
	}
	if p.Target == "" {
		t.endElsewhere(ex.ns, p, func(policy state.ClosePolicy) (ending, bool) { return t.endingOf(ex, policy) })
		return
	}
	t.runExpirations(ex.ns, promise)
	child, ok := t.execution(ex.ns, promise)
	if !ok {
		return
	}
	if end, ok := t.endingOf(ex, child.h.ClosePolicy); ok {
		t.endChild(child, end)
	}
}

// endElsewhere sends a child that has a proxy promise here its ending.
func (t *txn) endElsewhere(ns string, p recovery.Promise, endingOf func(state.ClosePolicy) (ending, bool)) {
	child, ok := state.ChildOf(p)
	if !ok {
		return
	}
	end, ok := endingOf(child.Policy)
	if !ok {
		return
	}
	err := t.send(ns, child.ID, &commandv1.Message{FromId: p.ID, FromIncarnation: p.Incarnation, ToId: child.ID,
		Kind: &commandv1.Message_EndChild{EndChild: &commandv1.EndChild{
			PromiseId: p.ID, Reason: end.reason, Terminate: end.terminate, GraceMs: end.graceMS,
		}}})
	if err != nil {
		panic(state.Fault{Err: err})
	}
}

// endingOf is what a close policy makes of an execution's cancel or end; ok is false if the child runs on.
func (t *txn) endingOf(ex *execution, policy state.ClosePolicy) (end ending, ok bool) {
	h := &ex.h
	end.reason = h.CancelReason
	if end.reason == "" {
		end.reason = fmt.Sprintf("its parent %q is %s", h.ID, h.Status)
	}
	if h.Status == journal.StatusCancelling {
		end.graceMS = max(h.GraceAt-t.now, 1)
		return end, policy != state.CloseAbandon
	}
	switch policy {
	case state.CloseAbandon:
		return end, false
	case state.CloseFollow:
		end.terminate = h.Terminated
		return end, h.Status == journal.StatusCancelled
	}
	end.terminate = policy == state.CloseTerminate
	return end, true
}

// endChild cancels or terminates a child of this partition.
func (t *txn) endChild(child *execution, end ending) {
	switch p, _ := t.store(child.ns).Promise(child.h.ID); {
	case child.h.Status.Terminal():
	case end.terminate:
		t.mustNot(child, t.terminate(child, end.reason))
	case child.h.Status == journal.StatusCancelling:
	case p.DelayUntil > t.now:
		// Nothing of it has begun.
		t.noteReason(child, end.reason)
		t.mustNot(child, t.cancelled(child, end.reason))
	default:
		t.mustNot(child, t.requestCancel(child, end.reason, end.graceMS))
	}
}

// terminate ends an execution without its worker and without a clean-up.
func (t *txn) terminate(ex *execution, reason string) error {
	before := t.terminating
	t.terminating = ex
	defer func() { t.terminating = before }()
	t.noteReason(ex, reason)
	if t.m.feature >= state.LevelFunctions {
		ex.h.Terminated, ex.dirty = true, true
	}
	return t.cancelled(ex, reason)
}

// receiveEndChild ends a spread child. A child that is another caller's, or another incarnation's, is left alone.
func (t *txn) receiveEndChild(msg *commandv1.Message, w *commandv1.EndChild) error {
	t.level = max(t.level, state.LevelFunctions)
	t.runExpirations(msg.Namespace, msg.ToId)
	child, ok := t.execution(msg.Namespace, msg.ToId)
	if ok && child.h.ParentPromise == w.PromiseId && child.h.ParentIncarnation == msg.FromIncarnation {
		t.endChild(child, ending{terminate: w.Terminate, reason: w.Reason, graceMS: w.GraceMs})
	}
	return nil
}

// endSwept deletes the promise of an operation whose caller's incarnation is deleted, and ends its spread
// child if the close policy says so. The promise goes first: what comes of the child must not reach the
// caller's new incarnation.
func (t *txn) endSwept(ns, objectID string) {
	p, ok := t.store(ns).Promise(objectID)
	t.erasePromise(ns, objectID)
	if !ok || p.State.Settled() {
		return
	}
	t.endElsewhere(ns, p, func(policy state.ClosePolicy) (ending, bool) {
		end := ending{terminate: policy == state.CloseTerminate, reason: "a new incarnation of its parent has begun"}
		return end, policy == state.CloseTerminate || policy == state.CloseCancel
	})
}

// placement is where and when a child starts.
type placement struct {
	// ownID is the root id that the parent has chosen, "" for none.
	ownID string
	// spread: the child has a root id that depends on its parent's incarnation. Else, without an id of its
	// own, it has its promise's id.
	spread     bool
	policy     state.ClosePolicy
	startMS    int64 // 0: at once
	deadlineMS int64 // 0: none
	retry      state.Retry
	tags       []recovery.Tag
}

// placementOf reads a child's options, which must be checked before anything is written.
func (c *commit) placementOf(opts *perdurev1.ChildOptions) (at placement, refused *api.Error) {
	bad := func(format string, args ...any) *api.Error {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, format, args...).With("namespace", c.ex.ns).With("id", c.ex.h.ID)
	}
	at.policy = state.ClosePolicy(opts.ClosePolicy)
	switch {
	case opts.ClosePolicy < 0 || opts.ClosePolicy > perdurev1.ClosePolicy_CLOSE_POLICY_ABANDON:
		return at, bad("child %q has the unknown close policy %d", opts.PromiseId, opts.ClosePolicy)
	case opts.DelayMs < 0 || opts.DelayMs >= state.Never-c.t.now:
		return at, bad("child %q starts after %d ms", opts.PromiseId, opts.DelayMs)
	}
	if opts.Id != "" {
		if err := id.ValidateRoot(opts.Id); err != nil {
			return at, badID(c.ex.ns, err)
		}
		at.ownID = opts.Id
	}
	at.spread = at.ownID == "" && (opts.Spread || at.policy == state.CloseCancel || at.policy == state.CloseAbandon)
	at.deadlineMS = c.t.deadline(opts.TimeoutMs)
	if opts.DelayMs > 0 {
		at.startMS = c.t.now + opts.DelayMs
		if at.deadlineMS != 0 {
			at.deadlineMS = min(at.deadlineMS+opts.DelayMs, state.Never-1)
		}
	}
	return at, nil
}

// proxy creates the promise that stands for a child in another place.
func (t *txn) proxy(ex *execution, promise, childID string, at placement) error {
	req := recovery.CreateRequest{ID: promise, Incarnation: ex.h.Incarnation, External: true, TimeoutAt: at.deadlineMS}
	if at.deadlineMS == 0 {
		req.TimeoutAt = state.Never
	}
	if t.m.feature >= state.LevelFunctions {
		req.Tags = state.ChildElsewhere{ID: childID, Policy: at.policy, OwnID: at.ownID != "", Retry: at.retry, Tags: at.tags}.Mark()
	}
	made, _, err := recovery.Create(t.store(ex.ns), t.now, req, retryMS)
	if err == nil && !made.New {
		err = api.Errorf(perdurev1.Reason_REASON_ID_CONFLICT, "id %q is taken", promise).With("namespace", ex.ns).With("id", ex.h.ID)
	}
	return err
}
