package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	"perdure/fsm/state/keys"
)

// applyDeleteSchedule deletes a schedule. The promises of its runs stay.
func applyDeleteSchedule(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	t.clientCommand()
	req, ns := cmd.GetDeleteSchedule(), cmd.Namespace
	s, ok := t.schedule(ns, req.Id)
	if !ok {
		return nil, noSchedule(ns, req.Id)
	}
	t.remove(keys.Of(keys.Schedule, ns, req.Id))
	return scheduleReply(s), nil
}
