package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
)

// rule is what the machine does for one kind of command.
type rule struct {
	// apply carries the command out within a transaction; a refusal drops the transaction.
	apply func(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error)
	// about is the id of the object that the command's content names; "" if it is about none.
	about string
	// stored: the answer is kept by request id, because the command is not idempotent by itself.
	stored bool
}

// ruleOf is the one table of command kinds; ok is false for a kind this program does not know.
func ruleOf(cmd *commandv1.Command) (r rule, ok bool) {
	switch k := cmd.Kind.(type) {
	case *commandv1.Command_Start:
		return rule{apply: applyStart, about: k.Start.GetId()}, true
	case *commandv1.Command_Commit:
		return rule{apply: applyCommit, about: k.Commit.GetTask().GetId()}, true
	case *commandv1.Command_Release:
		return rule{apply: applyRelease, about: k.Release.GetTask().GetId()}, true
	case *commandv1.Command_Heartbeat:
		return rule{apply: applyHeartbeat}, true
	case *commandv1.Command_Signal:
		return rule{apply: applySignal, about: k.Signal.GetId(), stored: true}, true
	case *commandv1.Command_Cancel:
		return rule{apply: applyCancel, about: k.Cancel.GetId()}, true
	case *commandv1.Command_Terminate:
		return rule{apply: applyTerminate, about: k.Terminate.GetId()}, true
	case *commandv1.Command_CreatePromise:
		return rule{apply: applyCreatePromise, about: k.CreatePromise.GetId(), stored: true}, true
	case *commandv1.Command_SettlePromise:
		return rule{apply: applySettlePromise, about: k.SettlePromise.GetId()}, true
	case *commandv1.Command_SubmitGraph:
		return rule{apply: applySubmitGraph, about: k.SubmitGraph.GetId()}, true
	case *commandv1.Command_RetryGraph:
		return rule{apply: applyRetryGraph, about: k.RetryGraph.GetId(), stored: true}, true
	case *commandv1.Command_Tick:
		return rule{apply: applyTick}, true
	case *commandv1.Command_RegisterFunctions:
		return rule{apply: applyRegisterFunctions}, true
	case *commandv1.Command_Deliver:
		return rule{apply: applyDeliver}, true
	case *commandv1.Command_Trim:
		return rule{apply: applyTrim}, true
	case *commandv1.Command_InheritLeases:
		return rule{apply: applyInheritLeases}, true
	case *commandv1.Command_RaiseLevel:
		return rule{apply: applyRaiseLevel}, true
	case *commandv1.Command_Assign:
		return rule{apply: applyAssign}, true
	}
	return rule{}, false
}
