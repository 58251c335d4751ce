package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	"perdure/fsm/state"
	"perdure/recovery"
)

// applyCreateClientTask creates a promise whose task a client holds, or acquires the pending task of an existing one.
func applyCreateClientTask(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	t.clientCommand()
	req, ns := cmd.GetCreateClientTask(), cmd.Namespace
	make, refused := t.clientPromise(ns, req.Promise)
	if refused != nil {
		return nil, refused
	}
	if p, ok := t.store(ns).Promise(make.ID); ok && p.Target != "" && !state.OfClient(p) {
		return nil, ruleError(ns, &recovery.Error{Code: recovery.Precondition, Op: "create acquired", ID: make.ID,
			Rule: recovery.RuleTarget, Detail: "the promise is that of an execution"})
	}
	if _, err := recovery.CreateAcquired(t.store(ns), t.now, make, req.Pid, req.TtlMs); err != nil {
		return nil, ruleError(ns, err)
	}
	return t.holdingReply(ns, make.ID), nil
}
