package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	"perdure/recovery"
)

// applyHaltClientTask takes a task out of service. It is idempotent by its own guard.
func applyHaltClientTask(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	t.clientCommand()
	req, ns := cmd.GetHaltClientTask(), cmd.Namespace
	if refused := t.clientTask(ns, req.Id); refused != nil {
		return nil, refused
	}
	if _, err := recovery.Halt(t.store(ns), t.now, recovery.Ref{ID: req.Id}); err != nil {
		return nil, ruleError(ns, err)
	}
	return t.taskReply(ns, req.Id), nil
}
