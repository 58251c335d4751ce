package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
)

// rule is what the machine does for one kind of command.
type rule struct {
	// apply runs the command within a transaction; a refusal drops the transaction.
	apply func(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error)
	// about is the id of the object that the command's content names; "" if it names none.
	about string
	// level is the feature level that the kind came with. A leader proposes it only from that level on
	// (LevelOf); messages within Deliver need no level, since their senders have reached it.
	level uint64
	// stored: the machine stores the answer by request id, because the command is not idempotent by itself.
	stored bool
}

// ruleOf finds the rule of a command's kind; ok is false for a kind that this program does not know.
func ruleOf(cmd *commandv1.Command) (r rule, ok bool) {
	r, ok = kindOf(cmd)
	if r.level > state.FeatureLevel {
		return rule{}, false
	}
	return r, ok
}

// kindOf is the one table of command kinds.
func kindOf(cmd *commandv1.Command) (r rule, ok bool) {
	switch k := cmd.Kind.(type) {
	case *commandv1.Command_Start:
		r := rule{apply: applyStart, level: state.LevelFirst, about: k.Start.GetId()}
		if k.Start.GetReuse() != perdurev1.Reuse_REUSE_REJECT {
			r.level, r.stored = state.LevelFunctions, true
		}
		return r, true
	case *commandv1.Command_Commit:
		r := rule{apply: applyCommit, level: state.LevelFirst, about: k.Commit.GetTask().GetId()}
		if k.Commit.GetContinueAsNew() != nil {
			r.level = state.LevelFunctions
		}
		return r, true
	case *commandv1.Command_Restart:
		return rule{apply: applyRestart, level: state.LevelFunctions, about: k.Restart.GetId(), stored: true}, true
	case *commandv1.Command_Purge:
		return rule{apply: applyPurge, level: state.LevelFunctions, about: k.Purge.GetId()}, true
	case *commandv1.Command_PurgeMany:
		return rule{apply: applyPurgeMany, level: state.LevelPurges}, true
	case *commandv1.Command_Release:
		return rule{apply: applyRelease, level: state.LevelFirst, about: k.Release.GetTask().GetId()}, true
	case *commandv1.Command_Heartbeat:
		return rule{apply: applyHeartbeat, level: state.LevelFirst}, true
	case *commandv1.Command_Signal:
		return rule{apply: applySignal, level: state.LevelFirst, about: k.Signal.GetId(), stored: true}, true
	case *commandv1.Command_Cancel:
		return rule{apply: applyCancel, level: state.LevelFirst, about: k.Cancel.GetId()}, true
	case *commandv1.Command_Terminate:
		return rule{apply: applyTerminate, level: state.LevelFirst, about: k.Terminate.GetId()}, true
	case *commandv1.Command_CreatePromise:
		return rule{apply: applyCreatePromise, level: state.LevelFirst, about: k.CreatePromise.GetId(), stored: true}, true
	case *commandv1.Command_SettlePromise:
		return rule{apply: applySettlePromise, level: state.LevelFirst, about: k.SettlePromise.GetId()}, true
	case *commandv1.Command_SubmitGraph:
		return rule{apply: applySubmitGraph, level: state.LevelGraphs, about: k.SubmitGraph.GetId()}, true
	case *commandv1.Command_RetryGraph:
		return rule{apply: applyRetryGraph, level: state.LevelGraphs, about: k.RetryGraph.GetId(), stored: true}, true
	case *commandv1.Command_EnterCut:
		return rule{apply: applyEnterCut, level: state.LevelFunctions}, true
	case *commandv1.Command_Tick:
		return rule{apply: applyTick, level: state.LevelFirst}, true
	case *commandv1.Command_RegisterFunctions:
		return rule{apply: applyRegisterFunctions, level: state.LevelFirst}, true
	case *commandv1.Command_Deliver:
		return rule{apply: applyDeliver, level: state.LevelFirst}, true
	case *commandv1.Command_Trim:
		return rule{apply: applyTrim, level: state.LevelFirst}, true
	case *commandv1.Command_InheritLeases:
		return rule{apply: applyInheritLeases, level: state.LevelLeases}, true
	case *commandv1.Command_RaiseLevel:
		return rule{apply: applyRaiseLevel, level: state.LevelAnswers}, true
	case *commandv1.Command_SignalEntity:
		return rule{apply: applySignalEntity, level: state.LevelFunctions, about: k.SignalEntity.GetId(), stored: true}, true
	case *commandv1.Command_CallEntity:
		return rule{apply: applyCallEntity, level: state.LevelFunctions, about: k.CallEntity.GetId(), stored: true}, true
	case *commandv1.Command_CommitEntity:
		return rule{apply: applyCommitEntity, level: state.LevelFunctions, about: k.CommitEntity.GetTask().GetId()}, true
	case *commandv1.Command_Import:
		return rule{apply: applyImport, level: state.LevelFunctions}, true
	case *commandv1.Command_ImportDone:
		return rule{apply: applyImportDone, level: state.LevelFunctions}, true
	case *commandv1.Command_CreateClientPromise:
		return rule{apply: applyCreateClientPromise, level: state.LevelFunctions, about: k.CreateClientPromise.GetId(), stored: true}, true
	case *commandv1.Command_SettleClientPromise:
		return rule{apply: applySettleClientPromise, level: state.LevelFunctions, about: k.SettleClientPromise.GetId(), stored: true}, true
	case *commandv1.Command_RegisterCallback:
		return rule{apply: applyRegisterCallback, level: state.LevelFunctions, about: k.RegisterCallback.GetId(), stored: true}, true
	case *commandv1.Command_RegisterListener:
		return rule{apply: applyRegisterListener, level: state.LevelFunctions, about: k.RegisterListener.GetId(), stored: true}, true
	case *commandv1.Command_CreateClientTask:
		return rule{apply: applyCreateClientTask, level: state.LevelFunctions, about: k.CreateClientTask.GetPromise().GetId(), stored: true}, true
	case *commandv1.Command_AcquireClientTask:
		return rule{apply: applyAcquireClientTask, level: state.LevelFunctions, about: k.AcquireClientTask.GetId(), stored: true}, true
	case *commandv1.Command_ReleaseClientTask:
		return rule{apply: applyReleaseClientTask, level: state.LevelFunctions, about: k.ReleaseClientTask.GetId(), stored: true}, true
	case *commandv1.Command_SuspendClientTask:
		return rule{apply: applySuspendClientTask, level: state.LevelFunctions, about: k.SuspendClientTask.GetId(), stored: true}, true
	case *commandv1.Command_FulfillClientTask:
		return rule{apply: applyFulfillClientTask, level: state.LevelFunctions, about: k.FulfillClientTask.GetId(), stored: true}, true
	case *commandv1.Command_FenceClientTask:
		return rule{apply: applyFenceClientTask, level: state.LevelFunctions, about: k.FenceClientTask.GetId(), stored: true}, true
	case *commandv1.Command_HeartbeatClientTasks:
		about := ""
		if tasks := k.HeartbeatClientTasks.GetTasks(); len(tasks) > 0 {
			about = tasks[0].GetId()
		}
		return rule{apply: applyHeartbeatClientTasks, level: state.LevelFunctions, about: about}, true
	case *commandv1.Command_HaltClientTask:
		return rule{apply: applyHaltClientTask, level: state.LevelFunctions, about: k.HaltClientTask.GetId(), stored: true}, true
	case *commandv1.Command_ContinueClientTask:
		return rule{apply: applyContinueClientTask, level: state.LevelFunctions, about: k.ContinueClientTask.GetId(), stored: true}, true
	case *commandv1.Command_CreateSchedule:
		return rule{apply: applyCreateSchedule, level: state.LevelFunctions, about: k.CreateSchedule.GetId(), stored: true}, true
	case *commandv1.Command_DeleteSchedule:
		return rule{apply: applyDeleteSchedule, level: state.LevelFunctions, about: k.DeleteSchedule.GetId(), stored: true}, true
	case *commandv1.Command_AdvanceSchedule:
		return rule{apply: applyAdvanceSchedule, level: state.LevelFunctions, about: k.AdvanceSchedule.GetId()}, true
	case *commandv1.Command_UnblocksDelivered:
		return rule{apply: applyUnblocksDelivered, level: state.LevelFunctions}, true
	case *commandv1.Command_ImportHistory:
		return rule{apply: applyImportHistory, level: state.LevelFunctions, about: k.ImportHistory.GetId()}, true
	case *commandv1.Command_Assign:
		return rule{apply: applyAssign, level: state.LevelFirst}, true
	}
	return rule{}, false
}

