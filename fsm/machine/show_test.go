package machine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/wire"
)

// The machine's answers as text, one line each.

func showFailure(f *perdurev1.Failure) string {
	s := "!" + f.GetType()
	if f.GetMessage() != "" {
		s += fmt.Sprintf(" %q", f.GetMessage())
	}
	if f.GetNonRetryable() {
		s += " (final)"
	}
	return s
}

func showOutcome(o *perdurev1.Outcome) string {
	switch r := o.GetResult().(type) {
	case *perdurev1.Outcome_Failure:
		return showFailure(r.Failure)
	default:
		return fmt.Sprintf("%q", o.GetValue())
	}
}

func status(s perdurev1.ExecutionStatus) string {
	return strings.TrimPrefix(s.String(), "EXECUTION_STATUS_")
}

// showEvent is one event: its kind, then its fields.
func showEvent(ev *perdurev1.Event) string {
	kind := ev.ProtoReflect().WhichOneof(ev.ProtoReflect().Descriptor().Oneofs().Get(0))
	if kind == nil {
		return "none"
	}
	s := string(kind.Message().Name())
	add := func(format string, args ...any) { s += " " + fmt.Sprintf(format, args...) }
	switch k := ev.Kind.(type) {
	case *perdurev1.Event_ExecutionStarted:
		e := k.ExecutionStarted
		add("input=%q", e.Input)
		if e.ParentId != "" {
			add("parent=%s", e.ParentId)
		}
		if e.IdempotencyKey != "" {
			add("key=%s", e.IdempotencyKey)
		}
	case *perdurev1.Event_ExecutionCompleted:
		add("%q", k.ExecutionCompleted.Result)
	case *perdurev1.Event_ExecutionFailed:
		add("%s", showFailure(k.ExecutionFailed.Error))
	case *perdurev1.Event_CancelRequested:
		add("%q", k.CancelRequested.Reason)
	case *perdurev1.Event_ExecutionCancelled:
		add("%q", k.ExecutionCancelled.Reason)
	case *perdurev1.Event_InvokeScheduled:
		e := k.InvokeScheduled
		add("%s %s %s", e.PromiseId, strings.ToLower(strings.TrimPrefix(e.Kind.String(), "INVOKE_KIND_")), e.FunctionName)
		if len(e.Input) > 0 {
			add("input=%q", e.Input)
		}
		if e.RetryPolicy != "" {
			add("%s", e.RetryPolicy)
		}
	case *perdurev1.Event_InvokeStarted:
		add("%s #%d", k.InvokeStarted.PromiseId, k.InvokeStarted.Attempt)
	case *perdurev1.Event_InvokeCompleted:
		add("%s #%d %s", k.InvokeCompleted.PromiseId, k.InvokeCompleted.Attempt, showOutcome(k.InvokeCompleted.Result))
	case *perdurev1.Event_InvokeRetrying:
		add("%s #%d %s again at %d", k.InvokeRetrying.PromiseId, k.InvokeRetrying.FailedAttempt,
			showFailure(k.InvokeRetrying.Error), k.InvokeRetrying.RetryAtMs)
	case *perdurev1.Event_RandomGenerated:
		add("%s %q", k.RandomGenerated.PromiseId, k.RandomGenerated.Value)
	case *perdurev1.Event_TimeRecorded:
		add("%s %d", k.TimeRecorded.PromiseId, k.TimeRecorded.TimeMs)
	case *perdurev1.Event_TimerScheduled:
		add("%s for %d, due %d", k.TimerScheduled.PromiseId, k.TimerScheduled.DurationMs, k.TimerScheduled.FireAtMs)
	case *perdurev1.Event_TimerFired:
		add("%s", k.TimerFired.PromiseId)
	case *perdurev1.Event_SignalDelivered:
		add("%s %d %s", k.SignalDelivered.Name, k.SignalDelivered.DeliveryId, showOutcome(k.SignalDelivered.Payload))
	case *perdurev1.Event_SignalReceived:
		add("%s %s %d %s", k.SignalReceived.PromiseId, k.SignalReceived.Name, k.SignalReceived.DeliveryId, showOutcome(k.SignalReceived.Payload))
	case *perdurev1.Event_ExecutionAwaiting:
		add("%s %s", strings.ToLower(strings.TrimPrefix(k.ExecutionAwaiting.Kind.String(), "AWAIT_KIND_")), strings.Join(k.ExecutionAwaiting.WaitingOn, ","))
		if k.ExecutionAwaiting.JoinSetId != "" {
			add("of %s", k.ExecutionAwaiting.JoinSetId)
		}
		if k.ExecutionAwaiting.SignalName != "" {
			add("%s", k.ExecutionAwaiting.SignalName)
		}
	case *perdurev1.Event_JoinSetCreated:
		add("%s", k.JoinSetCreated.JoinSetId)
	case *perdurev1.Event_JoinSetSubmitted:
		add("%s %s", k.JoinSetSubmitted.JoinSetId, k.JoinSetSubmitted.PromiseId)
	case *perdurev1.Event_JoinSetAwaited:
		add("%s %s %s", k.JoinSetAwaited.JoinSetId, k.JoinSetAwaited.PromiseId, showOutcome(k.JoinSetAwaited.Result))
	}
	return s
}

