package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/wire"
	"perdure/id"
	"perdure/recovery"
)

// applyCreatePromise creates a standalone promise, which a client settles. It is idempotent by id.
func applyCreatePromise(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	req, ns := cmd.GetCreatePromise(), cmd.Namespace
	if p, err := id.Parse(req.Id); err == nil && p.Depth() > 0 {
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_ID, "%q is how an execution names its operations", req.Id).
			With("namespace", ns).With("id", req.Id)
	}
	timeout := t.deadline(req.TimeoutMs)
	if timeout == 0 {
		timeout = state.Never
	}
	made, fx, err := recovery.Create(t.store(ns), t.now, recovery.CreateRequest{
		ID: req.Id, Incarnation: t.index, Param: req.Param, Tags: wire.DecodeTags(req.Tags), External: true, TimeoutAt: timeout,
	}, retryMS)
	if err != nil {
		return nil, ruleError(ns, err)
	}
	t.effects(ns, fx)
	return promiseReply(ns, made.Promise), nil
}

func promiseReply(ns string, p recovery.Promise) *commandv1.Reply {
	return &commandv1.Reply{Kind: &commandv1.Reply_Promise{Promise: &perdurev1.PromiseResponse{Promise: wire.EncodePromise(ns, p)}}}
}
