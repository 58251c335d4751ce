package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// applyRegisterFunctions records that workers serve these functions, so that a start of a function that no
// worker has ever registered can be refused by name. A digest that is new to a function becomes its current
// one. Stuck executions that other code gave back are announced again.
func applyRegisterFunctions(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	for _, fn := range cmd.GetRegisterFunctions().Functions {
		if err := reserved(fn); err != nil {
			return nil, err.With("namespace", cmd.Namespace)
		}
	}
	req := cmd.GetRegisterFunctions()
	versions, woken := t.m.feature >= state.LevelFunctions, 0
	for _, fn := range req.Functions {
		key := keys.Of(keys.Function, cmd.Namespace, fn)
		if !t.has(key) {
			t.put(key, []byte{})
		}
		q := state.Queue{Namespace: cmd.Namespace, Function: fn}
		if known := t.m.digests[q]; versions && req.Digest != "" && !known.Knows(req.Digest) {
			known = known.With(req.Digest)
			t.m.digests[q] = known
			t.put(key, known.Encode())
		}
		if versions {
			woken += t.wakeStuck(cmd.Namespace, fn, req.Code, maxWoken-woken)
			woken += t.wakeStuck(cmd.Namespace, state.FunctionCleanup+fn, req.Code, maxWoken-woken)
		}
	}
	return &commandv1.Reply{Kind: &commandv1.Reply_RegisterFunctions{RegisterFunctions: &commandv1.RegisterFunctionsReply{More: woken == maxWoken}}}, nil
}
