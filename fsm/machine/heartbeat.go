package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	"perdure/journal"
	"perdure/recovery"
)

// applyHeartbeat extends the leases of a worker process's tasks in this partition.
func applyHeartbeat(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	req := cmd.GetHeartbeat()
	reply := &commandv1.HeartbeatReply{}
	for _, token := range req.Tasks {
		held := recovery.Heartbeat(t.store(token.Namespace), t.now, req.Worker,
			[]recovery.TaskRef{{ID: token.Id, Incarnation: token.Incarnation, Version: token.Version}})
		if len(held) == 0 {
			reply.Lost = append(reply.Lost, token)
			continue
		}
		if ex, ok := t.execution(token.Namespace, token.Id); ok && ex.h.Status == journal.StatusCancelling {
			reply.Cancelling = append(reply.Cancelling, token)
		}
	}
	return &commandv1.Reply{Kind: &commandv1.Reply_Heartbeat{Heartbeat: reply}}, nil
}
