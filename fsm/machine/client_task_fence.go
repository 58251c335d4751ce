package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/wire"
	"perdure/recovery"
)

// applyFenceClientTask creates or settles another promise of the partition if the client still holds a task.
func applyFenceClientTask(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	t.clientCommand()
	req, ns := cmd.GetFenceClientTask(), cmd.Namespace
	other := req.GetCreate().GetId()
	if req.GetSettle() != nil {
		other = req.GetSettle().GetId()
	}
	bad := func(rule, format string, args ...any) (*commandv1.Reply, *api.Error) {
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, format, args...).With("namespace", ns).With("id", req.Id).With("rule", rule)
	}
	to := wire.DecodePromiseState(req.GetSettle().GetState())
	switch {
	case req.Action == nil:
	case other == req.Id:
		return bad("fence_other", "task %q is fenced with an action on itself", req.Id)
	case state.PartitionOf(ns, other, t.m.cfg.Partitions) != t.m.cfg.Partition:
		return bad("same_origin", "task %q is fenced with an action on %q, which is in another partition", req.Id, other)
	case req.GetSettle() != nil && !to.Settable():
		return bad(recovery.RuleSettleTo, "cannot settle %q to %s", other, to)
	}
	// The action's form is checked before the guard.
	if create := req.GetCreate(); create != nil {
		if _, refused := t.clientPromise(ns, create); refused != nil {
			return nil, refused
		}
	}
	if refused := t.clientTask(ns, req.Id); refused != nil {
		return nil, refused
	}
	if _, err := recovery.Fence(t.store(ns), t.now, taskRef(req.Id, req.Version)); err != nil {
		return nil, ruleError(ns, err)
	}
	out := &perdurev1.FenceClientTaskResponse{}
	var p recovery.Promise
	var refused *api.Error
	switch action := req.Action.(type) {
	case *perdurev1.FenceClientTaskRequest_Create:
		p, refused = t.createClientPromise(ns, action.Create)
	case *perdurev1.FenceClientTaskRequest_Settle:
		if _, ok := t.store(ns).Promise(other); ok {
			p, refused = t.settleClientPromise(ns, action.Settle)
		}
	}
	if refused != nil {
		return nil, refused
	}
	if p.ID != "" {
		out.Promise = wire.EncodePromise(ns, p)
	}
	return &commandv1.Reply{Kind: &commandv1.Reply_Fence{Fence: out}}, nil
}
