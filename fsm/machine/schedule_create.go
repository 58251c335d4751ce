package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/wire"
	"perdure/id"
)

// maxCron bounds the expression of a schedule, in bytes.
const maxCron = 256

// applyCreateSchedule creates a schedule. It is idempotent by id. The leader runs schedules: the machine reads no
// expression, so that no version of a parser can make replicas differ.
func applyCreateSchedule(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	t.clientCommand()
	req, ns := cmd.GetCreateSchedule(), cmd.Namespace
	bad := func(format string, args ...any) (*commandv1.Reply, *api.Error) {
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, format, args...).With("namespace", ns).With("id", req.Id)
	}
	if err := id.ValidateRoot(req.Id); err != nil {
		return nil, badID(ns, err)
	}
	if s, ok := t.schedule(ns, req.Id); ok {
		return scheduleReply(s), nil
	}
	if _, _, refused := valueForm(ns, req.Id, req.PromiseParam); refused != nil {
		return nil, refused
	}
	tags := wire.DecodeTags(req.PromiseTags)
	key, reserved := state.ReservedTag(tags)
	switch {
	case len(req.Cron) == 0 || len(req.Cron) > maxCron:
		return bad("expression of %d bytes is not of 1 to %d", len(req.Cron), maxCron)
	case len(req.PromiseId) == 0 || len(req.PromiseId) > id.MaxIDBytes:
		return bad("promise id of %d bytes is not of 1 to %d", len(req.PromiseId), id.MaxIDBytes)
	case req.PromiseTimeoutMs < 0 || req.PromiseTimeoutMs > state.Never:
		return bad("timeout of %d ms is not of 0 to %d", req.PromiseTimeoutMs, state.Never)
	case req.NextRunAtMs < 1 || req.NextRunAtMs > state.Never:
		return bad("first run at %d is not of 1 to %d", req.NextRunAtMs, state.Never)
	case reserved:
		return bad("tag %q begins with a NUL", key)
	}
	s := &perdurev1.Schedule{
		Namespace: ns, Id: req.Id, Incarnation: t.index, Cron: req.Cron, PromiseId: req.PromiseId, PromiseTimeoutMs: req.PromiseTimeoutMs,
		PromiseParam: req.PromiseParam, PromiseTags: req.PromiseTags, CreatedAtMs: t.now, NextRunAtMs: req.NextRunAtMs,
	}
	t.putSchedule(s)
	return scheduleReply(s), nil
}
