package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	"perdure/fsm/state/keys"
)

// applyRegisterFunctions records that workers serve these functions, so that a start of a function that no
// worker has ever registered can be refused by name.
func applyRegisterFunctions(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	for _, fn := range cmd.GetRegisterFunctions().Functions {
		if err := reserved(fn); err != nil {
			return nil, err.With("namespace", cmd.Namespace)
		}
	}
	for _, fn := range cmd.GetRegisterFunctions().Functions {
		key := keys.Of(keys.Function, cmd.Namespace, fn)
		if _, known := t.get(key); !known {
			t.put(key, []byte{})
		}
	}
	return &commandv1.Reply{Kind: &commandv1.Reply_RegisterFunctions{RegisterFunctions: &commandv1.RegisterFunctionsReply{}}}, nil
}