// LevelOf returns the feature level from which on a command may be proposed: that of its kind, or the level that it
// raises the state to. ok is false for a kind that this program does not know.
func LevelOf(cmd *commandv1.Command) (level uint64, ok bool) {
	r, ok := ruleOf(cmd)
	return max(r.level, cmd.GetRaiseLevel().GetLevel(), cmd.GetImportDone().GetLevel(), contentLevel(cmd)), ok
}

// contentLevel is the feature level of a command's fields that are younger than its kind.
func contentLevel(cmd *commandv1.Command) uint64 {
	if level := purgesLevel(cmd.GetPurgeMany()); level > 0 {
		return level
	}
	c := cmd.GetCommit()
	if c.GetCleanupMs() != 0 || cmd.GetSignal().GetStart() != nil || cmd.GetSettlePromise().GetIncarnation() != 0 {
		return state.LevelFunctions
	}
	if n := len(c.GetEvents()); n > 0 && c.Events[n-1].GetExecutionAwaiting().GetKind() == perdurev1.AwaitKind_AWAIT_KIND_JOIN_SET {
		return state.LevelFunctions
	}
	for _, o := range cmd.GetCommit().GetChildren() {
		if o.Id != "" || o.DelayMs != 0 || o.ClosePolicy != 0 {
			return state.LevelFunctions
		}
	}
	return 0
}
