package wire

import (
	"slices"
	"strings"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/id"
	"perdure/journal"
	"perdure/recovery"
	"perdure/reduction"
)

// The API's values and the rules' values. Journals and promises store results and payloads as
// recovery.Outcome in its canonical encoding.

func DecodeOutcome(o *perdurev1.Outcome) ([]byte, *api.Error) {
	switch r := o.GetResult().(type) {
	case nil:
		return recovery.AppendOutcome(nil, recovery.Outcome{}), nil
	case *perdurev1.Outcome_Value:
		return recovery.AppendOutcome(nil, recovery.Outcome{Data: r.Value}), nil
	case *perdurev1.Outcome_Failure:
		return decodeFailure(r.Failure), nil
	default:
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "unknown outcome kind %T", r)
	}
}

func decodeFailure(f *perdurev1.Failure) []byte {
	return recovery.AppendOutcome(nil, recovery.Outcome{Failure: &recovery.Failure{
		Type: f.GetType(), Message: f.GetMessage(), Details: f.GetDetails(), NonRetryable: f.GetNonRetryable(),
	}})
}

// EncodeOutcome decodes a canonical outcome; what is not one (a journal of another kind) is shown as a
// plain value.
func EncodeOutcome(b []byte) *perdurev1.Outcome {
	o, err := recovery.DecodeOutcome(b)
	if err != nil {
		return &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: b}}
	}
	if f := o.Failure; f != nil {
		return &perdurev1.Outcome{Result: &perdurev1.Outcome_Failure{Failure: &perdurev1.Failure{
			Type: f.Type, Message: f.Message, Details: f.Details, NonRetryable: f.NonRetryable,
		}}}
	}
	return &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: o.Data}, Form: perdurev1.DataForm(o.Form), Headers: EncodeTags(o.Headers)}
}

// DecodeForm reads a form of data; ok is false for an unknown one.
func DecodeForm(f perdurev1.DataForm) (form recovery.DataForm, ok bool) {
	form = recovery.DataForm(narrow(f))
	return form, f >= 0 && f <= perdurev1.DataForm(recovery.DataEmpty)
}

// EncodeClientTask shows a client's task.
func EncodeClientTask(ns string, t recovery.Task) *perdurev1.ClientTask {
	address, _ := state.AddressOf(t.Target)
	return &perdurev1.ClientTask{
		Namespace: ns, Id: t.ID, State: EncodeTaskState(t.State), Version: t.Version, Pid: t.PID, TtlMs: t.TTL, LeaseAtMs: t.LeaseAt,
		Resumes: t.Resumes, Address: address, RetryAtMs: t.RetryAt,
	}
}

func EncodeFailure(b []byte) *perdurev1.Failure {
	if f := EncodeOutcome(b).GetFailure(); f != nil {
		return f
	}
	return &perdurev1.Failure{Message: string(b)}
}

func EncodeStatus(s journal.Status) perdurev1.ExecutionStatus {
	return perdurev1.ExecutionStatus(s) // the numbers are the same, pinned by a test
}

func EncodeTaskState(s recovery.TaskState) perdurev1.TaskState { return perdurev1.TaskState(s) }

func DecodePromiseState(s perdurev1.PromiseState) recovery.PromiseState {
	return recovery.PromiseState(narrow(s))
}

// narrow brings a wire enum into the rules' eight bits; what does not fit becomes 0, which is no value of
// any of them.
func narrow[E ~int32](e E) uint8 {
	if e < 0 || e > 255 {
		return 0
	}
	return uint8(e)
}

func EncodePromise(ns string, p recovery.Promise) *perdurev1.Promise {
	out := &perdurev1.Promise{
		Namespace: ns, Id: p.ID, State: perdurev1.PromiseState(p.State), Param: p.Param, Tags: EncodeTags(state.UserTags(p.Tags)),
		CreatedAtMs: p.CreatedAt, SettledAtMs: p.SettledAt,
	}
	if form, headers, err := state.ParamForm(p); err == nil { // else an audit finds it
		out.ParamForm, out.ParamHeaders = perdurev1.DataForm(form), EncodeTags(headers)
	}
	out.Address, _ = state.AddressOf(p.Target)
	if p.TimeoutAt != state.Never || state.OfClient(p) {
		out.TimeoutAtMs = p.TimeoutAt
	}
	if p.State.Settled() {
		out.Value = EncodeOutcome(state.OutcomeOf(p))
	}
	return out
}

// EncodeEntry shows a journal entry as the API does.
func EncodeEntry(e journal.Entry) *perdurev1.JournalEntry {
	out := &struct { // in one piece of memory
		entry perdurev1.JournalEntry
		event perdurev1.Event
	}{}
	encodeEvent(&out.event, e.Event)
	out.entry.Seq, out.entry.TimeMs, out.entry.Event = e.Seq, e.Time, &out.event
	return &out.entry
}