func showEntries(entries []*perdurev1.JournalEntry) (lines []string) {
	for _, e := range entries {
		lines = append(lines, fmt.Sprintf("%2d t=%-6d %s", e.Seq, e.TimeMs, showEvent(e.Event)))
	}
	return lines
}

func showToken(t *perdurev1.TaskToken) string {
	return fmt.Sprintf("%s@%d/%d", t.Id, t.Incarnation, t.Version)
}

func showTokens(ts []*perdurev1.TaskToken) string {
	var out []string
	for _, t := range ts {
		out = append(out, showToken(t))
	}
	return strings.Join(out, ",")
}

// showReply is a command's reply.
func showReply(r *commandv1.Reply) (lines []string) {
	switch k := r.Kind.(type) {
	case *commandv1.Reply_Error:
		e := wire.ReplyError(r)
		s := "refused: " + e.Error()
		if rule := e.Meta["rule"]; rule != "" {
			s += " [" + rule + "]"
		}
		return []string{s}
	case *commandv1.Reply_Start:
		return []string{fmt.Sprintf("started %s@%d created=%v %s", k.Start.Id, k.Start.Incarnation, k.Start.Created, status(k.Start.Status))}
	case *commandv1.Reply_Commit:
		c := k.Commit
		lines = append(lines, fmt.Sprintf("%s %s, next entry %d, next child %d",
			strings.ToLower(strings.TrimPrefix(c.State.String(), "TASK_STATE_")), status(c.Status), c.NextSeq, c.NextChild))
		for _, line := range showEntries(c.Entries) {
			lines = append(lines, "sent "+line)
		}
		return lines
	case *commandv1.Reply_Restart:
		return []string{fmt.Sprintf("incarnation %d after %d, keeps %d entries", k.Restart.Incarnation, k.Restart.FormerIncarnation, k.Restart.KeptEvents)}
	case *commandv1.Reply_Release:
		return []string{"released"}
	case *commandv1.Reply_Heartbeat:
		return []string{fmt.Sprintf("lost=[%s] cancelling=[%s]", showTokens(k.Heartbeat.Lost), showTokens(k.Heartbeat.Cancelling))}
	case *commandv1.Reply_Signal:
		return []string{fmt.Sprintf("delivery %d", k.Signal.DeliveryId)}
	case *commandv1.Reply_Cancel:
		return []string{status(k.Cancel.Status)}
	case *commandv1.Reply_Terminate:
		return []string{status(k.Terminate.Status)}
	case *commandv1.Reply_Promise:
		return []string{showPromise(k.Promise.Promise)}
	case *commandv1.Reply_Tick:
		return []string{fmt.Sprintf("%d carried out", k.Tick.Done)}
	case *commandv1.Reply_Deliver:
		return []string{fmt.Sprintf("received through %d", k.Deliver.Through)}
	}
	return nil
}

