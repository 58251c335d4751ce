package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/recovery"
)

// applyCreateClientPromise creates a client's promise, with a pending task if it has a target. It is idempotent by id.
func applyCreateClientPromise(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	p, refused := t.createClientPromise(cmd.Namespace, cmd.GetCreateClientPromise())
	if refused != nil {
		return nil, refused
	}
	return promiseReply(cmd.Namespace, p), nil
}

func (t *txn) createClientPromise(ns string, req *perdurev1.CreateClientPromiseRequest) (recovery.Promise, *api.Error) {
	t.clientCommand()
	make, refused := t.clientPromise(ns, req)
	if refused != nil {
		return recovery.Promise{}, refused
	}
	made, fx, err := recovery.Create(t.store(ns), t.now, make, t.m.clientRetry)
	if err != nil {
		return recovery.Promise{}, ruleError(ns, err)
	}
	t.effects(ns, fx)
	return made.Promise, nil
}
