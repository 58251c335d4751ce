package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
)

// rule is what the machine does for one kind of command.
type rule struct {
	// apply carries the command out within a transaction; a refusal drops the transaction.
	apply func(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error)
	// stored: the answer is kept by request id, because the command is not idempotent by itself.
	stored bool
}

// commands is the one table of command kinds, by their field number in Command, which is kept for ever.
var commands = map[int]rule{
	16: {apply: applyStart},
	17: {apply: applyCommit},
	18: {apply: applyRelease},
	19: {apply: applyHeartbeat},
	20: {apply: applySignal, stored: true},
	21: {apply: applyCancel},
	22: {apply: applyTerminate},
	23: {apply: applyCreatePromise},
	24: {apply: applySettlePromise},
	25: {apply: applyTick},
	26: {apply: applyRegisterFunctions},
	27: {apply: applyDeliver},
	28: {apply: applyTrim},
	29: {apply: applyAssign},
}

// commandKind is the field number of a command's kind; 0 for one this program does not know.
func commandKind(cmd *commandv1.Command) int {
	m := cmd.ProtoReflect()
	field := m.WhichOneof(m.Descriptor().Oneofs().ByName("kind"))
	if field == nil {
		return 0
	}
	return int(field.Number())
}
