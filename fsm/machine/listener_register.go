package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	"perdure/recovery"
)

// applyRegisterListener has an address told of a promise's settlement. It is idempotent by its own guard.
func applyRegisterListener(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	t.clientCommand()
	req, ns := cmd.GetRegisterListener(), cmd.Namespace
	if refused := checkAddress(ns, req.Id, req.Address); refused != nil {
		return nil, refused
	}
	got, err := recovery.RegisterListener(t.store(ns), t.now, recovery.Ref{ID: req.Id}, req.Address, false)
	if err != nil {
		return nil, ruleError(ns, err)
	}
	return promiseReply(ns, got.Promise), nil
}
