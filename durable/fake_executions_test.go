package durable

import (
	"context"

	"google.golang.org/protobuf/proto"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/id"
	"perdure/journal"
)

// Start is the service's, as far as handles need it.
func (f *fakeServer) Start(_ context.Context, r *perdurev1.StartRequest) (*perdurev1.StartResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ex, made := f.execs[r.GetId()], false
	if ex == nil {
		ex, made = f.begin(r.GetId(), r.GetFunction(), "", r.GetInput()), true
		ex.tags = r.GetTags()
	}
	return &perdurev1.StartResponse{Id: ex.id, Incarnation: ex.incarnation, Created: made, Status: perdurev1.ExecutionStatus(ex.j.Status())}, nil
}

// Result waits for the end without a bound but the call's own.
func (f *fakeServer) Result(ctx context.Context, r *perdurev1.ResultRequest) (*perdurev1.ResultResponse, error) {
	for {
		f.mu.Lock()
		ex, changed := f.execs[r.GetId()], f.changed
		if ex == nil {
			f.mu.Unlock()
			return nil, api.Errorf(perdurev1.Reason_REASON_EXECUTION_NOT_FOUND, "no execution %q", r.GetId())
		}
		if ex.j.Status().Terminal() {
			resp := &perdurev1.ResultResponse{Done: true, Status: perdurev1.ExecutionStatus(ex.j.Status()), Outcome: outcomeOf(ex)}
			f.mu.Unlock()
			return resp, nil
		}
		f.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// toJournal converts an event for the journal's guard. Outcomes are compared, never read, so their wire form
// represents them.
func toJournal(ev *perdurev1.Event) journal.Event {
	outcome := func(o *perdurev1.Outcome) []byte {
		b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(o)
		return b
	}
	pid := func(s string) id.PromiseID { return id.PromiseID(s) }
	switch k := ev.GetKind().(type) {
	case *perdurev1.Event_ExecutionStarted:
		return journal.ExecutionStarted{Input: k.ExecutionStarted.GetInput(), Parent: pid(k.ExecutionStarted.GetParentId())}
	case *perdurev1.Event_ExecutionCompleted:
		return journal.ExecutionCompleted{Result: k.ExecutionCompleted.GetResult()}
	case *perdurev1.Event_ExecutionFailed:
		return journal.ExecutionFailed{Error: []byte(k.ExecutionFailed.GetError().GetMessage())}
	case *perdurev1.Event_CancelRequested:
		return journal.CancelRequested{Reason: k.CancelRequested.GetReason()}
	case *perdurev1.Event_ExecutionCancelled:
		return journal.ExecutionCancelled{Reason: k.ExecutionCancelled.GetReason()}
	case *perdurev1.Event_InvokeScheduled:
		e := k.InvokeScheduled
		return journal.InvokeScheduled{Promise: pid(e.GetPromiseId()), Invoke: journal.InvokeKind(e.GetKind()),
			Function: e.GetFunctionName(), Input: e.GetInput(), RetryPolicy: e.GetRetryPolicy()}
	case *perdurev1.Event_InvokeStarted:
		return journal.InvokeStarted{Promise: pid(k.InvokeStarted.GetPromiseId()), Attempt: k.InvokeStarted.GetAttempt()}
	case *perdurev1.Event_InvokeCompleted:
		return journal.InvokeCompleted{Promise: pid(k.InvokeCompleted.GetPromiseId()), Attempt: k.InvokeCompleted.GetAttempt(),
			Result: outcome(k.InvokeCompleted.GetResult())}
	case *perdurev1.Event_InvokeRetrying:
		e := k.InvokeRetrying
		return journal.InvokeRetrying{Promise: pid(e.GetPromiseId()), FailedAttempt: e.GetFailedAttempt(),
			Error: []byte(e.GetError().GetMessage()), RetryAt: e.GetRetryAtMs()}
	case *perdurev1.Event_RandomGenerated:
		return journal.RandomGenerated{Promise: pid(k.RandomGenerated.GetPromiseId()), Value: k.RandomGenerated.GetValue()}
	case *perdurev1.Event_TimeRecorded:
		return journal.TimeRecorded{Promise: pid(k.TimeRecorded.GetPromiseId()), Time: k.TimeRecorded.GetTimeMs()}
	case *perdurev1.Event_TimerScheduled:
		return journal.TimerScheduled{Promise: pid(k.TimerScheduled.GetPromiseId()), Duration: k.TimerScheduled.GetDurationMs()}
	case *perdurev1.Event_TimerFired:
		return journal.TimerFired{Promise: pid(k.TimerFired.GetPromiseId())}
	case *perdurev1.Event_SignalDelivered:
		e := k.SignalDelivered
		return journal.SignalDelivered{Name: e.GetName(), Payload: outcome(e.GetPayload()), DeliveryID: e.GetDeliveryId()}
	case *perdurev1.Event_SignalReceived:
		e := k.SignalReceived
		return journal.SignalReceived{Promise: pid(e.GetPromiseId()), Name: e.GetName(), Payload: outcome(e.GetPayload()), DeliveryID: e.GetDeliveryId()}
	case *perdurev1.Event_ExecutionAwaiting:
		e := journal.ExecutionAwaiting{Wait: journal.AwaitKind(k.ExecutionAwaiting.GetKind()), Signal: k.ExecutionAwaiting.GetSignalName(),
			Set: journal.JoinSetID(k.ExecutionAwaiting.GetJoinSetId())}
		for _, p := range k.ExecutionAwaiting.GetWaitingOn() {
			e.On = append(e.On, pid(p))
		}
		return e
	case *perdurev1.Event_ExecutionResumed:
		return journal.ExecutionResumed{}
	case *perdurev1.Event_JoinSetCreated:
		return journal.JoinSetCreated{Set: journal.JoinSetID(k.JoinSetCreated.GetJoinSetId())}
	case *perdurev1.Event_JoinSetSubmitted:
		return journal.JoinSetSubmitted{Set: journal.JoinSetID(k.JoinSetSubmitted.GetJoinSetId()), Promise: pid(k.JoinSetSubmitted.GetPromiseId())}
	case *perdurev1.Event_JoinSetAwaited:
		return journal.JoinSetAwaited{Set: journal.JoinSetID(k.JoinSetAwaited.GetJoinSetId()), Promise: pid(k.JoinSetAwaited.GetPromiseId()),
			Result: outcome(k.JoinSetAwaited.GetResult())}
	}
	return nil
}
