package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/journal"
	"perdure/recovery"
)

// applyHeartbeat extends the leases of a worker process's tasks in this partition, and stores what their steps report.
func applyHeartbeat(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	req := cmd.GetHeartbeat()
	reply := &commandv1.HeartbeatReply{}
	steps := map[string][]*perdurev1.StepHeartbeat{}
	for _, step := range req.Steps {
		if parent, ok := state.ParentOf(step.PromiseId); ok {
			steps[parent] = append(steps[parent], step)
		}
	}
	for _, token := range req.Tasks {
		held := recovery.Heartbeat(t.store(token.Namespace), t.now, req.Worker,
			[]recovery.TaskRef{{ID: token.Id, Incarnation: token.Incarnation, Version: token.Version}})
		if len(held) == 0 {
			reply.Lost = append(reply.Lost, token)
			continue
		}
		ex, ok := t.execution(token.Namespace, token.Id)
		if !ok {
			continue // an entity
		}
		if ex.h.Status == journal.StatusCancelling {
			reply.Cancelling = append(reply.Cancelling, token)
		}
		if of := steps[token.Id]; len(of) > 0 {
			t.reported(ex, of)
		}
	}
	return &commandv1.Reply{Kind: &commandv1.Reply_Heartbeat{Heartbeat: reply}}, nil
}
