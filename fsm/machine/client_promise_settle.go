package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/wire"
	"perdure/recovery"
)

// applySettleClientPromise settles a promise for a client of the recovery protocol, and answers with a settled one
// unchanged. It is idempotent by its own guard.
func applySettleClientPromise(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	p, refused := t.settleClientPromise(cmd.Namespace, cmd.GetSettleClientPromise())
	if refused != nil {
		return nil, refused
	}
	return promiseReply(cmd.Namespace, p), nil
}

func (t *txn) settleClientPromise(ns string, req *perdurev1.SettleClientPromiseRequest) (recovery.Promise, *api.Error) {
	t.clientCommand()
	to := wire.DecodePromiseState(req.GetState())
	value, refused := clientValue(ns, req.GetId(), req.GetValue())
	if refused != nil {
		return recovery.Promise{}, refused
	}
	if refused := t.clientSettles(ns, req.GetId()); to.Settable() && refused != nil {
		return recovery.Promise{}, refused
	}
	st, err := recovery.Settle(t.store(ns), t.now, recovery.Ref{ID: req.GetId()}, to, value)
	return st.Promise, t.settleClient(ns, st, err)
}

// clientSettles refuses promises that no client may settle: those of executions, and those that need a secret.
func (t *txn) clientSettles(ns, objectID string) *api.Error {
	p, ok := t.store(ns).Promise(objectID)
	if !ok || state.OfClient(p) {
		return nil
	}
	if refused := t.notStandalone(ns, p); refused != nil {
		return refused
	}
	if state.OfNewPromise(p) && !state.HasSecret(p, nil) {
		return notSettleable(ns, objectID)
	}
	return nil
}