// encodeEvent fills out, which is empty. The events of children, which are many, take one piece of memory each.
func encodeEvent(out *perdurev1.Event, ev journal.Event) {
	switch e := ev.(type) {
	case journal.ExecutionStarted:
		k := &struct {
			kind perdurev1.Event_ExecutionStarted
			msg  perdurev1.ExecutionStarted
		}{}
		k.msg.ComponentDigest, k.msg.Input, k.msg.ParentId, k.msg.IdempotencyKey = e.ComponentDigest, e.Input, string(e.Parent), e.IdempotencyKey
		k.kind.ExecutionStarted, out.Kind = &k.msg, &k.kind
	case journal.ExecutionCompleted:
		out.Kind = &perdurev1.Event_ExecutionCompleted{ExecutionCompleted: &perdurev1.ExecutionCompleted{Result: e.Result}}
	case journal.ExecutionFailed:
		out.Kind = &perdurev1.Event_ExecutionFailed{ExecutionFailed: &perdurev1.ExecutionFailed{Error: EncodeFailure(e.Error)}}
	case journal.CancelRequested:
		out.Kind = &perdurev1.Event_CancelRequested{CancelRequested: &perdurev1.CancelRequested{Reason: e.Reason}}
	case journal.ExecutionCancelled:
		out.Kind = &perdurev1.Event_ExecutionCancelled{ExecutionCancelled: &perdurev1.ExecutionCancelled{Reason: e.Reason}}
	case journal.InvokeScheduled:
		k := &struct {
			kind perdurev1.Event_InvokeScheduled
			msg  perdurev1.InvokeScheduled
		}{}
		k.msg.PromiseId, k.msg.Kind, k.msg.FunctionName = string(e.Promise), perdurev1.InvokeKind(e.Invoke), e.Function
		k.msg.Input, k.msg.RetryPolicy = e.Input, e.RetryPolicy
		k.kind.InvokeScheduled, out.Kind = &k.msg, &k.kind
	case journal.InvokeStarted:
		k := &struct {
			kind perdurev1.Event_InvokeStarted
			msg  perdurev1.InvokeStarted
		}{}
		k.msg.PromiseId, k.msg.Attempt = string(e.Promise), e.Attempt
		k.kind.InvokeStarted, out.Kind = &k.msg, &k.kind
	case journal.InvokeCompleted:
		k := &struct {
			kind perdurev1.Event_InvokeCompleted
			msg  perdurev1.InvokeCompleted
		}{}
		k.msg.PromiseId, k.msg.Result, k.msg.Attempt = string(e.Promise), EncodeOutcome(e.Result), e.Attempt
		k.kind.InvokeCompleted, out.Kind = &k.msg, &k.kind
	case journal.InvokeRetrying:
		out.Kind = &perdurev1.Event_InvokeRetrying{InvokeRetrying: &perdurev1.InvokeRetrying{
			PromiseId: string(e.Promise), FailedAttempt: e.FailedAttempt, Error: EncodeFailure(e.Error), RetryAtMs: e.RetryAt}}
	case journal.RandomGenerated:
		out.Kind = &perdurev1.Event_RandomGenerated{RandomGenerated: &perdurev1.RandomGenerated{PromiseId: string(e.Promise), Value: e.Value}}
	case journal.TimeRecorded:
		out.Kind = &perdurev1.Event_TimeRecorded{TimeRecorded: &perdurev1.TimeRecorded{PromiseId: string(e.Promise), TimeMs: e.Time}}
	case journal.TimerScheduled:
		out.Kind = &perdurev1.Event_TimerScheduled{TimerScheduled: &perdurev1.TimerScheduled{
			PromiseId: string(e.Promise), DurationMs: e.Duration, FireAtMs: e.FireAt}}
	case journal.TimerFired:
		out.Kind = &perdurev1.Event_TimerFired{TimerFired: &perdurev1.TimerFired{PromiseId: string(e.Promise)}}
	case journal.SignalDelivered:
		out.Kind = &perdurev1.Event_SignalDelivered{SignalDelivered: &perdurev1.SignalDelivered{
			Name: e.Name, Payload: EncodeOutcome(e.Payload), DeliveryId: e.DeliveryID}}
	case journal.SignalReceived:
		out.Kind = &perdurev1.Event_SignalReceived{SignalReceived: &perdurev1.SignalReceived{
			PromiseId: string(e.Promise), Name: e.Name, Payload: EncodeOutcome(e.Payload), DeliveryId: e.DeliveryID}}
	case journal.ExecutionAwaiting:
		on := make([]string, len(e.On))
		for i, p := range e.On {
			on[i] = string(p)
		}
		out.Kind = &perdurev1.Event_ExecutionAwaiting{ExecutionAwaiting: &perdurev1.ExecutionAwaiting{
			WaitingOn: on, Kind: perdurev1.AwaitKind(e.Wait), SignalName: e.Signal, JoinSetId: string(e.Set)}}
	case journal.ExecutionResumed:
		out.Kind = &perdurev1.Event_ExecutionResumed{ExecutionResumed: &perdurev1.ExecutionResumed{}}
	case journal.JoinSetCreated:
		out.Kind = &perdurev1.Event_JoinSetCreated{JoinSetCreated: &perdurev1.JoinSetCreated{JoinSetId: string(e.Set)}}
	case journal.JoinSetSubmitted:
		out.Kind = &perdurev1.Event_JoinSetSubmitted{JoinSetSubmitted: &perdurev1.JoinSetSubmitted{JoinSetId: string(e.Set), PromiseId: string(e.Promise)}}
	case journal.JoinSetAwaited:
		out.Kind = &perdurev1.Event_JoinSetAwaited{JoinSetAwaited: &perdurev1.JoinSetAwaited{
			JoinSetId: string(e.Set), PromiseId: string(e.Promise), Result: EncodeOutcome(e.Result)}}
	}
}

