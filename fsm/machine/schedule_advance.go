package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
)

// applyAdvanceSchedule records a run of a schedule and when the next one is. It is idempotent: a report of another run
// than the next, or of a former incarnation, changes nothing.
func applyAdvanceSchedule(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	t.clientCommand()
	req, ns := cmd.GetAdvanceSchedule(), cmd.Namespace
	s, ok := t.schedule(ns, req.Id)
	switch {
	case !ok:
		return nil, noSchedule(ns, req.Id)
	case s.Incarnation != req.Incarnation || s.NextRunAtMs != req.RanAtMs:
		return scheduleReply(s), nil
	case req.NextRunAtMs <= req.RanAtMs || req.NextRunAtMs > state.Never:
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "next run at %d is not after %d", req.NextRunAtMs, req.RanAtMs).
			With("namespace", ns).With("id", req.Id)
	}
	s.LastRunAtMs, s.NextRunAtMs = s.NextRunAtMs, req.NextRunAtMs
	t.putSchedule(s)
	return scheduleReply(s), nil
}
