package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/recovery"
)

// applySettlePromise settles a bare promise from outside. One that is settled is answered as it is. The
// promise of an execution, of a timer or of a signal wait is not the outside's to settle.
func applySettlePromise(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	req, ns := cmd.GetSettlePromise(), cmd.Namespace
	p, ok := t.store(ns).Promise(req.Id)
	if !ok {
		return nil, api.Errorf(perdurev1.Reason_REASON_PROMISE_NOT_FOUND, "no promise %q in namespace %q", req.Id, ns).
			With("namespace", ns).With("id", req.Id)
	}
	if p.Target != "" || p.Timer || t.ownedByExecution(ns, p) {
		return nil, api.Errorf(perdurev1.Reason_REASON_NOT_SETTLEABLE,
			"promise %q belongs to an execution, which alone may settle it", req.Id).With("namespace", ns).With("id", req.Id)
	}
	value, err := outcomeFromWire(req.Value)
	if err != nil {
		return nil, err
	}
	state := promiseStateFromWire(req.State)
	st, rerr := recovery.Settle(t.store(ns), t.now, recovery.Ref{ID: req.Id}, state, value)
	if rerr != nil {
		return nil, ruleError(ns, rerr)
	}
	t.chain(ns, st)
	return promiseReply(ns, st.Promise), nil
}

func (t *txn) ownedByExecution(ns string, p recovery.Promise) bool {
	parent, ok := parentOf(p.ID)
	if !ok {
		return false
	}
	ex, ok := t.execution(ns, parent)
	return ok && ex.h.Incarnation == p.Incarnation
}
