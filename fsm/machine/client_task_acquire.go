package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	"perdure/recovery"
)

// applyAcquireClientTask gives a pending task to a client.
func applyAcquireClientTask(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	t.clientCommand()
	req, ns := cmd.GetAcquireClientTask(), cmd.Namespace
	if refused := t.clientTask(ns, req.Id); refused != nil {
		return nil, refused
	}
	if _, err := recovery.Acquire(t.store(ns), t.now, taskRef(req.Id, req.Version), req.Pid, req.TtlMs); err != nil {
		return nil, ruleError(ns, err)
	}
	return t.holdingReply(ns, req.Id), nil
}
