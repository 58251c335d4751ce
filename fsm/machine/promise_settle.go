package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/wire"
	"perdure/id"
	"perdure/recovery"
)

// applySettlePromise settles a standalone promise for a client. It answers with a settled promise unchanged. It
// refuses the promise of an execution, a timer or a signal wait.
func applySettlePromise(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	req, ns := cmd.GetSettlePromise(), cmd.Namespace
	p, ok := t.store(ns).Promise(req.Id)
	switch {
	case !ok && t.operation(ns, req.Id):
		return nil, notSettleable(ns, req.Id)
	case !ok:
		return nil, api.Errorf(perdurev1.Reason_REASON_PROMISE_NOT_FOUND, "no promise %q in namespace %q", req.Id, ns).
			With("namespace", ns).With("id", req.Id)
	}
	if refused := t.notStandalone(ns, p); refused != nil {
		return nil, refused
	}
	if err := wire.TokenOf(ns, p, req.Incarnation); err != nil {
		return nil, err
	}
	if state.OfNewPromise(p) && !state.HasSecret(p, nil) && !state.HasSecret(p, req.Secret) {
		return nil, api.Errorf(perdurev1.Reason_REASON_NOT_SETTLEABLE, "promise %q is settled by the token that its execution gives away", req.Id).
			With("namespace", ns).With("id", req.Id)
	}
	value, err := wire.DecodeOutcome(req.Value)
	if err != nil {
		return nil, err
	}
	to := wire.DecodePromiseState(req.State)
	st, rerr := recovery.Settle(t.store(ns), t.now, recovery.Ref{ID: req.Id}, to, value)
	if rerr != nil {
		return nil, ruleError(ns, rerr)
	}
	t.chain(ns, st)
	return promiseReply(ns, st.Promise), nil
}

// notStandalone refuses a promise that clients do not settle.
func (t *txn) notStandalone(ns string, p recovery.Promise) *api.Error {
	if state.OfClient(p) {
		return nil
	}
	if _, ends := t.executionOf(ns, p); ends || p.Target != "" || p.Timer || (t.ownedByExecution(ns, p) && !state.OfNewPromise(p)) {
		return notSettleable(ns, p.ID)
	}
	return nil
}

func notSettleable(ns, objectID string) *api.Error {
	return api.Errorf(perdurev1.Reason_REASON_NOT_SETTLEABLE,
		"promise %q belongs to an execution, which alone may settle it", objectID).With("namespace", ns).With("id", objectID)
}

// operation reports whether an id is an invocation that only its execution's journal knows of: a local
// step.
func (t *txn) operation(ns, objectID string) bool {
	parent, ok := state.ParentOf(objectID)
	if !ok {
		return false
	}
	ex, ok := t.execution(ns, parent)
	if !ok {
		return false
	}
	_, ok = t.history(ex).Invoke(id.PromiseID(objectID))
	return ok
}

func (t *txn) ownedByExecution(ns string, p recovery.Promise) bool {
	parent, ok := state.ParentOf(p.ID)
	if !ok {
		return false
	}
	ex, ok := t.execution(ns, parent)
	return ok && ex.h.Incarnation == p.Incarnation
}
