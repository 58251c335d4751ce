package query

import (
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/id"
)

// steps shows the last heartbeats of an execution's steps.
func (x *Read) steps(h state.Header) []*perdurev1.StepHeartbeat {
	if h.HeartbeatAt == 0 {
		return nil
	}
	var out []*perdurev1.StepHeartbeat
	for _, s := range x.Heartbeats(x.Query.Namespace, h.ID, h.Incarnation) {
		out = append(out, &perdurev1.StepHeartbeat{PromiseId: id.PromiseID(h.ID).Child(s.Child).String(), Name: s.Name,
			Attempt: s.Attempt, Details: s.Details, AtMs: s.AtMS})
	}
	return out
}
