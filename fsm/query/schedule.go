package query

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// schedule answers one schedule.
func (x *Read) schedule() (*commandv1.QueryReply, *api.Error) {
	ns, scheduleID := x.Query.Namespace, x.Query.Id
	s, ok := x.scheduleOf(scheduleID)
	if !ok {
		return nil, api.Errorf(perdurev1.Reason_REASON_PROMISE_NOT_FOUND, "no schedule %q in namespace %q", scheduleID, ns).
			With("namespace", ns).With("id", scheduleID).With("rule", "schedule_exists")
	}
	return &commandv1.QueryReply{Kind: &commandv1.QueryReply_Schedule{Schedule: &perdurev1.ScheduleResponse{Schedule: s}}}, nil
}

func (x *Read) scheduleOf(scheduleID string) (*perdurev1.Schedule, bool) {
	key := keys.Of(keys.Schedule, x.Query.Namespace, scheduleID)
	b, ok := x.Get(key)
	if !ok {
		return nil, false
	}
	s, err := state.DecodeSchedule(b)
	if err != nil {
		state.PanicCorrupt("schedule", key, err)
	}
	return s, true
}

// schedules reads one partition's part of a search.
func (x *Read) schedules(req *perdurev1.SearchSchedulesRequest) *commandv1.QueryReply {
	out, limit := &perdurev1.SearchSchedulesResponse{}, pageLimit(req.Limit)
	out.Cursor = x.objects(keys.Schedule, req.Cursor, func(scheduleID string) bool {
		s, _ := x.scheduleOf(scheduleID)
		if req.DueMs != 0 && s.NextRunAtMs > req.DueMs || !contains(s.PromiseTags, req.PromiseTags) {
			return true
		}
		if len(out.Schedules) == limit {
			return false
		}
		out.Schedules = append(out.Schedules, s)
		return true
	})
	return &commandv1.QueryReply{Kind: &commandv1.QueryReply_Schedules{Schedules: out}}
}

// contains reports whether tags have all of the wanted ones.
func contains(tags, want map[string]string) bool {
	for key, value := range want { //lint:sorted the order has no effect
		if have, ok := tags[key]; !ok || have != value {
			return false
		}
	}
	return true
}
