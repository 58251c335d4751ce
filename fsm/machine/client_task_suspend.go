package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/wire"
	"perdure/recovery"
)

// maxAwaited bounds the promises that one suspend waits for.
const maxAwaited = 10_000

// applySuspendClientTask puts a task to sleep until one of the awaited promises settles.
func applySuspendClientTask(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	t.clientCommand()
	req, ns := cmd.GetSuspendClientTask(), cmd.Namespace
	if len(req.Awaited) > maxAwaited {
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "%d awaited promises exceed %d", len(req.Awaited), maxAwaited).
			With("namespace", ns).With("id", req.Id)
	}
	awaited := make([]recovery.Ref, len(req.Awaited))
	for i, a := range req.Awaited {
		if refused := sameOrigin(ns, a, req.Id); refused != nil {
			return nil, refused
		}
		awaited[i].ID = a
	}
	if refused := t.clientTask(ns, req.Id); refused != nil {
		return nil, refused
	}
	got, err := recovery.Suspend(t.store(ns), t.now, taskRef(req.Id, req.Version), awaited, false)
	if err != nil {
		return nil, ruleError(ns, err)
	}
	reply := t.taskReply(ns, req.Id)
	for _, p := range got.Ready {
		reply.GetClientTask().Ready = append(reply.GetClientTask().Ready, wire.EncodePromise(ns, p))
	}
	return reply, nil
}