// DecodeEvent reads an event in the API's form. The journal's guard checks the rest.
func DecodeEvent(w *perdurev1.Event) (journal.Event, error) {
	switch k := w.GetKind().(type) {
	case *perdurev1.Event_ExecutionCompleted:
		return journal.ExecutionCompleted{Result: k.ExecutionCompleted.Result}, nil
	case *perdurev1.Event_ExecutionFailed:
		return journal.ExecutionFailed{Error: decodeFailure(k.ExecutionFailed.Error)}, nil
	case *perdurev1.Event_ExecutionCancelled:
		return journal.ExecutionCancelled{Reason: k.ExecutionCancelled.Reason}, nil
	case *perdurev1.Event_InvokeScheduled:
		e := k.InvokeScheduled
		return journal.InvokeScheduled{Promise: id.PromiseID(e.PromiseId), Invoke: journal.InvokeKind(narrow(e.Kind)),
			Function: e.FunctionName, Input: e.Input, RetryPolicy: e.RetryPolicy}, nil
	case *perdurev1.Event_InvokeStarted:
		return journal.InvokeStarted{Promise: id.PromiseID(k.InvokeStarted.PromiseId), Attempt: k.InvokeStarted.Attempt}, nil
	case *perdurev1.Event_InvokeCompleted:
		result, err := DecodeOutcome(k.InvokeCompleted.Result)
		if err != nil {
			return nil, err
		}
		return journal.InvokeCompleted{Promise: id.PromiseID(k.InvokeCompleted.PromiseId), Result: result, Attempt: k.InvokeCompleted.Attempt}, nil
	case *perdurev1.Event_InvokeRetrying:
		e := k.InvokeRetrying
		return journal.InvokeRetrying{Promise: id.PromiseID(e.PromiseId), FailedAttempt: e.FailedAttempt,
			Error: decodeFailure(e.Error), RetryAt: e.RetryAtMs}, nil
	case *perdurev1.Event_RandomGenerated:
		return journal.RandomGenerated{Promise: id.PromiseID(k.RandomGenerated.PromiseId), Value: k.RandomGenerated.Value}, nil
	case *perdurev1.Event_TimeRecorded:
		return journal.TimeRecorded{Promise: id.PromiseID(k.TimeRecorded.PromiseId), Time: k.TimeRecorded.TimeMs}, nil
	case *perdurev1.Event_TimerScheduled:
		return journal.TimerScheduled{Promise: id.PromiseID(k.TimerScheduled.PromiseId), Duration: k.TimerScheduled.DurationMs}, nil
	case *perdurev1.Event_SignalReceived:
		payload, err := DecodeOutcome(k.SignalReceived.Payload)
		if err != nil {
			return nil, err
		}
		return journal.SignalReceived{Promise: id.PromiseID(k.SignalReceived.PromiseId), Name: k.SignalReceived.Name, Payload: payload,
			DeliveryID: k.SignalReceived.DeliveryId}, nil
	case *perdurev1.Event_ExecutionAwaiting:
		e := k.ExecutionAwaiting
		on := make([]id.PromiseID, len(e.WaitingOn))
		for i, p := range e.WaitingOn {
			on[i] = id.PromiseID(p)
		}
		return journal.ExecutionAwaiting{On: on, Wait: journal.AwaitKind(narrow(e.Kind)), Signal: e.SignalName, Set: journal.JoinSetID(e.JoinSetId)}, nil
	case *perdurev1.Event_JoinSetCreated:
		return journal.JoinSetCreated{Set: journal.JoinSetID(k.JoinSetCreated.JoinSetId)}, nil
	case *perdurev1.Event_JoinSetSubmitted:
		return journal.JoinSetSubmitted{Set: journal.JoinSetID(k.JoinSetSubmitted.JoinSetId), Promise: id.PromiseID(k.JoinSetSubmitted.PromiseId)}, nil
	case *perdurev1.Event_JoinSetAwaited:
		result, err := DecodeOutcome(k.JoinSetAwaited.Result)
		if err != nil {
			return nil, err
		}
		return journal.JoinSetAwaited{Set: journal.JoinSetID(k.JoinSetAwaited.JoinSetId),
			Promise: id.PromiseID(k.JoinSetAwaited.PromiseId), Result: result}, nil
	case *perdurev1.Event_ExecutionStarted, *perdurev1.Event_CancelRequested, *perdurev1.Event_TimerFired,
		*perdurev1.Event_SignalDelivered, *perdurev1.Event_ExecutionResumed:
		return nil, api.Errorf(perdurev1.Reason_REASON_RULE_BROKEN, "%T is written by the server, not by a worker", k)
	default:
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "event has an unknown kind")
	}
}

