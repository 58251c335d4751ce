package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	"perdure/recovery"
)

// applyContinueClientTask puts a halted task back into service.
func applyContinueClientTask(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	t.clientCommand()
	req, ns := cmd.GetContinueClientTask(), cmd.Namespace
	if refused := t.clientTask(ns, req.Id); refused != nil {
		return nil, refused
	}
	_, fx, err := recovery.Continue(t.store(ns), t.now, recovery.Ref{ID: req.Id}, t.m.clientRetry)
	if err != nil {
		return nil, ruleError(ns, err)
	}
	t.effects(ns, fx)
	return t.taskReply(ns, req.Id), nil
}
