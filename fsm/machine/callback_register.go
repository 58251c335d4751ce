package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	"perdure/fsm/state"
	"perdure/recovery"
)

// applyRegisterCallback makes a client's task wait for a promise of the same origin. It is idempotent by its own guard.
func applyRegisterCallback(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	t.clientCommand()
	req, ns := cmd.GetRegisterCallback(), cmd.Namespace
	if refused := sameOrigin(ns, req.Id, req.Awaiter); refused != nil {
		return nil, refused
	}
	own, there := t.store(ns).Promise(req.Awaiter)
	if _, ok := t.store(ns).Promise(req.Id); ok && there && own.Target != "" && !state.OfClient(own) {
		return nil, ruleError(ns, &recovery.Error{Code: recovery.Precondition, Op: "register callback", ID: own.ID,
			Rule: recovery.RuleAwaiter, Detail: "the awaiter is an execution, which waits by its journal"})
	}
	got, err := recovery.RegisterCallback(t.store(ns), t.now, recovery.Ref{ID: req.Id}, recovery.Ref{ID: req.Awaiter}, false)
	if err != nil {
		return nil, ruleError(ns, err)
	}
	return promiseReply(ns, got.Promise), nil
}