// DecodeTags sorts a map of tags; the result is nil for none.
func DecodeTags(m map[string]string) []recovery.Tag {
	if len(m) == 0 {
		return nil
	}
	tags := make([]recovery.Tag, 0, len(m))
	for k, v := range m { //lint:sorted sorted below
		tags = append(tags, recovery.Tag{Key: k, Value: v})
	}
	slices.SortFunc(tags, func(a, b recovery.Tag) int { return strings.Compare(a.Key, b.Key) })
	return tags
}

func EncodeTags(tags []recovery.Tag) map[string]string {
	if len(tags) == 0 {
		return nil
	}
	m := make(map[string]string, len(tags))
	for _, t := range tags {
		m[t.Key] = t.Value
	}
	return m
}

// Token names a task as its holder must.
func Token(ns string, task recovery.Task) *perdurev1.TaskToken {
	return &perdurev1.TaskToken{Namespace: ns, Id: task.ID, Incarnation: task.Incarnation, Version: task.Version}
}

// EncodeNodeStatus is a status of the reduction as the API counts them.
func EncodeNodeStatus(s reduction.StatusKind) perdurev1.NodeStatus {
	switch s {
	case reduction.StatusPending:
		return perdurev1.NodeStatus_NODE_STATUS_PENDING
	case reduction.StatusRunning:
		return perdurev1.NodeStatus_NODE_STATUS_RUNNING
	case reduction.StatusWaiting:
		return perdurev1.NodeStatus_NODE_STATUS_WAITING
	case reduction.StatusCompleted:
		return perdurev1.NodeStatus_NODE_STATUS_COMPLETED
	case reduction.StatusFailed:
		return perdurev1.NodeStatus_NODE_STATUS_FAILED
	case reduction.StatusSkipped:
		return perdurev1.NodeStatus_NODE_STATUS_SKIPPED
	}
	return perdurev1.NodeStatus_NODE_STATUS_UNSPECIFIED
}

// Refusal is the reply to a command that changed nothing.
func Refusal(e *api.Error) *commandv1.Reply {
	out := &commandv1.Error{Reason: e.Reason, Message: e.Message}
	for _, k := range e.Keys() {
		out.Details = append(out.Details, &commandv1.Detail{Key: k, Value: e.Meta[k]})
	}
	return &commandv1.Reply{Kind: &commandv1.Reply_Error{Error: out}}
}

// ReplyError is the refusal a reply carries, or nil.
func ReplyError(r *commandv1.Reply) *api.Error { return fromError(r.GetError()) }

// QueryError is the refusal a query's reply carries, or nil.
func QueryError(r *commandv1.QueryReply) *api.Error { return fromError(r.GetError()) }

func fromError(e *commandv1.Error) *api.Error {
	if e == nil {
		return nil
	}
	out := &api.Error{Reason: e.Reason, Message: e.Message}
	for _, d := range e.Details {
		out.With(d.Key, d.Value)
	}
	return out
}

func NotFound(ns, objectID string) *api.Error {
	return api.Errorf(perdurev1.Reason_REASON_EXECUTION_NOT_FOUND, "no execution %q in namespace %q", objectID, ns).
		With("namespace", ns).With("id", objectID)
}
