package query

import (
	"strings"

	"strconv"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/entity"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
	"perdure/journal"
	"perdure/recovery"
)

func (x *Read) describe() (*commandv1.QueryReply, *api.Error) {
	h, ok := x.Header(x.Query.Namespace, x.Query.Id)
	if !ok {
		return nil, wire.NotFound(x.Query.Namespace, x.Query.Id)
	}
	p, _ := x.promiseOf(h.ID)
	out := &perdurev1.Execution{
		Namespace: x.Query.Namespace, Id: h.ID, Incarnation: h.Incarnation, Function: h.Function,
		Status: x.status(h, p), CreatedMs: h.CreatedMS, ClosedMs: h.ClosedMS, DeadlineMs: h.DeadlineMS,
		JournalEvents: h.Events, ParentId: h.Parent, Tags: wire.EncodeTags(h.Tags), ComponentDigest: h.Digest,
		LastProblem: h.Problem, Partition: x.Partition, FormerIncarnation: h.Former, FormerIncarnations: h.Generation,
		CancelReason: h.CancelReason, Steps: x.steps(h),
	}
	if cleanup := h.CleanupID(); cleanup != "" {
		out.Cleanup = x.cleanup(cleanup)
	}
	if h.IsCleanup() {
		out.CleanupOf = h.Parent
	}
	if p.State.Settled() {
		out.Outcome = wire.EncodeOutcome(state.OutcomeOf(p))
	}
	task, hasTask := x.Task(x.Query.Namespace, h.ID)
	if hasTask {
		out.Task = &perdurev1.TaskInfo{State: task.State.String(), Version: task.Version, Worker: task.PID,
			LeaseUntilMs: task.LeaseAt, RetryAtMs: task.RetryAt}
	}
	if h.Status == journal.StatusBlocked {
		out.Waiting = x.waiting(h)
	}
	out.WakeSource = x.wakeSource(h, p, task, out.Waiting)
	if strings.HasPrefix(out.WakeSource, locksOf) {
		out.WaitingLocks = x.lockSet(h)
	} else if holder, ok := x.Holder(x.Query.Namespace, h.ID, h.Incarnation); ok && holder.Phase == entity.Inside {
		out.HeldLocks = x.lockSet(h)
	}
	return &commandv1.QueryReply{Kind: &commandv1.QueryReply_Describe{Describe: &perdurev1.DescribeResponse{Execution: out}}}, nil
}

// cleanup shows the clean-up of a cancelled execution.
func (x *Read) cleanup(cleanupID string) *perdurev1.Cleanup {
	out := &perdurev1.Cleanup{Id: cleanupID}
	h, ok := x.Header(x.Query.Namespace, cleanupID)
	if !ok {
		return out
	}
	p, _ := x.promiseOf(cleanupID)
	if out.Status = x.status(h, p); p.State.Settled() {
		out.Outcome = wire.EncodeOutcome(state.OutcomeOf(p))
	}
	return out
}

// waiting finds a blocked execution's open wait: the last ExecutionAwaiting of its journal. It decodes no
// other entry, since signals of many megabytes may follow the wait.
func (x *Read) waiting(h state.Header) *perdurev1.ExecutionAwaiting {
	window := uint64(8)
	for upper := h.Events; upper > 0; window = min(2*window, 1024) {
		from := upper - min(window, upper)
		var last *perdurev1.ExecutionAwaiting
		x.Entries(x.Query.Namespace, &h, from, upper, func(key, value []byte) bool {
			kind, err := journal.KindOf(value)
			if err == nil && kind == journal.KindExecutionAwaiting {
				var entry journal.Entry
				if entry, err = journal.DecodeEntry(value); err == nil {
					last = wire.EncodeEntry(entry).Event.GetExecutionAwaiting()
				}
			}
			if err != nil {
				state.PanicCorrupt("journal", key, err)
			}
			return true
		})
		if last != nil {
			return last
		}
		upper = from
	}
	return nil
}

// wakeSource names what will advance an execution next. Every open execution has a wake source; one without
// is a defect and is reported as stuck.
func (x *Read) wakeSource(h state.Header, p recovery.Promise, task recovery.Task, w *perdurev1.ExecutionAwaiting) string {
	switch {
	case h.Status.Terminal() || p.State.Settled():
		return "finished"
	case h.Kind == state.KindGraph:
		return x.graphWakeSource(h)
	case task.State == recovery.TaskAcquired:
		return "worker " + task.PID
	case task.State == recovery.TaskHalted:
		return "stuck: code"
	case task.State == recovery.TaskPending:
		if h.SweepAt != 0 {
			return "deletion of incarnation " + strconv.FormatUint(h.Former, 10)
		}
		if p.DelayUntil > 0 && task.RetryAt == p.DelayUntil {
			return "start delay"
		}
		if _, queued := x.Get(keys.ReadyOf(x.Query.Namespace, task.Target, task.RetryAt, h.ID)); !queued {
			return "retry timer"
		}
		return "no worker"
	case h.Status == journal.StatusCancelling:
		return "cancel grace"
	case w == nil:
		return "stuck"
	case w.Kind == perdurev1.AwaitKind_AWAIT_KIND_SIGNAL:
		return "signal " + w.SignalName
	}
	for _, on := range w.WaitingOn {
		// The stored promise, not its projection: a promise with an expired deadline will wake the execution.
		child, ok := x.Promise(x.Query.Namespace, on)
		switch {
		case !ok || child.State.Settled():
			continue
		case child.Timer:
			return "timer " + on
		case state.OfEntity(child) && child.Tags[0].Value == state.OfLocks:
			return x.lockSource(h)
		case state.OfEntity(child):
			return "entity " + string(child.Param)
		case state.OfSignal(child):
			return "signal " + string(child.Param)
		case state.OfNewPromise(child):
			return "promise " + on
		case state.OfAwait(child):
			return "promise " + string(child.Param)
		case state.OfSend(child):
			return "delivery to " + string(child.Param)
		default:
			if elsewhere, ok := state.ChildOf(child); ok {
				return "child " + on + ", execution " + elsewhere.ID
			}
			return "child " + on
		}
	}
	return "stuck"
}
