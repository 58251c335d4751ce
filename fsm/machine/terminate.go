package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/wire"
)

// applyTerminate ends an execution at once, without its worker, whose next commit finds a stale task. It starts no
// clean-up. On an ended execution it changes nothing.
func applyTerminate(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	req, ns := cmd.GetTerminate(), cmd.Namespace
	ex, ok := t.execution(ns, req.Id)
	if !ok {
		return nil, wire.NotFound(ns, req.Id)
	}
	if !ex.h.Status.Terminal() {
		reason := req.Reason
		if reason == "" {
			reason = "terminated"
		}
		if err := t.terminate(ex, reason); err != nil {
			return nil, ruleError(ns, err)
		}
	}
	return &commandv1.Reply{Kind: &commandv1.Reply_Terminate{Terminate: &perdurev1.TerminateResponse{Status: wire.EncodeStatus(ex.h.Status)}}}, nil
}