func showPromise(p *perdurev1.Promise) string {
	s := fmt.Sprintf("promise %s %s created=%d", p.Id, strings.TrimPrefix(p.State.String(), "PROMISE_STATE_"), p.CreatedAtMs)
	if p.TimeoutAtMs != 0 {
		s += fmt.Sprintf(" timeout=%d", p.TimeoutAtMs)
	}
	if p.SettledAtMs != 0 {
		s += fmt.Sprintf(" settled=%d", p.SettledAtMs)
	}
	for _, key := range slices.Sorted(maps.Keys(p.Tags)) {
		s += fmt.Sprintf(" %s=%s", key, p.Tags[key])
	}
	if p.Value != nil {
		s += " " + showOutcome(p.Value)
	}
	return s
}

// showEffects is what an entry wants done, one line each.
func showEffects(fx Effects) (lines []string) {
	for _, q := range fx.Ready {
		lines = append(lines, "effect: ready "+q.Function)
	}
	for _, a := range fx.Assigned {
		lines = append(lines, "effect: "+a.Worker+" gets "+showToken(a.Token)+" "+a.Function)
	}
	for _, a := range fx.Cancelling {
		lines = append(lines, "effect: "+a.Worker+" is to cancel "+showToken(a.Token))
	}
	for _, r := range fx.Settled {
		lines = append(lines, "effect: settled "+r.ID)
	}
	for _, u := range fx.Unblocked {
		lines = append(lines, "effect: unblock "+u.ID+" for "+u.Address)
	}
	for _, dst := range fx.Outbox {
		lines = append(lines, fmt.Sprintf("effect: messages for partition %d", dst))
	}
	if fx.NextExpiration != 0 {
		lines = append(lines, fmt.Sprintf("effect: due at %d", fx.NextExpiration))
	}
	return lines
}

func showMessage(m *commandv1.Message) string {
	s := fmt.Sprintf("%d %s -> %s", m.Seq, m.FromId, m.ToId)
	if m.ToIncarnation != 0 {
		s += fmt.Sprintf("@%d", m.ToIncarnation)
	}
	switch k := m.Kind.(type) {
	case *commandv1.Message_Entity:
		return s + " " + showEntityMessage(k.Entity)
	case *commandv1.Message_StartChild:
		s += fmt.Sprintf(" start child %s for %s", k.StartChild.Function, k.StartChild.PromiseId)
	case *commandv1.Message_ChildDone:
		s += " child done " + showOutcome(k.ChildDone.Outcome)
	case *commandv1.Message_ChildStarted:
		s += " child started"
	case *commandv1.Message_ChildRetrying:
		s += fmt.Sprintf(" child retrying at %d", k.ChildRetrying.RetryAtMs)
	case *commandv1.Message_Signal:
		s += fmt.Sprintf(" signal %s %q", k.Signal.Name, k.Signal.Payload)
	case *commandv1.Message_SignalCall:
		s += fmt.Sprintf(" signal %s %q for %s", k.SignalCall.Signal.Name, k.SignalCall.Signal.Payload, k.SignalCall.PromiseId)
	case *commandv1.Message_SignalDone:
		s += " signal done " + showOutcome(k.SignalDone.Outcome)
	case *commandv1.Message_Start:
		s += fmt.Sprintf(" start %s %q", k.Start.Function, k.Start.Input)
	}
	return s
}

// showExecution is a description.
func showExecution(e *perdurev1.Execution) string {
	s := fmt.Sprintf("%s@%d %s %s, %d entries, next: %s", e.Id, e.Incarnation, e.Function, status(e.Status), e.JournalEvents, e.WakeSource)
	if e.Task != nil {
		s += fmt.Sprintf(", task %s v%d", e.Task.State, e.Task.Version)
		if e.Task.Worker != "" {
			s += fmt.Sprintf(" of %s until %d", e.Task.Worker, e.Task.LeaseUntilMs)
		}
	}
	if e.Outcome != nil {
		s += ", " + showOutcome(e.Outcome)
	}
	if e.LastProblem != "" {
		s += ", problem: " + e.LastProblem
	}
	return s
}

// sameProto compares two messages of any kind.
func sameProto[M proto.Message](a, b []M) bool {
	return slices.EqualFunc(a, b, func(x, y M) bool { return proto.Equal(x, y) })
}
