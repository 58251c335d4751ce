package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/recovery"
)

// applyHeartbeatClientTasks extends the leases of the tasks that a client's process holds in this partition, and ignores
// all others.
func applyHeartbeatClientTasks(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	t.clientCommand()
	req, ns := cmd.GetHeartbeatClientTasks(), cmd.Namespace
	out := &perdurev1.HeartbeatClientTasksResponse{}
	for _, ref := range req.Tasks {
		if state.PartitionOf(ns, ref.Id, t.m.cfg.Partitions) != t.m.cfg.Partition || t.clientTask(ns, ref.Id) != nil {
			continue
		}
		if held := recovery.Heartbeat(t.store(ns), t.now, req.Pid, []recovery.TaskRef{taskRef(ref.Id, ref.Version)}); len(held) > 0 {
			out.Held = append(out.Held, ref)
		}
	}
	return &commandv1.Reply{Kind: &commandv1.Reply_ClientHeartbeat{ClientHeartbeat: out}}, nil
}
