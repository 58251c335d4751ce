package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	"perdure/fsm/wire"
	"perdure/recovery"
)

// applyFulfillClientTask settles the promise of a task for the client that holds it.
func applyFulfillClientTask(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	t.clientCommand()
	req, ns := cmd.GetFulfillClientTask(), cmd.Namespace
	if refused := t.clientTask(ns, req.Id); refused != nil {
		return nil, refused
	}
	value, refused := clientValue(ns, req.Id, req.Value)
	if refused != nil {
		return nil, refused
	}
	st, err := recovery.Fulfill(t.store(ns), t.now, taskRef(req.Id, req.Version), wire.DecodePromiseState(req.State), value)
	if refused := t.settleClient(ns, st, err); refused != nil {
		return nil, refused
	}
	return t.holdingReply(ns, req.Id), nil
}
