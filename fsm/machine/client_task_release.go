package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	"perdure/recovery"
)

// applyReleaseClientTask gives a task back unfinished.
func applyReleaseClientTask(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	t.clientCommand()
	req, ns := cmd.GetReleaseClientTask(), cmd.Namespace
	if refused := t.clientTask(ns, req.Id); refused != nil {
		return nil, refused
	}
	_, fx, err := recovery.Return(t.store(ns), t.now, taskRef(req.Id, req.Version), t.m.clientRetry)
	if err != nil {
		return nil, ruleError(ns, err)
	}
	t.effects(ns, fx)
	return t.taskReply(ns, req.Id), nil
}
