package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// schedule reads a schedule.
func (t *txn) schedule(ns, scheduleID string) (*perdurev1.Schedule, bool) {
	key := keys.Of(keys.Schedule, ns, scheduleID)
	b, ok := t.get(key)
	if !ok {
		return nil, false
	}
	s, err := state.DecodeSchedule(b)
	if err != nil {
		state.PanicCorrupt("schedule", key, err)
	}
	return s, true
}

// putSchedule stores a schedule.
func (t *txn) putSchedule(s *perdurev1.Schedule) {
	b, err := state.EncodeSchedule(s)
	if err != nil {
		panic(state.Fault{Err: err})
	}
	t.put(keys.Of(keys.Schedule, s.Namespace, s.Id), b)
}

func noSchedule(ns, scheduleID string) *api.Error {
	return api.Errorf(perdurev1.Reason_REASON_PROMISE_NOT_FOUND, "no schedule %q in namespace %q", scheduleID, ns).
		With("namespace", ns).With("id", scheduleID).With("rule", "schedule_exists")
}

func scheduleReply(s *perdurev1.Schedule) *commandv1.Reply {
	return &commandv1.Reply{Kind: &commandv1.Reply_Schedule{Schedule: &perdurev1.ScheduleResponse{Schedule: s}}}
}
