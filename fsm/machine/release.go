package machine

import (
	"strings"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/id"
	"perdure/recovery"
)

// maxProblemBytes bounds the reason in a release.
const maxProblemBytes = 4096

// applyRelease gives a task back unfinished, now or after a delay.
func applyRelease(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	req, ns := cmd.GetRelease(), cmd.Namespace
	if entityID, ok := id.EntityOfTask(req.GetTask().GetId()); ok {
		return t.releaseEntity(ns, entityID, req)
	}
	ex, refused := t.held(ns, req.Task)
	if refused != nil {
		return nil, refused
	}
	if req.CodeMismatch && t.m.feature >= state.LevelFunctions {
		if err := t.stick(ex, req.Code); err != nil {
			return nil, ruleError(ns, err)
		}
	} else {
		_, fx, err := recovery.Release(t.store(ns), t.now, recovery.TaskRef{
			ID: ex.h.ID, Incarnation: ex.h.Incarnation, Version: req.Task.Version,
		}, req.DelayMs, retryMS)
		if err != nil {
			return nil, ruleError(ns, err)
		}
		t.effects(ns, fx)
	}
	t.reported(ex, req.Steps)
	ex.h.Problem = strings.ToValidUTF8(req.Problem[:min(len(req.Problem), maxProblemBytes)], "")
	ex.h.Releases++
	ex.dirty = true
	return &commandv1.Reply{Kind: &commandv1.Reply_Release{Release: &perdurev1.ReleaseReply{}}}, nil
}
